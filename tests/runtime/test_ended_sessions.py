"""Sessions that the server ends again and again: a row's end concerns that row, and nothing waits for it."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import pytest
from runtime_kit import HOUR, JOBS, SECOND, Handler, Work, create, observed, put, serve

from inboxkit import Database, Delivery, Inbox, InboxQueue, ack, role
from inboxkit_testing import TestApp, VirtualClock
from inboxkit_testing.faults import Operation


class Locked(Inbox, table="ended_locked"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    payload: bytes = role.payload()


class Advisory(Inbox, table="ended_advisory", advisory_lock="ended-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Fifo(Inbox, table="ended_fifo"):
    """In order."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="ended_keyed"):
    """In order by key."""

    id: int = role.id(generated=True)
    account: str = role.partition_key()
    payload: bytes = role.payload()


LOCKED = InboxQueue(Locked, "locked", Work)
ADVISORY = InboxQueue(Advisory, "advisory", Work)
FIFO = InboxQueue(Fifo, "fifo", Work)
KEYED = InboxQueue(Keyed, "keyed", Work)


async def end_sessions(delivery: Delivery[Any, Any]) -> Any:
    """End all sessions in use, as an administrator would: with one worker, that of the delivery."""
    pool = delivery.database._pool
    assert pool is not None
    for connection, _ in pool._holders.values():
        connection.terminate()
    return ack()


@pytest.mark.parametrize("inbox_db", ["postgres", "mariadb", "mysql"])
@pytest.mark.parametrize("queue", [LOCKED, ADVISORY], ids=["row", "key"])
async def test_a_row_whose_session_always_ends_keeps_no_other_waiting(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, *range(4))
    handler = Handler(by={0: end_sessions})
    async with serve(inbox_database, queue, handler, poll_interval=HOUR).running():
        await virtual_clock.advance(0.5 * SECOND)
        assert handler.numbers == [0, 1, 2, 3]
        await virtual_clock.advance(10 * SECOND)
        times = [run.at for run in handler.runs if run.n == 0]
        assert handler.numbers.count(0) == 11, "once a second, without a poll"
        assert min(b - a for a, b in itertools.pairwise(times)) >= 0.98
    assert inbox_database.room._free == 9


@pytest.mark.parametrize("inbox_db", ["postgres"])
@pytest.mark.parametrize("queue", [FIFO, KEYED], ids=["fifo", "keyed"])
async def test_where_rows_are_in_order_the_others_wait_for_it(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await create(inbox_database, queue.row)
    columns = {"account": "one"} if queue is KEYED else {}
    await put(inbox_database, queue, *range(3), **columns)
    endings = iter([end_sessions, end_sessions])

    async def end(delivery: Delivery[Any, Any]) -> Any:
        if (ending := next(endings, None)) is not None:
            return await ending(delivery)
        return ack()

    handler = Handler(by={0: end})
    keyed: dict[str, Any] = {"workers_by_key": 1} if queue is KEYED else {}
    async with serve(inbox_database, queue, handler, **keyed).running():
        await virtual_clock.advance(5 * SECOND)
    assert [n for n in handler.numbers if n == 0] == [0, 0, 0]
    assert handler.ended[-2:] == [1, 2]
    assert handler.times[-1] >= 2


@pytest.mark.parametrize("queue", [JOBS, LOCKED], ids=["lease", "row"])
async def test_one_claim_that_fails_is_repeated_at_once_and_a_second_rests(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Work],
) -> None:
    if queue is LOCKED and inbox_database.dialect == "sqlite":
        pytest.skip("SQLite has no row locks")
    await create(inbox_database, queue.row)
    handler = Handler()
    async with TestApp(serve(inbox_database, queue, handler, poll_interval=HOUR)) as app:
        faults = observed(inbox_database).faults
        for times, start in ((1, 10), (2, 20)):
            await app.advance(start * SECOND - virtual_clock.monotonic() * SECOND)
            faults.refuse("claim", times=times)
            await app.publish(queue, Work(start))
            await app.advance(2 * SECOND)
    first, second = handler.times
    assert first == 10
    assert 20.9 <= second <= 21.01


@pytest.mark.parametrize("inbox_db", ["postgres", "mariadb"])
@pytest.mark.parametrize("queue", [JOBS, ADVISORY], ids=["lease", "key"])
async def test_a_service_starts_although_sessions_end_under_its_questions(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1)
    handler = Handler()
    asked = [0]

    def is_second(operation: Operation) -> bool:
        """Every second statement of those before the first claim."""
        asked[0] += operation.script != "claim" and operation.kind == "statement"
        return operation.kind == "statement" and 0 < asked[0] <= 5 and asked[0] % 2 == 0

    fault = observed(inbox_database).faults.lose_reply(is_second, times=2)
    async with serve(inbox_database, queue, handler).running():
        await virtual_clock.advance(SECOND)
    assert fault.hits == 2
    assert handler.numbers == [1]
