"""A world whose service serves every group of its tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    events,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import InvariantViolation, World
from inboxkit_testing._facts import key_of

SECOND = timedelta(seconds=1)
Start = Callable[[Callable[[Database], Service]], Awaitable[World]]


class Jobs(Inbox, table="tenant_jobs"):
    id: int = role.id(generated=True)
    tenant: str = role.group()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Orders(Inbox, table="tenant_orders"):
    id: int = role.id(generated=True)
    tenant: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue.every_group(Jobs, bytes, lease=10 * SECOND)
ORDERS = InboxQueue.every_group(Orders, bytes, lease=10 * SECOND)


def service(database: Database) -> Service:
    """All groups of two tables, one of them by a subscription of its own."""

    async def handle(message: bytes, delivery: Delivery) -> None:
        await delivery.clock.sleep(3)
        if message == b"fails":
            raise RuntimeError

    app = Service("tenants", Broker(database, poll_interval=SECOND))
    for queue in (JOBS, ORDERS):
        one = subscriber(queue)(handle)
        app.include(one, workers=2, max_attempts=2, dead_letter="{group}.dead")
    app.include(subscriber(JOBS.group("c"))(handle))
    return app


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend"), [("sqlite", "asyncio"), ("postgres", "trio")]
)
async def test_every_group_is_drained_and_judged(
    inbox_world: Start, inbox_database: Database, crashes: bool
) -> None:
    for row in (Jobs, Orders):
        for statement in create_table(get_dialect(inbox_database.dialect), row.spec):
            await inbox_database.execute(statement)
    world = await inbox_world(service)
    await world.start("a")
    await world.start("b")
    for message in (b"one", b"fails", b"two"):
        for group in "abc":  # the same names, and ids, in both tables
            await world.publish(JOBS.group(group), message if group != "c" else b"one")
            await world.publish(ORDERS.group(group), message, by="a")
    await world.advance(2 * SECOND)
    if crashes:
        await world.crash("a")
    with pytest.raises(InvariantViolation, match=r"row \d+ of queue '[abc]'.*unfinished") as early:
        await world.drain(SECOND)
    assert early.value.queue in {"a", "b", "c"}
    await world.drain()
    for table, dead in ((Jobs, 2), (Orders, 3)):
        groups = [row.tenant for row in await world.rows(table)]
        assert sorted(groups) == [f"{group}.dead" for group in "abc"[:dead]]
    world.history.check_all(left=[])
    history = world.history.one_in_work_per_group(ORDERS.name).order_per_group(ORDERS.name)
    assert len(history.facts.lives) == 18
    # Without its end a row is missed, by the name that it was published to.
    timeline = world.timeline
    ends = [e for e in timeline.events if isinstance(e, events.Finished)]
    last = next(e for e in reversed(ends) if e.queue == ORDERS.name)
    for index in reversed(range(len(timeline.events))):
        event = timeline.events[index]
        if isinstance(event, events.RowEvent) and key_of(event) == key_of(last):
            del timeline.events[index], timeline.times[index]
    with pytest.raises(InvariantViolation, match=f"row {last.id} of queue '{last.group}'"):
        world.history.nothing_lost()
    world.history.nothing_lost(left={ORDERS.name: [last.id]})
    # The lines of a timeline tell whose row it is.
    places = {line.split()[1] for line in timeline.lines() if "claimed" in line}
    assert {"b/a", "b/c"} <= places
    assert not any(name in place for name in (JOBS.name, ORDERS.name) for place in places)
