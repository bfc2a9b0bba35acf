"""Rows: how they are made, read and inserted; by class and by hand alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, NewType
from uuid import UUID, uuid4

import pytest

from inboxkit import role
from inboxkit._core.spec import Column, InboxSpec
from inboxkit.errors import DeclarationError, DecodeError, EncodeError
from inboxkit.table import Inbox, NewRow, new_row, row_from

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Mail:
    to: str


class SendMail(Inbox, table="mail_jobs", schema="app"):
    """One mail."""

    id: int = role.id(generated=True)
    name: str = role.group()
    priority: int = role.priority("urgency", default=10)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload("body")
    tags: list[str] = role.column(default_factory=list)
    spec_: str = role.column("spec", default="v1")
    note: str = ""
    limit: ClassVar[int] = 3


BY_HAND = InboxSpec(
    "mail_jobs",
    schema="app",
    id=Column("id", generated=True, type=int),
    group=Column("name", type=str),
    priority=Column("urgency", default=10, type=int),
    retry_after=Column("retry_after", default=None, type=datetime),
    attempt=Column("attempt", generated=True, type=int),
    processed_at=Column("processed_at", type=datetime),
    locked_until=Column("locked_until", type=datetime),
    headers=Column("headers", default_factory=dict, type=dict[str, str]),
    payload=Column("body", type=bytes),
    columns=(
        Column("tags", default_factory=list, type=list[str]),
        Column("spec", default="v1", type=str),
        Column("note", default="", type=str),
    ),
    fields={"priority": "urgency", "payload": "body", "spec_": "spec"},
)


def test_a_class_and_a_description_by_hand_are_equal() -> None:
    assert SendMail.spec == BY_HAND
    assert hash(SendMail.spec) == hash(BY_HAND)
    assert SendMail.spec.name == "app.mail_jobs"
    assert SendMail.spec.form == "lease"


def test_the_spec_is_frozen() -> None:
    with pytest.raises(AttributeError):
        SendMail.spec.table = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        SendMail.spec.fields["x"] = "y"  # type: ignore[index]


@pytest.mark.parametrize("of", [SendMail.of, BY_HAND.of], ids=["class", "by hand"])
def test_a_message_becomes_a_row(of: Callable[..., Inbox | NewRow]) -> None:
    row = new_row(of(Mail("a@b"), name="mails", priority=1, spec_="v2"))
    assert row.spec == BY_HAND
    assert row.values == {
        "name": "mails",
        "urgency": 1,
        "retry_after": None,
        "processed_at": None,
        "locked_until": None,
        "headers": {},
        "body": b'{"to":"a@b"}',
        "tags": [],
        "spec": "v2",
        "note": "",
    }


@pytest.mark.parametrize("of", [SendMail.of, BY_HAND.of], ids=["class", "by hand"])
def test_default_factories_are_called_for_each_row(of: Callable[..., Inbox | NewRow]) -> None:
    one, other = (new_row(of(Mail("a"), name="m")) for _ in range(2))
    assert one.values["tags"] is not other.values["tags"]


@pytest.mark.parametrize("of", [SendMail.of, BY_HAND.of], ids=["class", "by hand"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": "m", "prority": 1}, r"no column 'prority'; did you mean 'priority'\?"),
        ({"name": "m", "zzzz": 1}, r"no column 'zzzz'; it has 'id', "),
        ({"name": "m", "urgency": 1}, r"no column 'urgency'"),
        ({"name": "m", "id": 1}, r"column 'id' .* is filled by the database; leave it out"),
        ({"name": "m", "attempt": 1}, r"column 'attempt' .* is filled by the database"),
        ({"name": "m", "locked_until": None}, r"'locked_until' .* is filled by inboxkit"),
        ({"name": "m", "payload": b""}, r"'payload' is the encoded message"),
        ({}, r"'name'"),
    ],
)
def test_columns_that_cannot_be_given(
    of: Callable[..., Inbox | NewRow], columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        of(Mail("a"), **columns)


@pytest.mark.parametrize("of", [SendMail.of, BY_HAND.of], ids=["class", "by hand"])
def test_a_message_that_cannot_be_encoded(of: Callable[..., Inbox | NewRow]) -> None:
    with pytest.raises(EncodeError, match=r"'app\.mail_jobs'.*\$\.prices\[1\]") as caught:
        of({"prices": [1.0, float("nan")]}, name="m")
    assert caught.value.table == "app.mail_jobs"
    assert caught.value.where == "$.prices[1]"


def test_a_description_by_hand_wants_its_message() -> None:
    with pytest.raises(TypeError, match="the message is missing"):
        BY_HAND.of(name="m")
    assert new_row(BY_HAND.of(None, name="m")).values["body"] == b"null"


def test_unknown_fields_say_that_the_row_was_not_inserted() -> None:
    row = SendMail.of(Mail("a"), name="m")
    for name in ("id", "attempt", "processed_at", "locked_until"):
        with pytest.raises(AttributeError, match=rf"SendMail\.{name} .*not inserted yet"):
            getattr(row, name)
    assert row.payload == b'{"to":"a"}'
    with pytest.raises(AttributeError, match=r"no attribute 'idd'"):
        row.idd  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"SendMail\.of\(message\)"):
        SendMail(name="m").payload  # noqa: B018


def test_a_row_without_its_message_is_not_inserted() -> None:
    with pytest.raises(TypeError, match=r"'payload' \(the message: make the row by of"):
        new_row(SendMail(name="m"))


def test_only_rows_are_inserted() -> None:
    with pytest.raises(TypeError, match=r"made by Row\.of\(message\)"):
        new_row(Mail("a"))  # type: ignore[arg-type]


def test_rows_are_keyword_only_dataclasses() -> None:
    assert [field.name for field in dataclasses.fields(SendMail)][:3] == ["id", "name", "priority"]
    with pytest.raises(TypeError):
        SendMail("m")  # type: ignore[call-arg]
    assert SendMail.limit == 3
    assert dataclasses.is_dataclass(SendMail)


def test_rows_compare_by_value_and_have_no_hash() -> None:
    assert SendMail.of(Mail("a"), name="m") == SendMail.of(Mail("a"), name="m")
    assert SendMail.of(Mail("a"), name="m") != SendMail.of(Mail("b"), name="m")
    assert SendMail.stored(id=1) != SendMail.stored(id=2)
    with pytest.raises(TypeError):
        hash(SendMail.stored(id=1))


def test_rows_can_be_copied_and_pickled() -> None:
    row = SendMail.of(Mail("a"), name="m")
    assert copy.deepcopy(row) == copy.copy(row) == pickle.loads(pickle.dumps(row)) == row


def test_a_repr_shows_no_long_payload() -> None:
    secret = "x" * 30 + "SECRET" + "x" * 100
    row = SendMail.of(Mail(secret), name="m", note=secret)
    for text in (repr(row), repr(new_row(row)), repr(row_from(BY_HAND, new_row(row).values))):
        assert "SECRET" not in text
        assert "(145 bytes)" in text
    assert repr(SendMail.stored(id=1, name="m")).startswith("SendMail(id=1, name='m', priority=10")


def test_stored_rows_may_hold_anything() -> None:
    row = SendMail.stored(id=7, attempt=4, payload=b"broken", priority=None)
    assert [row.id, row.attempt, row.payload, row.priority] == [7, 4, b"broken", None]
    assert (row.locked_until, row.spec_, row.tags) == (None, "v1", [])
    assert SendMail.stored().attempt == 1
    with pytest.raises(AttributeError):
        row.name  # noqa: B018
    with pytest.raises(TypeError, match=r"SendMail\.stored\(\): .*did you mean 'attempt'"):
        SendMail.stored(atempt=1)


def test_stored_rows_are_inserted_as_they_are() -> None:
    values = new_row(
        SendMail.stored(id=7, name="m", attempt=4, locked_until=NOW, payload=b"x")
    ).values
    assert (values["id"], values["attempt"], values["locked_until"]) == (7, 4, NOW)


READ: Mapping[str, Any] = {
    "id": 3,
    "name": "m",
    "urgency": 2,
    "attempt": 5,
    "locked_until": NOW,
    "processed_at": None,
    "retry_after": NOW,
    "headers": {},
    "body": b"{}",
    "tags": ["t"],
    "spec": "v9",
    "note": DecodeError("column 'note' is no text", where="note"),
    "not described": 1,
}


def test_rows_read_from_the_database() -> None:
    row = row_from(SendMail, READ)
    assert isinstance(row, SendMail)
    assert (row.id, row.priority, row.spec_, row.payload) == (3, 2, "v9", b"{}")
    with pytest.raises(DecodeError, match="no text"):
        row.note  # noqa: B018
    mapping = row_from(BY_HAND, READ)
    assert (mapping["id"], mapping["priority"], mapping["spec_"]) == (3, 2, "v9")
    assert "note" in mapping
    assert len(mapping) == 12
    with pytest.raises(DecodeError, match="no text"):
        mapping["note"]
    with pytest.raises(KeyError):
        mapping["nope"]


def test_a_row_that_was_read_is_inserted_anew() -> None:
    row = row_from(SendMail, {**READ, "note": "n"})
    values = new_row(row).values
    assert "id" not in values
    assert "attempt" not in values
    assert values["locked_until"] is None
    assert values["retry_after"] == NOW
    with pytest.raises(DecodeError):
        new_row(row_from(SendMail, READ))


def test_what_was_not_read_does_not_fall_back_to_a_default() -> None:
    with pytest.raises(AttributeError, match="was not read from the database"):
        row_from(SendMail, {"id": 3}).priority  # noqa: B018


class RowMode(Inbox, table="plain_jobs"):
    id: int = role.id(generated=True)
    target: str


def test_rows_of_a_table_without_payload_are_their_own_message() -> None:
    assert new_row(RowMode(target="x")).values == {"target": "x"}
    assert new_row(RowMode.spec.of(target="x")).values == {"target": "x"}
    with pytest.raises(TypeError, match=r"no payload.*RowMode\(…\)"):
        RowMode.of("message", target="x")
    with pytest.raises(TypeError, match="no payload"):
        RowMode.spec.of("message", target="x")


class Text(Inbox, table="text_jobs"):
    id: UUID = role.id(default_factory=uuid4)
    payload: str = role.payload()


def test_a_payload_column_of_text_takes_text() -> None:
    row = Text.of({"a": "é"})
    assert row.payload == '{"a":"é"}'
    assert isinstance(row.id, UUID)
    with pytest.raises(EncodeError, match="declare the column bytes"):
        Text.of(b"\xff")


class Upper:
    def encode(self, message: Any, /) -> bytes:
        if not isinstance(message, str):
            raise ValueError("secret")
        return message.upper().encode()

    def decode(self, payload: bytes, type: Any, /) -> Any:
        return payload.decode().lower()


class Shared(Inbox, schema="app", codec=Upper()):
    """A mixin: no table."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class One(Shared, table="one"):
    extra: str = ""


class Two(One, table="two", schema=None, advisory_lock="two-{id}-{extra}"):
    id: int = role.id()


def test_fields_and_settings_are_inherited() -> None:
    assert One.spec.name == "app.one"
    assert One.of("a").payload == b"A"
    assert list(One.spec.names) == ["id", "attempt", "payload", "extra"]
    assert Two.spec.name == "two"
    assert Two.spec.form == "advisory lock"
    assert Two.of("b", id=3).id == 3
    with pytest.raises(DeclarationError, match="Shared names no table"):
        _ = Shared.spec


def test_errors_of_a_codec_become_encode_errors() -> None:
    with pytest.raises(
        EncodeError, match=r"'app\.one': Upper could not encode .* int: ValueError"
    ) as e:
        One.of(3)
    assert "secret" not in str(e.value)
    assert isinstance(e.value.__cause__, ValueError)


UserId = NewType("UserId", int)


def test_new_types_and_local_types_are_seen_through() -> None:
    class Local:
        pass

    class Here(Inbox, table="here"):
        id: UserId = role.id(generated=True)  # type: ignore[assignment]
        other: Local | None = None

    assert Here.spec.id.type is int
    assert Here.spec.columns[0].type is Local


def test_odd_names_of_columns() -> None:
    class Odd(Inbox, table='we"ird.table', schema="Ünï code"):
        id: int = role.id('"id"')
        message: str = role.column("select 🚀")
        self: str = role.column("it's")
        cls: str = "x"

    assert Odd.spec.names["message"].name == "select 🚀"
    row = Odd(id=1, message="m", self="s")
    assert new_row(row).values == {'"id"': 1, "select 🚀": "m", "it's": "s", "cls": "x"}
