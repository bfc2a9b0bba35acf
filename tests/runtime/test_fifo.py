"""FIFO groups: one row at a time, in order, whatever fails."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from runtime_kit import (
    FIFO,
    FIFO_PLAIN,
    HOUR,
    MINUTE,
    SECOND,
    Fifo,
    FifoPlain,
    Handler,
    Work,
    another,
    count,
    create,
    observed,
    put,
    serve,
)

from inboxkit import Backoff, Broker, Database, InboxQueue, Service, insert_rows, retry, subscriber
from inboxkit import retry_after as later
from inboxkit_testing import TestApp, VirtualClock

BACKOFF = Backoff.fixed(10 * SECOND)
QUEUES = [FIFO, FIFO_PLAIN]


def failing_first(answer: Any, times: int = 2) -> Handler:
    """The first message fails so often; all others are acked."""
    left = [times]

    async def first(delivery: Any) -> Any:
        if not left[0]:
            return None
        left[0] -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Handler(by={1: first})


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize(
    ("queue", "answer", "order"),
    [
        (FIFO, retry(), [1, 1, 1, 2, 3]),
        (FIFO_PLAIN, retry(), [1, 1, 1, 2, 3]),
        (FIFO, later(10 * SECOND), [1, 2, 3, 1, 1]),
        (FIFO_PLAIN, later(10 * SECOND), [1, 1, 1, 2, 3]),
        (FIFO, ValueError("no"), [1, 1, 1, 2, 3]),
        (FIFO_PLAIN, ValueError("no"), [1, 1, 1, 2, 3]),
    ],
    ids=["retry", "retry-plain", "later", "later-plain", "error", "error-plain"],
)
async def test_a_failed_head_keeps_its_place_unless_it_asks_to_go_behind(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Any],
    answer: Any,
    order: list[int],
    instances: int,
) -> None:
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1, 2, 3)
    handler = failing_first(answer)
    async with AsyncExitStack() as stack:
        for number in range(instances):
            database = inbox_database
            if number:
                database = await stack.enter_async_context(another(inbox_database, str(number)))
            app = serve(database, queue, handler, on_error=BACKOFF, name=f"service {number}")
            await stack.enter_async_context(app.running())
        await virtual_clock.advance(MINUTE)
        assert handler.numbers == order
        assert handler.most == 1
        assert await count(inbox_database, queue.row) == 0
    if isinstance(answer, ValueError):
        assert handler.times[1] >= 10
        assert handler.times[2] >= 20


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue.name)
async def test_a_head_past_its_cap_makes_way(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Any]
) -> None:
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1, 2, 3)
    handler = Handler(by={1: retry()})
    app = serve(inbox_database, queue, handler, max_attempts=2, dead_letter="parked")
    async with TestApp(app) as running:
        await running.advance(3 * SECOND)
        assert handler.numbers == [1, 1, 2, 3]
        (dead,) = await running.dead(queue.row)
        assert (dead.name, dead.attempt) == ("parked", 3)


async def test_workers_do_not_make_a_fifo_queue_parallel(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo)
    await put(inbox_database, FIFO, *range(5))
    handler = Handler(1)
    async with TestApp(serve(inbox_database, FIFO, handler, workers=8)) as app:
        await app.advance(10 * SECOND)
        assert handler.numbers == [0, 1, 2, 3, 4]
        assert handler.most == 1


async def test_groups_of_one_table_go_side_by_side(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo)
    handler = Handler(1)
    app = Service("service", Broker(inbox_database))
    queues = [InboxQueue(Fifo, f"group {n}", Work) for n in range(3)]
    for queue in queues:
        app.include(subscriber(queue)(handler))  # type: ignore[arg-type]
        await put(inbox_database, queue, 1, 2, 3)
    async with TestApp(app) as running:
        await running.advance(4 * SECOND)
        assert handler.most == 3
        assert handler.numbers == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_head_that_is_not_due_holds_up_its_group(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo)
    soon = virtual_clock.now() + MINUTE
    # The due time is part of the order: both carry the same, and the first is the head.
    await put(inbox_database, FIFO, 1, 2, retry_after=soon)
    handler = Handler()
    async with TestApp(serve(inbox_database, FIFO, handler)) as app:
        await app.advance(59 * SECOND)
        assert handler.numbers == []
        await app.advance(2 * SECOND)
        assert handler.numbers == [1, 2]


async def test_a_row_that_comes_in_ahead_waits_for_the_one_in_work(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo)
    await put(inbox_database, FIFO, 1)
    handler = Handler(by={1: 5})
    async with TestApp(serve(inbox_database, FIFO, handler)) as app:
        early = virtual_clock.start - HOUR
        await app.publish(FIFO, Work(2), retry_after=early)
        other = another(inbox_database)
        async with other, serve(other, FIFO, handler).running():
            await app.advance(4 * SECOND)
            assert handler.numbers == [1]
            await app.advance(3 * SECOND)
            assert handler.numbers == [1, 2]
            assert handler.most == 1


async def test_the_next_row_starts_when_its_publisher_commits(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """Through inboxkit's transaction at once; by raw SQL within a poll."""
    await create(inbox_database, Fifo)
    handler = Handler()
    async with TestApp(serve(inbox_database, FIFO, handler)) as app:
        await app.publish(FIFO, Work(1))
        async with inbox_database.transaction() as tx:
            await insert_rows(tx, Fifo.of(Work(2), name="fifo"))
        await app.settle()
        assert handler.numbers == [1, 2]
        row = Fifo.of(Work(3), name="fifo")
        await inbox_database.execute(
            "INSERT INTO fifo_jobs (name, retry_after, payload) VALUES ('fifo', $1, $2)",
            frozen_clock.now(),
            row.payload,
        )
        await app.settle()
        assert handler.numbers == [1, 2]
        await app.advance(SECOND)
        assert handler.numbers == [1, 2, 3]


async def test_a_crash_stops_the_group_until_the_lease_ends(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, FifoPlain)
    await put(inbox_database, FIFO_PLAIN, 1, 2)
    leased = virtual_clock.now() + timedelta(seconds=20)
    await inbox_database.execute(
        "UPDATE fifo_plain_jobs SET attempt = 2, locked_until = $1 WHERE id = 1", leased
    )
    handler = Handler()
    async with TestApp(serve(inbox_database, FIFO_PLAIN, handler)) as app:
        await app.advance(19.9 * SECOND)
        assert handler.numbers == []
        await app.advance(2 * SECOND)
        assert handler.numbers == [1, 2]
        assert handler.attempts == [2, 1]


async def test_a_lower_id_that_commits_later_waits_and_is_not_skipped(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    if inbox_database.dialect == "sqlite":
        pytest.skip("SQLite has one writer: ids are committed in their order")
    await create(inbox_database, FifoPlain)
    handler = Handler(5)
    insert = "INSERT INTO fifo_plain_jobs (name, payload) VALUES ('fifo-plain', $1)"
    async with TestApp(serve(inbox_database, FIFO_PLAIN, handler)) as app:
        async with inbox_database.connection() as slow:
            await slow.execute("BEGIN")
            await slow.execute(insert, b'{"n": 1}')
            await app.publish(FIFO_PLAIN, Work(2))
            assert handler.numbers == [2]
            await app.advance(2 * SECOND)
            await slow.execute("COMMIT")
        await app.advance(2 * SECOND)
        assert handler.numbers == [2]
        await app.advance(4 * SECOND)
        assert handler.numbers == [2, 1]
        assert handler.most == 1
    assert observed(inbox_database)
