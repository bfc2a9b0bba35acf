"""Every wrong description of a table is refused where it is written, by table, field and cure."""

from __future__ import annotations
import __future__ as future

import sys
from collections.abc import Callable
from typing import Any

import pytest

from inboxkit._core.spec import Column, InboxSpec
from inboxkit.errors import DeclarationError

HEADER = """
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from uuid import UUID
from inboxkit import role
from inboxkit.codec import JSON
from inboxkit.table import Inbox
"""


def define(source: str, *, as_text: bool) -> dict[str, Any]:
    flags = future.annotations.compiler_flag if as_text else 0
    module = type(sys)("declared_here")
    sys.modules[module.__name__] = module
    try:
        exec(compile(HEADER + source, "<declared>", "exec", flags, dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    return vars(module)


ID = "id: int = role.id(generated=True)"

WRONG = {
    "a role twice": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.group()\n b: str = role.group()",
        ["'jobs'", "'a' and 'b'", "group", "role.column()"],
    ),
    "a column twice": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column('x')\n b: str = role.column('x')",
        ["'jobs'", "'a' and 'b'", "'x'", "keep one"],
    ),
    "a column twice, one by its field's name": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column()\n b: str = role.column('a')",
        ["'jobs'", "'a' and 'b'", "keep one"],
    ),
    "no id": (
        "class X(Inbox, table='jobs'):\n a: str",
        ["'jobs'", "no id", "id: int = role.id(generated=True)"],
    ),
    "no field at all": ("class X(Inbox, table='jobs'): pass", ["'jobs'", "no id"]),
    "fifo with advisory_lock": (
        f"class X(Inbox, table='jobs', advisory_lock='jobs-{{id}}'):\n {ID}\n g: str = role.group(fifo=True)",
        ["'jobs'", "fifo", "put the group into the key", "jobs-{g}"],
    ),
    "both forms": (
        f"class X(Inbox, table='jobs', advisory_lock='{{id}}'):\n {ID}\n held: datetime | None = role.locked_until()",
        ["'jobs'", "two claim forms", "'held'", "advisory_lock"],
    ),
    "an unknown name in the key": (
        f"class X(Inbox, table='jobs', advisory_lock='jobs-{{tenant}}'):\n {ID}",
        ["'jobs'", "'tenant'", "it has id"],
    ),
    "a name in the key that changes": (
        f"class X(Inbox, table='jobs', advisory_lock='{{n}}'):\n {ID}\n n: int = role.attempt()",
        ["'jobs'", "'n'", "changes while", "'id'"],
    ),
    "an open brace in the key": (
        f"class X(Inbox, table='jobs', advisory_lock='jobs-{{id'):\n {ID}",
        ["'jobs'", "position 5 is never closed", "{{"],
    ),
    "empty braces in the key": (
        f"class X(Inbox, table='jobs', advisory_lock='jobs-{{}}'):\n {ID}",
        ["'jobs'", "empty", "a field's name"],
    ),
    "an empty key": (
        f"class X(Inbox, table='jobs', advisory_lock=''):\n {ID}",
        ["'jobs'", "advisory_lock", "jobs-{id}"],
    ),
    "a field called spec": (
        f"class X(Inbox, table='jobs'):\n {ID}\n spec: str",
        ["'jobs'", "'spec'", "member of Inbox", 'spec_: str = role.column("spec")'],
    ),
    "a role field called of": (
        f"class X(Inbox, table='jobs'):\n {ID}\n of: str = role.group()",
        ["'of'", 'of_: str = role.group("of")'],
    ),
    "a field called stored": (
        f"class X(Inbox, table='jobs'):\n {ID}\n stored: int | None",
        ['stored_: int | None = role.column("stored")'],
    ),
    "an empty table": (f"class X(Inbox, table=''):\n {ID}", ["table", "non-empty", "''"]),
    "a table that is no name": (f"class X(Inbox, table=3):\n {ID}", ["non-empty name", "3"]),
    "an empty schema": (
        f"class X(Inbox, table='jobs', schema=''):\n {ID}",
        ["'jobs'", "schema", "leave it out"],
    ),
    "an empty column": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column('')",
        ["'jobs'", "'a'", "non-empty"],
    ),
    "a NUL in a name": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column('a\\0b')",
        ["'jobs'", "'a'", "NUL"],
    ),
    "a specifier without a type": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a = role.group()",
        ["'jobs'", "'a'", "no type", "a: … = role.group(…)"],
    ),
    "a shared default": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: list[int] = role.column(default=[])",
        ["'jobs'", "'a'", "role.column(default_factory=list)"],
    ),
    "a shared plain default": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: dict[str, str] = {{}}",
        ["'a'", "role.column(default_factory=dict)"],
    ),
    "a dataclass field": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = field(default='x')",
        ["'a'", "role.column(…)"],
    ),
    "two defaults": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column(default='', default_factory=str)",
        ["'jobs'", "'a'", "give one"],
    ),
    "a generated column with a default": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: str = role.column(generated=True, default='')",
        ["'jobs'", "'a'", "drop generated or the default"],
    ),
    "an attempt that starts at another number": (
        f"class X(Inbox, table='jobs'):\n {ID}\n a: int = role.attempt(default=2)",
        ["'jobs'", "'a'", "attempt is always 1"],
    ),
    "a codec that is none": (
        f"class X(Inbox, table='jobs', codec=object()):\n {ID}",
        ["'jobs'", "encode(message)", "decode(payload, type)"],
    ),
    "no table of its own": (
        f"class X(Inbox, table='jobs'):\n {ID}\nclass Y(X): pass",
        ["Y", "'jobs'", "no table of its own"],
    ),
    "a dataclass as a base": (
        f"@dataclass\nclass Base:\n a: str\nclass X(Base, Inbox, table='jobs'):\n {ID}",
        ["Base", "derive Base from Inbox"],
    ),
}

TYPES = [
    ("id", "float", "int or str or UUID"),
    ("id", "bool", "int or str or UUID"),
    ("id", "int | None", "int or str or UUID"),
    ("id", "int | str", "int or str or UUID"),
    ("group", "int", "str"),
    ("group", "str | None", "str"),
    ("priority", "str", "int"),
    ("priority", "float", "int"),
    ("partition_key", "float", "str or int or UUID or bytes"),
    ("retry_after", "datetime", "datetime | None"),
    ("retry_after", "int | None", "datetime | None"),
    ("attempt", "str", "int"),
    ("attempt", "int | None", "int"),
    ("processed_at", "datetime", "datetime | None"),
    ("processed_at", "bool", "datetime | None"),
    ("locked_until", "datetime", "datetime | None"),
    ("locked_until", "float | None", "datetime | None"),
    ("headers", "dict[str, int]", "dict[str, str]"),
    ("headers", "str", "dict[str, str]"),
    ("payload", "dict[str, str]", "bytes or str"),
    ("payload", "bytes | None", "bytes or str"),
]


@pytest.mark.parametrize("as_text", [False, True], ids=["types", "text"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_declarations_name_table_field_and_cure(wrong: str, as_text: bool) -> None:
    source, pieces = WRONG[wrong]
    with pytest.raises(DeclarationError) as caught:
        define(source, as_text=as_text)
    for piece in pieces:
        assert piece in str(caught.value)


@pytest.mark.parametrize("as_text", [False, True], ids=["types", "text"])
@pytest.mark.parametrize(("name", "kind", "cure"), TYPES)
def test_types_that_a_role_cannot_have(name: str, kind: str, cure: str, as_text: bool) -> None:
    identity = "" if name == "id" else f"{ID}\n "
    with pytest.raises(DeclarationError) as caught:
        define(
            f"class X(Inbox, table='jobs'):\n {identity}f: {kind} = role.{name}()", as_text=as_text
        )
    message = str(caught.value)
    assert message.startswith("table 'jobs': field 'f' has the role " + name)
    assert kind in message
    assert message.endswith(f"write f: {cure}")


@pytest.mark.parametrize("as_text", [False, True], ids=["types", "text"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("id", "int"),
        ("id", "str"),
        ("id", "UUID"),
        ("priority", "int | None"),
        ("partition_key", "bytes"),
        ("partition_key", "UUID | None"),
        ("headers", "dict[str, str] | None"),
        ("payload", "str"),
        ("column", "Decimal | None"),
    ],
)
def test_types_that_a_role_can_have(name: str, kind: str, as_text: bool) -> None:
    identity = "" if name == "id" else f"{ID}\n "
    made = define(
        f"class X(Inbox, table='jobs'):\n {identity}f: {kind} = role.{name}()", as_text=as_text
    )
    role, column = made["X"].spec.column_of("f")
    assert role.value == name
    assert column.type is eval(kind.removesuffix(" | None"), made) or name == "headers"


def test_a_type_that_is_not_known_yet_is_looked_up_later() -> None:
    module = type(sys)("declared_later")
    sys.modules[module.__name__] = module
    try:
        source = (
            HEADER + f"class X(Inbox, table='jobs'):\n {ID}\n key: Later = role.partition_key()\n"
        )
        flags = future.annotations.compiler_flag
        exec(compile(source, "<declared>", "exec", flags, dont_inherit=True), vars(module))
        with pytest.raises(
            DeclarationError, match=r"(?s)'jobs'.*'Later' of field 'key'.*TYPE_CHECKING"
        ):
            _ = module.X.spec
        module.Later = float  # type: ignore[attr-defined]
        with pytest.raises(DeclarationError, match="field 'key' has the role partition_key"):
            _ = module.X.spec
        module.Later = bytes  # type: ignore[attr-defined]
        assert module.X.spec.partition_key.type is bytes
    finally:
        del sys.modules[module.__name__]


BY_HAND: dict[str, tuple[Callable[[], InboxSpec], list[str]]] = {
    "no id": (lambda: InboxSpec("jobs", id=None), ["'jobs'", "id=Column('id'"]),  # type: ignore[arg-type]
    "a name for a column": (
        lambda: InboxSpec("jobs", id=Column("id"), group="name"),  # type: ignore[arg-type]
        ["'jobs'", "group", "Column('name')"],
    ),
    "a column twice": (
        lambda: InboxSpec("jobs", id=Column("id"), group=Column("id")),
        ["'jobs'", "'id' twice"],
    ),
    "a type that the role cannot have": (
        lambda: InboxSpec("jobs", id=Column("id"), attempt=Column("n", type=str)),
        ["'jobs'", "'n'", "attempt", "str", "int"],
    ),
    "fifo without groups": (
        lambda: InboxSpec("jobs", id=Column("id"), fifo=True),
        ["'jobs'", "fifo needs a group"],
    ),
    "a payload with a default": (
        lambda: InboxSpec("jobs", id=Column("id"), payload=Column("body", default=b"")),
        ["'jobs'", "'body'", "neither generated"],
    ),
    "a field for no column": (
        lambda: InboxSpec("jobs", id=Column("id"), fields={"a": "b"}),
        ["'jobs'", "'a'", "'b'", "not described"],
    ),
    "two columns by one name": (
        lambda: InboxSpec("jobs", id=Column("id"), columns=(Column("a"),), fields={"id": "a"}),
        ["'jobs'", "two columns go by one name"],
    ),
    "an empty schema": (lambda: InboxSpec("jobs", schema="", id=Column("id")), ["schema"]),
}


@pytest.mark.parametrize("wrong", BY_HAND)
def test_wrong_descriptions_by_hand(wrong: str) -> None:
    make, pieces = BY_HAND[wrong]
    with pytest.raises(DeclarationError) as caught:
        make()
    for piece in pieces:
        assert piece in str(caught.value)
