"""Columns at their limits, through a whole service: what they hold comes to the handler as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    NewRow,
    Outcome,
    Service,
    ack,
    insert_rows,
    retry,
    retry_after,
    role,
    subscriber,
)
from inboxkit_testing import TestApp, VirtualClock

TIMES = {"sqlite": "TEXT", "postgres": "timestamptz", "mysql": "datetime(6)"}
BYTES = {"sqlite": "BLOB", "postgres": "bytea", "mysql": "longblob"}
IDS = {
    "sqlite": "id INTEGER PRIMARY KEY",
    "postgres": "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "id bigint AUTO_INCREMENT PRIMARY KEY",
}
END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Texts(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: str = role.payload()


class Rows(Inbox, table="jobs"):
    """A table without payload: the row is the message."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    email: str
    amount: int | None = None


async def make(db: Database, *columns: str, lease: str | None = None) -> None:
    kinds = [IDS[db.dialect], f"lease {lease or TIMES[db.dialect]}", *columns]
    await db.execute(f"CREATE TABLE jobs ({', '.join(kinds)})")


def serve(db: Database, queue: InboxQueue[Any, Any], answer: Any) -> tuple[Service, list[Any]]:
    """A service that answers each delivery by what `answer` makes of it."""
    seen: list[Any] = []

    @subscriber(queue)
    async def handle(message, delivery: Delivery) -> Outcome:  # type: ignore[no-untyped-def]
        seen.append((message, delivery.attempt))
        outcome: Outcome = answer(delivery)
        return outcome

    app = Service("service", Broker(db))
    app.include(handle)
    return app, seen


async def test_times_at_the_end_of_the_calendar(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, f"due {TIMES[db.dialect]}", "attempt integer NOT NULL DEFAULT 1",
               f"payload {BYTES[db.dialect]}")  # fmt: skip
    app, seen = serve(db, InboxQueue(Jobs, "q", bytes), lambda _: retry_after(timedelta.max))
    async with TestApp(app) as kit:
        await kit.publish("q", b"never", due=END_OF_TIME)
        assert seen == []
        await kit.publish("q", b"later")
        await kit.advance(timedelta(seconds=5))
        assert seen == [(b"later", 1)]
        first, second = await kit.rows(Jobs)
    assert first.due == END_OF_TIME
    assert second.due is not None
    assert second.due.year == 9999


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint"])
async def test_attempts_saturate(
    kind: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    largest = {"smallint": 2**15 - 1, "integer": 2**31 - 1, "bigint": 2**63 - 1}[kind]
    if db.dialect == "sqlite":
        largest = 2**63 - 1  # every integer of SQLite is as wide
    await make(db, f"due {TIMES[db.dialect]}", f"attempt {kind} NOT NULL DEFAULT {largest - 1}",
               f"payload {BYTES[db.dialect]}")  # fmt: skip
    answers = iter([retry(), retry(), retry(), ack()])
    app, seen = serve(db, InboxQueue(Jobs, "q", bytes), lambda _: next(answers))
    async with TestApp(app) as kit:
        await kit.publish("q", b"x")
        await kit.settle()
        assert [attempt for _, attempt in seen] == [largest - 1, largest, largest, largest]
        assert await kit.rows(Jobs) == []


async def test_attempt_of_null_reads_one(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, f"due {TIMES[db.dialect]}", "attempt integer", f"payload {BYTES[db.dialect]}")
    answers = iter([retry(), ack()])
    app, seen = serve(db, InboxQueue(Jobs, "q", bytes), lambda _: next(answers))
    async with TestApp(app) as kit:
        await kit.publish("q", b"x")
        await kit.settle()
        assert seen == [(b"x", 1), (b"x", 2)]
        assert await kit.rows(Jobs) == []


KINDS = [("text", "text"), ("varchar(99)", "varchar(99)"), ("json", "json"), ("jsonb", "jsonb")]


@pytest.mark.parametrize(("payload", "headers"), KINDS)
async def test_messages_and_headers_in_text_and_json_columns(
    payload: str, headers: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    if db.dialect == "sqlite" and payload.startswith("json"):
        payload = "TEXT"  # its JSON is a number's column, which start-up refuses for a payload
    if db.dialect == "mysql" and payload == "jsonb":
        payload = headers = "longtext"  # these have one JSON
    await make(db, f"payload {payload} NOT NULL", f"heads {headers} NOT NULL",
               "attempt integer NOT NULL DEFAULT 1")  # fmt: skip
    queue = InboxQueue(Texts, "q", dict[str, Any])
    heads: list[Any] = []

    def answer(delivery: Delivery) -> Outcome:
        heads.append(delivery.headers)
        return retry() if delivery.attempt == 1 else ack()

    app, seen = serve(db, queue, answer)
    message = {"a": [1, None, 0.5, "é\N{GRINNING FACE}"], "b": {"c": "\\ \" '"}}
    async with TestApp(app) as kit:
        await kit.publish(queue, message, heads={"trace": "1.0", "é": ""})
        await kit.settle()
        assert seen == [(message, 1), (message, 2)]
        assert heads == [{"trace": "1.0", "é": ""}] * 2
        assert await kit.rows(Texts) == []


@pytest.mark.parametrize("by_hand", [False, True], ids=["class", "by hand"])
async def test_rows_that_are_their_own_message(
    by_hand: bool, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, "attempt integer NOT NULL DEFAULT 1", "email text NOT NULL", "amount integer")
    queue: InboxQueue[Any, Any] = InboxQueue(Rows.spec if by_hand else Rows, "q")
    answers = iter([retry(), ack(), ack(), ack()])
    app, seen = serve(db, queue, lambda _: next(answers))
    new: NewRow | Rows = Rows.spec.of(email="b") if by_hand else Rows(email="b")
    async with TestApp(app) as kit:
        await kit.publish("q", Rows(email="a", amount=3))
        async with db.transaction() as tx:
            await insert_rows(tx, new)
        await kit.settle()
        found = [(m["email"], m["amount"]) if by_hand else (m.email, m.amount) for m, _ in seen]
        assert found == [("a", 3), ("a", 3), ("b", None)]
        assert [attempt for _, attempt in seen] == [1, 2, 1]
        assert await kit.rows(Rows) == []


@pytest.mark.parametrize("digits", [0, 3, 6])
async def test_lease_column_of_any_precision(
    digits: int, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    lease = f"timestamptz({digits})" if db.dialect == "postgres" else f"DATETIME({digits})"
    await make(db, f"due {TIMES[db.dialect]}", "attempt integer NOT NULL DEFAULT 1",
               f"payload {BYTES[db.dialect]}", lease=lease)  # fmt: skip
    queue = InboxQueue(Jobs, "q", bytes, lease=timedelta(seconds=4))
    lost: list[bool] = []

    @subscriber(queue)
    async def handle(message: bytes, delivery: Delivery) -> Outcome:
        await delivery.clock.sleep(11.111)
        lost.append(delivery.lost.is_set())
        return retry() if delivery.attempt == 1 else ack()

    app = Service("service", Broker(db))
    app.include(handle)
    async with TestApp(app) as kit:
        await virtual_clock.sleep(0.123456)
        await kit.publish("q", b"x")
        await kit.advance(timedelta(seconds=30))
        assert lost == [False, False]
        assert await kit.rows(Jobs) == []
