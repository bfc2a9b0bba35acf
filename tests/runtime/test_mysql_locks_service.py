"""The row lock form, the advisory lock form and every group through services on MariaDB."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import pytest
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Handler,
    Job,
    Work,
    another,
    count,
    create,
    killed,
    put,
    serve,
    table,
)

from inboxkit import Database, Inbox, InboxQueue, ack, drop, events, retry, retry_after, role
from inboxkit._sql.statement import Statement
from inboxkit_testing import TestApp, Timeline, VirtualClock

pytestmark = pytest.mark.parametrize("inbox_db", ["mariadb"])


class Mail(Inbox, table="row_locked_mails"):
    """Everything but FIFO and keys."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Line(Inbox, table="row_locked_lines"):
    """FIFO groups."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Posting(Inbox, table="keyed_postings", advisory_lock="account-{account}"):
    """Rows of one account are in work one at a time."""

    id: int = role.id(generated=True)
    account: str | None = role.column(default=None)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


MAILS = InboxQueue(Mail, "mails", Work)
LINE = InboxQueue(Line, "line", Work)
POSTINGS = InboxQueue(Posting, "postings", Work)
JOBS = InboxQueue.every_group(Job, Work)


def holders(database: Any) -> list[Any]:
    """Sessions of the pool that are lent."""
    return [connection for connection, _ in database._pool._holders.values()]


async def kill_holder(database: Database) -> None:
    """Kill the session that holds a row, and wait until it has ended."""
    (session,) = holders(database)
    asked = Statement("session", "SELECT CONNECTION_ID()")
    number = (await session.execute(asked)).rows[0][0]
    async with another(database, "administrator") as administrator:
        await administrator.execute("KILL $1", number)
        seen = "SELECT count(*) FROM information_schema.processlist WHERE id = $1"
        while await administrator.fetch_value(seen, number):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("kind", "queue"), [(Mail, MAILS), (Posting, POSTINGS)], ids=["row lock", "advisory"]
)
async def test_the_outcomes_and_what_they_leave(
    inbox_database: Database, virtual_clock: VirtualClock, kind: Any, queue: Any
) -> None:
    await create(inbox_database, kind)
    handler = Handler(
        retry(), retry_after(HOUR), ValueError("no"), drop("enough"), 300, by={9: ack()}
    )
    service = serve(inbox_database, queue, handler, poll_interval=MINUTE, workers=2)
    async with TestApp(service) as app:
        await app.publish(queue, Work(1))
        assert handler.times == [0, 0], "an immediate retry waits for no poll"
        assert await table(inbox_database, kind, "attempt", "retry_after") == [
            (3, virtual_clock.now() + HOUR)
        ]
        await app.advance(HOUR + MINUTE)
        assert handler.attempts == [1, 2, 3, 4], "the back-off of an exception"
        assert await count(inbox_database, kind) == 0
        await app.publish(queue, Work(2))
        await app.publish(queue, Work(9))  # while a row is in work
        assert handler.numbers[4:] == [2, 9] if kind is Mail else handler.numbers[4:] == [2]
        await app.advance(6 * MINUTE)
        assert handler.numbers[4:] == [2, 9]
        assert await count(inbox_database, kind) == 0
        assert holders(inbox_database) == []


@pytest.mark.parametrize(
    ("kind", "queue", "attempts"),
    [(Mail, MAILS, [1, 1, 1]), (Posting, POSTINGS, [2, 3, 3])],
    ids=["row lock", "advisory"],
)
async def test_rows_come_back_from_crashes_kills_and_stops(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    kind: Any,
    queue: Any,
    attempts: list[int],
) -> None:
    await create(inbox_database, kind)
    await put(inbox_database, queue, 1, **({"account": "a"} if kind is Posting else {}))
    async with another(inbox_database) as victim, killed(serve(victim, queue, Handler(300))):
        await virtual_clock.advance(SECOND)
    handler = Handler(300)
    async with TestApp(serve(inbox_database, queue, handler)) as app:
        await app.advance(MINUTE)
        assert handler.attempts == attempts[:1], "at once; only the advisory claim counts"
        before = len(timeline.of(events.Lost))
        await kill_holder(inbox_database)
        await app.advance(3 * SECOND)
        assert handler.attempts == attempts[:2]
        assert len(timeline.of(events.Lost)) == before + 1
    # The orderly end gave the attempt back.
    last = Handler()
    async with TestApp(serve(inbox_database, queue, last)) as app:
        await app.settle()
        assert last.attempts == attempts[2:3]
    assert await count(inbox_database, kind) == 0


async def test_a_fifo_group_is_worked_in_order_by_two_services(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Line)
    await put(inbox_database, LINE, *range(4))
    handler = Handler(3)
    async with (
        another(inbox_database) as other,
        serve(inbox_database, LINE, handler).running(),
        serve(other, LINE, handler).running(),
    ):
        await virtual_clock.advance(18 * SECOND)
    assert (handler.numbers, handler.most) == ([*range(4)], 1)
    assert await count(inbox_database, Line) == 0


async def test_every_group_is_served_by_rounds(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    for n, group in enumerate("aaab"):
        await put(inbox_database, InboxQueue(Job, group, Work), n)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.settle()
    assert sorted(handler.numbers[:2]) == [0, 3]
    assert sorted(handler.numbers) == [0, 1, 2, 3]
    assert await count(inbox_database, Job) == 0
