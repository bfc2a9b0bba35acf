"""What cannot be read stays a row: counted, backed off, in the dead letter at the cap, its place named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from inboxkit import (
    Backoff,
    Broker,
    Column,
    Database,
    DecodeError,
    Inbox,
    InboxQueue,
    InboxSpec,
    Service,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock

SECRET = "hunter2"
CAP = 3
BACKOFF = Backoff.fixed(timedelta(minutes=1))


@dataclass
class Line:
    price: int


@dataclass
class Order:
    number: int
    lines: list[Line]


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Typed(TypedDict):
    a: dict[str, int]


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    heads: str = role.column(default="{}")
    payload: bytes = role.payload()


BY_HAND = InboxSpec(
    "jobs",
    id=Column("id", generated=True, type=int),
    group=Column("name"),
    retry_after=Column("due", default=None),
    attempt=Column("attempt", generated=True),
    locked_until=Column("locked_until"),
    headers=Column("heads"),
    payload=Column("payload", type=bytes),
)

UNREADABLE: dict[str, tuple[Any, bytes, str]] = {
    "wrong type": (
        Order,
        b'{"number": 1, "lines": [{"price": 2}, {"price": "hunter2"}]}',
        "$.lines[1].price",
    ),
    "missing field": (Order, b'{"number": 1, "lines": [{}]}', "$.lines[0]"),
    "unknown field": (Struct, b'{"a": 1, "hunter2": 2}', "$"),
    "wrong value of a mapping": (Typed, b'{"a": {"hunter2": "hunter2"}}', "$.a[...]"),
    "other type": (Order, b'["hunter2"]', "$"),
    "no JSON": (Order, b"hunter2", "$"),
    "cut off": (Order, b'{"number": 1, "lines": ["hunter2', "$"),
    "empty": (Order, b"", "$"),
    "no UTF-8 for a str": (str, b"hunter2\xff", "$"),
    "no UTF-8 in JSON": (Order, b'{"number": "hunter2\xff"}', "$"),
    "number out of range": (list[int], b"[1, 1e400]", "$"),
    "too deep": (list[Any], b"[" * 100_000 + b"]" * 100_000, "$"),
}


def service(db: Database, row: Any, message: Any) -> Service:
    app = Service("service", Broker(db))

    async def create_schema(db: Database) -> None:
        for statement in create_table(get_dialect(db.dialect), Jobs.spec):
            await db.execute(statement)

    async def handle(message) -> None:  # type: ignore[no-untyped-def]
        raise AssertionError("nothing can be read")

    app.on_startup(create_schema)
    queue: InboxQueue[Any, Any] = InboxQueue(row, "orders", message)
    app.include(
        subscriber(queue)(handle),
        max_attempts=CAP,
        dead_letter="orders.dead",
        on_decode_error=BACKOFF,
    )
    return app


@pytest.mark.parametrize("row", [Jobs, BY_HAND], ids=["class", "by hand"])
@pytest.mark.parametrize("case", UNREADABLE)
async def test_unreadable_payload_is_counted_backed_off_and_kept(
    case: str,
    row: Any,
    inbox_database: Database,
    frozen_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    message, payload, place = UNREADABLE[case]
    db = inbox_database
    async with TestApp(service(db, row, message)) as app:
        for key in ("orders", "other"):
            await db.execute(
                "INSERT INTO jobs (name, heads, payload) VALUES ($1, '{}', $2)", key, payload
            )
        app.broker.wake("orders")
        await app.settle()
        for attempt in range(1, CAP):
            (stored, _other) = await app.rows(Jobs)
            assert stored.name == "orders"
            assert stored.attempt == attempt + 1
            assert stored.due == frozen_clock.now() + timedelta(minutes=1)
            assert stored.payload == payload
            assert len(errors(caplog)) == attempt
            await app.advance(timedelta(minutes=1))
        (dead, other) = await app.rows(Jobs)
        assert (dead.name, dead.attempt, dead.payload) == ("orders.dead", CAP + 1, payload)
        assert (other.name, other.attempt, other.payload) == ("other", 1, payload)
        app.subscriber("orders").assert_not_called()
    found = errors(caplog)
    assert len(found) == CAP
    for error in found:
        assert (error.queue, error.id) == ("orders", dead.id)
        assert error.where.startswith(place)
        assert "queue 'orders'" in str(error)
        assert f"row {dead.id}" in str(error)
    assert SECRET not in caplog.text


def errors(caplog: pytest.LogCaptureFixture) -> list[DecodeError]:
    found = [record.exc_info[1] for record in caplog.records if record.exc_info]
    return [error for error in found if isinstance(error, DecodeError)]


async def test_unreadable_headers_are_a_failure_that_names_the_column(
    inbox_database: Database, frozen_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db = inbox_database
    async with TestApp(service(db, BY_HAND, Order)) as app:
        await db.execute(
            "INSERT INTO jobs (name, heads, payload) VALUES ('orders', $1, $2)",
            '{"hunter2": 7}',
            b'{"number": 1, "lines": []}',
        )
        app.broker.wake("orders")
        await app.settle()
        await app.advance(timedelta(minutes=CAP))
        (dead,) = await app.dead(BY_HAND)
        assert (dead["name"], dead["attempt"]) == ("orders.dead", CAP + 1)
        with pytest.raises(DecodeError, match="column 'heads'"):
            _ = dead["heads"]
    assert {error.where for error in errors(caplog)} == {"heads"}
    assert SECRET not in caplog.text


def test_no_case_is_lost() -> None:
    assert len(UNREADABLE) == 12
