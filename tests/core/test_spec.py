from __future__ import annotations

import pytest

from inboxkit._core.roles import AUTOMATIC
from inboxkit._core.spec import MISSING, Column, InboxSpec, Role
from inboxkit.errors import DeclarationError

SPEC = InboxSpec(
    "jobs",
    id=Column("id", generated=True),
    group=Column("queue"),
    locked_until=Column("locked_until"),
    payload=Column("body"),
    columns=(Column("note", default="n"),),
    fields={"name": "queue"},
)


def test_columns_are_found_by_field_and_by_name() -> None:
    assert SPEC.column_of("name") == (Role.GROUP, Column("queue"))
    assert SPEC.column_of("queue") == (Role.GROUP, Column("queue"))
    assert SPEC.column_of("body") == (Role.PAYLOAD, Column("body"))
    assert SPEC.column_of("nothing") is None
    assert SPEC.field_of(Column("queue")) == "name"
    assert SPEC.field_of(Column("note")) == "note"
    assert list(SPEC.names) == ["id", "name", "locked_until", "body", "note"]
    assert [SPEC.role_of(column) for column in SPEC.names.values()] == [
        role for role, _column in SPEC.roles()
    ]


@pytest.mark.parametrize(
    ("spec", "form"),
    [
        (InboxSpec("t", id=Column("id")), "row lock"),
        (InboxSpec("t", id=Column("id"), locked_until=Column("l")), "lease"),
        (InboxSpec("t", id=Column("id"), advisory_lock="t-{id}"), "advisory lock"),
        (InboxSpec("t", id=Column("id"), advisory_lock="whole table"), "advisory lock"),
    ],
)
def test_the_form_follows_from_the_description(spec: InboxSpec, form: str) -> None:
    assert spec.form == form


def test_what_was_given_is_kept_from_later_changes() -> None:
    fields = {"name": "queue"}
    columns = [Column("a")]
    spec = InboxSpec("t", id=Column("id"), group=Column("queue"), columns=columns, fields=fields)  # type: ignore[arg-type]
    fields["other"] = "id"
    columns.append(Column("b"))
    assert list(spec.names) == ["id", "name", "a"]
    assert hash(spec) == hash(
        InboxSpec("t", id=Column("id"), group=Column("queue"), columns=(Column("a"),))
    )


def test_defaults_of_columns() -> None:
    assert not Column("a").has_default
    assert Column("a", default=None).make_default() is None
    assert Column("a", default_factory=list).make_default() == []
    assert Column("a").default is MISSING
    assert repr(MISSING) == "MISSING"


def test_columns_that_inboxkit_fills() -> None:
    spec = InboxSpec(
        "t",
        id=Column("id", generated=True),
        attempt=Column("n", default=1),
        processed_at=Column("p"),
        locked_until=Column("l", default=None),
    )
    assert spec.of().values == {"n": 1, "p": None, "l": None}
    assert AUTOMATIC == {Role.ATTEMPT: 1, Role.PROCESSED_AT: None, Role.LOCKED_UNTIL: None}
    with pytest.raises(DeclarationError, match="attempt is always 1"):
        InboxSpec("t", id=Column("id"), attempt=Column("n", default=0))
    with pytest.raises(DeclarationError, match="locked_until is always None"):
        InboxSpec("t", id=Column("id"), locked_until=Column("l", default_factory=list))


def test_every_missing_column_is_named() -> None:
    spec = InboxSpec("t", id=Column("id"), group=Column("queue"), fields={"name": "queue"})
    with pytest.raises(TypeError, match=r"needs a value for 'id' .* and 'name'"):
        spec.of()
