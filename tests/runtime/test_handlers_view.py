"""What a handler sees: row mode, headers, the delivery's fields; and tables described by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Bare,
    Handler,
    Job,
    Work,
    count,
    create,
    observed,
    put,
    serve,
)

from inboxkit import (
    Column,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    events,
    insert_rows,
    retry,
    retry_after,
    role,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock


class Signup(Inbox, table="signups"):
    """Its rows are their own messages."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    email: str
    age: int | None = None


class Headed(Inbox, table="headed"):
    """Headers beside the message."""

    id: int = role.id(generated=True)
    account: str = role.partition_key(default="none")
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()


BY_HAND = InboxSpec(
    "jobs",
    id=Column("id", generated=True),
    group=Column("name"),
    priority=Column("priority", default=5),
    retry_after=Column("retry_after", default=None),
    attempt=Column("attempt", generated=True),
    locked_until=Column("locked_until"),
    payload=Column("payload"),
)
WAYS = {"class": Job, "by hand": BY_HAND}


async def test_row_mode_hands_out_the_row_itself(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Signup)
    queue: InboxQueue[Signup, Signup] = InboxQueue(Signup, "signups", Signup)
    seen: list[Any] = []

    async def greet(signup: Signup, delivery: Delivery) -> Any:
        seen.append((signup.email, signup.age, delivery.attempt, delivery.row is signup))
        return retry() if delivery.attempt == 1 else None

    async with TestApp(serve(inbox_database, queue, greet)) as app:
        await app.publish(queue, Signup(email="ann@example.com", age=7))
        async with inbox_database.transaction() as tx:
            await insert_rows(tx, Signup(email="bob@example.com"))
        await app.settle()
        assert await count(inbox_database, Signup) == 0
    assert seen == [
        ("ann@example.com", 7, 1, True),
        ("ann@example.com", 7, 2, True),
        ("bob@example.com", None, 1, True),
        ("bob@example.com", None, 2, True),
    ]


async def test_headers_travel_beside_the_message(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Headed)
    queue = InboxQueue(Headed, "headed", Work)
    handler = Handler()
    headers = {"trace": "é\u2028", "": "empty", "n": ""}
    async with TestApp(serve(inbox_database, queue, handler)) as app:
        await app.publish(queue, Work(1), headers=headers)
        await app.publish(queue, Work(2))
        seen = [dict(delivery.headers) for delivery in handler.deliveries]
        assert seen == [headers, {}]


async def test_headers_that_cannot_be_read_are_a_decode_failure(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Headed)
    queue = InboxQueue(Headed, "headed", Work)
    for broken in ("[1]", '"text"', '{"a": 1}'):
        await inbox_database.execute(
            "INSERT INTO headed (account, headers, payload) VALUES ('x', $1, $2)",
            broken,
            b'{"n": 1}',
        )
    await put(inbox_database, queue, 2)
    handler = Handler()
    async with TestApp(serve(inbox_database, queue, handler, workers=9)) as app:
        await app.settle()
        assert handler.numbers == [2]
    assert len(timeline.of(events.Failed)) == 3


async def test_the_delivery_tells_what_is_known(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Headed)
    queue = InboxQueue(Headed, "headed", Work)
    handler = Handler()
    async with TestApp(serve(inbox_database, queue, handler)) as app:
        id = await app.publish(queue, Work(1), account="ann", headers={"a": "b"})
        delivery = handler.deliveries[0]
        assert (delivery.id, delivery.attempt, delivery.group, delivery.key) == (id, 1, None, "ann")
        assert delivery.message == Work(1)
        assert delivery.row.account == "ann"
        assert delivery.queue is queue
        assert delivery.database is inbox_database
        assert delivery.clock is virtual_clock
        assert delivery.state is None
        assert delivery.deadline == virtual_clock.start + timedelta(seconds=27)
        assert "headed" in repr(delivery)


async def test_reading_the_attempt_of_a_table_without_names_the_cure(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Bare)
    queue = InboxQueue(Bare, "bare", Work)
    handler = Handler()
    async with TestApp(serve(inbox_database, queue, handler)) as app:
        await app.publish(queue, Work(1))
        with pytest.raises(DeclarationError, match=r"role\.attempt"):
            _ = handler.deliveries[0].attempt


@pytest.mark.parametrize("way", WAYS)
async def test_both_ways_to_describe_a_table_are_equal(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, way: str
) -> None:
    """One life with everything in it, told by its events."""
    await create(inbox_database, Job)
    kind: Any = WAYS[way]
    queue: InboxQueue[Any, Any] = InboxQueue(kind, "jobs", Work)
    dead: InboxQueue[Any, Any] = InboxQueue(kind, "jobs.dead", Work)
    answers = {
        1: None,
        2: retry_after(5 * SECOND),
        3: ValueError("no"),
        4: 40,
        5: retry(),
    }
    handler = Handler(by=answers)
    app = serve(inbox_database, queue, handler, workers=5, max_attempts=2, dead_letter=dead)
    async with TestApp(app) as running:
        for n in (1, 2, 3):
            await running.broker.publish(queue, Work(n), priority=n)
        async with inbox_database.transaction() as tx:
            await insert_rows(tx, kind.of(Work(4), name="jobs"))
            await running.broker.publish("jobs", Work(5), within=tx)
        later = virtual_clock.now() + MINUTE
        await running.publish("jobs", Work(1), retry_after=later)
        await running.advance(2 * MINUTE)
        assert await running.pending(kind) == []
        rows = await running.dead(kind)
        payloads = [row["payload"] if way == "by hand" else row.payload for row in rows]
        assert payloads == [b'{"n":2}', b'{"n":3}', b'{"n":5}']
        value = (lambda row, name: row[name]) if way == "by hand" else getattr
        assert {value(row, "attempt") for row in rows} == {3}
        row = next(d.row for d in handler.deliveries if d.id == 1)
        assert value(row, "priority") == 1
    told = [
        (type(event).__name__, getattr(event, "id", None), getattr(event, "attempt", None))
        for event in timeline
        if not isinstance(event, events.Renewed)
    ]
    assert sorted(told, key=repr) == sorted(EXPECTED, key=repr)
    assert len(observed(inbox_database).recording.transactions("renew")) == 2
    assert isinstance(row, Mapping) == (way == "by hand")


EXPECTED = [
    ("Started", None, None),
    *[("Published", n, None) for n in (1, 2, 3, 5, 6)],
    *[("Claimed", n, 1) for n in range(1, 7)],
    *[("Claimed", n, 2) for n in (2, 3, 5)],
    ("Finished", 1, 1),
    ("Retried", 2, 1),
    ("DeadLettered", 2, 2),
    ("Failed", 3, 1),
    ("Retried", 3, 1),
    ("Failed", 3, 2),
    ("DeadLettered", 3, 2),
    ("Finished", 4, 1),
    ("Retried", 5, 1),
    ("DeadLettered", 5, 2),
    ("Finished", 6, 1),
    ("Stopped", None, None),
]


async def test_a_table_described_by_hand_in_row_mode(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    spec = InboxSpec(
        "signups",
        id=Column("id", generated=True),
        attempt=Column("attempt", generated=True),
        locked_until=Column("locked_until"),
        columns=[Column("email"), Column("age", default=None)],
    )
    await create(inbox_database, Signup)
    queue: InboxQueue[Any, Any] = InboxQueue(spec, "signups")
    seen: list[Any] = []

    async def greet(signup: Mapping[str, Any], delivery: Delivery) -> None:
        seen.append((signup["email"], delivery.row["age"]))

    async with TestApp(serve(inbox_database, queue, greet)) as app:
        await app.publish(queue, spec.of(email="ann@example.com"))
    assert seen == [("ann@example.com", None)]
    assert HOUR > MINUTE
