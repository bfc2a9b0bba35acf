"""One subscription for all groups of a table without leases: a group by each connection, and none held up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from database_cells import on
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Handler,
    Watch,
    Work,
    another,
    count,
    fill,
    killed,
    put,
    serve,
    table,
)

from inboxkit import (
    Backoff,
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    TransactionalDelivery,
    role,
    subscriber,
)
from inboxkit.every_group import EveryGroup
from inboxkit_testing import TestApp, VirtualClock

pytestmark = on("postgres", "mariadb", "mysql", once=["mysql"])


class Mail(Inbox, table="locked_group_mails"):
    """Groups, and due times."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Line(Inbox, table="locked_group_lines"):
    """FIFO groups."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Bare(Inbox, table="locked_group_bare"):
    """Groups, and no column that could keep a back-off."""

    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


MAILS = InboxQueue.every_group(Mail, Work)
LINES = InboxQueue.every_group(Line, Work)
BARE = InboxQueue.every_group(Bare, Work)


def in_use(database: Any) -> int:
    """Sessions of the pool that are lent."""
    return len(database._pool._holders)


@pytest.mark.parametrize(("queue", "workers"), [(MAILS, 1), (LINES, 3)], ids=["plain-1", "fifo-3"])
async def test_groups_take_turns(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: EveryGroup[Any, Any],
    workers: int,
) -> None:
    await fill(inbox_database, queue, "abc", 4)
    handler = Watch(1)
    app = serve(inbox_database, queue, handler, workers=workers, poll_interval=HOUR)
    async with TestApp(app) as running:
        await running.advance(timedelta(seconds=12 / workers + 0.5))
        turns = (sorted(handler.groups[n : n + workers]) for n in range(0, 12, workers))
        assert "".join(group for turn in turns for group in turn) == "abc" * 4
        assert (handler.most, handler.most_of_a_group) == (workers, 1)
        assert [handler.numbers_of(group) for group in "abc"] == [list(range(4))] * 3
        assert await count(inbox_database, queue.row) == 0
        await put(inbox_database, queue.group("new"), 7)
        await put(inbox_database, queue.group("other"), 8)
        app.broker.wake(queue)
        await running.advance(3 * SECOND)
        assert handler.groups[12:] == ["new", "other"]
    assert in_use(inbox_database) == 0


async def test_services_share_fifo_groups(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Two, and a third that serves one of the groups by itself; and one that was killed."""
    await fill(inbox_database, LINES, "abcd", 4)
    async with (
        another(inbox_database, "victim") as victim,
        killed(serve(victim, LINES, Handler(HOUR.total_seconds()), workers=3)),
    ):
        await virtual_clock.advance(SECOND)
        assert in_use(victim) >= 3
    handler = Watch(0.5)
    second, third = another(inbox_database, "second"), another(inbox_database, "third")
    async with (
        second,
        third,
        serve(inbox_database, LINES, handler, workers=3).running(),
        serve(second, LINES, handler, workers=3, name="second").running(),
        serve(third, LINES.group("a"), handler, name="third").running(),
    ):
        await virtual_clock.advance(12 * SECOND)
    assert [handler.numbers_of(group) for group in "abcd"] == [list(range(4))] * 4
    assert (handler.most_of_a_group, handler.most) == (1, 4)


@pytest.mark.parametrize("queue", [LINES, BARE], ids=["fifo", "plain"])
async def test_a_poisoned_group_stops_no_other(
    inbox_database: Database, virtual_clock: VirtualClock, queue: EveryGroup[Any, Any]
) -> None:
    """It rests between its attempts; others go on, by the same worker."""
    await fill(inbox_database, queue, "abc", 3)

    async def poison(delivery: Any) -> Any:
        if delivery.group == "a":
            raise ValueError("no")

    handler, own = Watch(by={0: poison}), Watch()
    app = serve(
        inbox_database,
        queue,
        handler,
        max_attempts=2,
        dead_letter="{group}.dead",
        on_error=Backoff.fixed(5 * SECOND),
        poll_interval=HOUR,
    )
    app.include(subscriber(queue.group("own"))(own))  # type: ignore[arg-type]
    await put(inbox_database, queue.group("own"), 5)
    async with TestApp(app) as running:
        await running.settle()
        assert sorted(handler.groups) == list("abbbccc")
        assert own.groups == ["own"]
        await put(inbox_database, queue.group("d"), 4)
        app.broker.wake(queue)
        await running.advance(4 * SECOND)
        assert handler.groups[7:] == ["d"], "a rests still"
        await running.advance(2 * SECOND)
        assert handler.numbers_of("a") == [0, 0, 1, 2]
        assert round(handler.times[8]) == 5, "woken in time, without a poll"
        await running.advance(MINUTE)
        assert await table(inbox_database, queue.row, "name") == [("a.dead",)]
        assert len(handler.runs) == 11
    assert in_use(inbox_database) == 0


async def test_a_killed_session_frees_its_group(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await fill(inbox_database, LINES, "ab", 1)
    handler = Watch(5)
    async with TestApp(serve(inbox_database, LINES, handler, workers=2)) as running:
        await running.settle()
        sessions = [connection for connection, _ in inbox_database._pool._holders.values()]  # type: ignore[union-attr]
        assert len(sessions) == 2
        sessions[0].terminate()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await running.advance(20 * SECOND)
        assert sorted(handler.groups) in (["a", "a", "b"], ["a", "b", "b"])
        assert handler.most_of_a_group == 1
        assert await count(inbox_database, Line) == 0


@pytest.mark.parametrize("queue", [LINES, MAILS], ids=["fifo", "plain"])
async def test_batches_are_of_one_group(
    inbox_database: Database, virtual_clock: VirtualClock, queue: EveryGroup[Any, Any]
) -> None:
    """Of a FIFO group its head."""
    await fill(inbox_database, queue, "ab", 3)
    calls: list[str] = []

    @subscriber(queue, batch=2)
    async def handle(deliveries: list[Delivery[Any, Work]]) -> None:
        calls.append("".join(f"{one.group}{one.message.n}" for one in deliveries))

    app = Service("service", Broker(inbox_database))
    app.include(handle)
    async with TestApp(app) as running:
        await running.settle()
        heads = ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert calls == (heads if queue is LINES else ["a0a1", "b0b1", "a2", "b2"])
        assert await count(inbox_database, queue.row) == 0


async def test_a_transactional_handler_commits_with_its_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """And what a failed one wrote is gone, while the next of its group waits."""
    await fill(inbox_database, LINES, "ab", 2)
    await inbox_database.execute("CREATE TABLE done (name varchar(9), n integer)")

    @subscriber(LINES, transactional=True)
    async def handle(work: Work, delivery: TransactionalDelivery[Any, Work]) -> None:
        await delivery.tx.execute("INSERT INTO done VALUES ($1, $2)", delivery.group, work.n)
        if (delivery.group, delivery.attempt) == ("a", 1):
            raise ValueError("no")

    app = Service("service", Broker(inbox_database))
    app.include(handle, on_error=Backoff.fixed(3 * SECOND))
    async with TestApp(app) as running:
        await running.settle()
        written = "SELECT name, n FROM done ORDER BY name, n"
        assert [tuple(row) for row in await inbox_database.fetch(written)] == [("b", 0), ("b", 1)]
        await running.advance(MINUTE)
        rows = [tuple(row) for row in await inbox_database.fetch(written)]
        assert rows == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert await count(inbox_database, Line) == 0
