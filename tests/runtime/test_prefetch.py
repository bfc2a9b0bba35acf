"""``include(prefetch=n)``: rows that are claimed beyond those that workers take."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Watch,
    Work,
    another,
    count,
    create,
    killed,
    observed,
    put,
    serve,
    settlements,
    table,
)

from inboxkit import (
    Broker,
    Database,
    DeclarationError,
    Delivery,
    InboxQueue,
    Service,
    TransactionalDelivery,
    events,
    subscriber,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock

LEASED = "SELECT count(*) FROM plain_jobs WHERE locked_until IS NOT NULL"


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 5), (3, 4)])
async def test_so_many_rows_are_claimed_beyond_the_workers_and_no_more_are_handled(
    inbox_database: Database, virtual_clock: VirtualClock, workers: int, prefetch: int
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(20))
    handler = Handler(10)
    app = serve(inbox_database, PLAIN, handler, workers=workers, prefetch=prefetch)
    async with TestApp(app) as running:
        assert await inbox_database.fetch_value(LEASED) == workers + prefetch
        for _ in range(3):
            held = await inbox_database.fetch_value(LEASED)
            assert workers + prefetch // 2 < held <= workers + prefetch
            assert handler.now == workers
            await running.advance(10 * SECOND)
        assert sorted(handler.numbers) == [*range(min(4 * workers, 20))]
    assert handler.most == workers


async def test_rows_that_are_claimed_ahead_are_renewed_until_their_turn(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(4))
    handler = Handler(50)
    async with TestApp(serve(inbox_database, PLAIN, handler, prefetch=3)) as app:
        await app.advance(210 * SECOND)
        assert handler.times == [0, 50, 100, 150]
        assert handler.attempts == [1, 1, 1, 1]


async def test_they_are_given_back_at_a_stop_and_their_attempts_too(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(6))
    handler = Handler(20)
    app = serve(inbox_database, PLAIN, handler, workers=2, prefetch=3)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
        await virtual_clock.settle()
        # At once, not when the handlers have ended.
        rows = await table(inbox_database, Plain, "attempt", "locked_until")
        assert rows[2:] == [(1, None)] * 4
        assert [attempt for attempt, _ in rows[:2]] == [2, 2]
    assert sorted(handler.ended) == [0, 1]
    assert await table(inbox_database, Plain, "attempt") == [(1,)] * 4
    assert len(timeline.of(events.Released)) == 3


async def test_they_are_given_back_at_a_cancellation(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(6))
    async with serve(inbox_database, PLAIN, Handler(600), prefetch=4).running() as handle:
        await virtual_clock.settle()
        handle.cancel()
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)] * 6


async def test_those_of_a_killed_process_come_back_when_their_leases_end(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(5))
    async with (
        another(inbox_database) as other,
        killed(serve(other, PLAIN, Handler(600), prefetch=3)),
    ):
        await virtual_clock.settle()
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        assert handler.numbers == [4]
        await app.advance(32 * SECOND)
        assert sorted(handler.numbers) == [0, 1, 2, 3, 4]
        assert sorted(attempt or 0 for attempt in handler.attempts) == [1, 2, 2, 2, 2]


async def test_a_row_that_is_lost_while_it_waits_reaches_no_handler(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    ids = await put(inbox_database, PLAIN, *range(4))
    handler = Handler(20)
    async with TestApp(serve(inbox_database, PLAIN, handler, prefetch=3)) as app:
        await inbox_database.execute(
            "UPDATE plain_jobs SET locked_until = $1 WHERE id = $2",
            virtual_clock.now() + HOUR,
            ids[2],
        )
        await app.advance(70 * SECOND)
        assert handler.numbers == [0, 1, 3]
    assert [event.id for event in timeline.of(events.Lost)] == [ids[2]]  # type: ignore[attr-defined]


async def test_an_urgent_row_comes_after_those_that_are_claimed(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(5))
    handler = Handler(1)
    async with TestApp(serve(inbox_database, JOBS, handler, prefetch=2)) as app:
        await app.publish(JOBS, Work(9), priority=0)
        await app.advance(10 * SECOND)
        assert handler.numbers == [0, 1, 2, 9, 3, 4]


async def test_a_row_past_its_cap_takes_no_place_for_long(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(6))
    await inbox_database.execute("UPDATE jobs SET attempt = 9 WHERE id <= 3")
    handler = Handler(5)
    app = serve(inbox_database, JOBS, handler, prefetch=2, max_attempts=3, dead_letter="jobs.dead")
    async with TestApp(app) as running:
        assert handler.numbers == [3]
        assert len(await running.dead(Job)) == 3
        await running.advance(20 * SECOND)
        assert handler.numbers == [3, 4, 5]


async def test_every_group_of_a_table_may_have_rows_claimed_ahead(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    queue = InboxQueue.every_group(Job, Work)
    await create(inbox_database, Job)
    for group in "ab":
        await put(inbox_database, queue.group(group), *range(3))
    handler = Watch(1)
    async with TestApp(serve(inbox_database, queue, handler, prefetch=3)) as app:
        await app.advance(10 * SECOND)
        assert sorted(handler.numbers) == [0, 0, 1, 1, 2, 2]
        assert handler.most == 1


async def test_batches_have_rows_claimed_ahead_too(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(30))
    calls: list[int] = []

    @subscriber(PLAIN, batch=4)
    async def handle(deliveries: list[Delivery[Plain, Work]]) -> None:
        calls.append(len(deliveries))
        await virtual_clock.sleep(5)

    app = Service("service", Broker(inbox_database))
    app.include(handle, workers=2, prefetch=6)
    async with TestApp(app) as running:
        assert await inbox_database.fetch_value(LEASED) == 14
        assert calls == [4, 4]
        await running.advance(60 * SECOND)
        assert sum(calls) == 30
        assert await count(inbox_database, Plain) == 0


async def test_it_saves_claims_and_settlements(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(100))
    async with TestApp(serve(inbox_database, PLAIN, Handler(), prefetch=49)):
        assert await count(inbox_database, Plain) == 0
    # A claim brings no fewer than half of those ahead, but for the last.
    assert len(observed(inbox_database).recording.transactions("claim")) <= 5
    # How many rows end while one is answered is the server's; alone, each would take one.
    assert len(settlements(inbox_database)) <= 75


async def test_it_is_refused_where_each_row_in_work_keeps_a_connection(
    inbox_database: Database,
) -> None:
    @subscriber(PLAIN, transactional=True)
    async def handle(work: Work, delivery: TransactionalDelivery[Any, Any]) -> None: ...

    app = Service("service", Broker(inbox_database))
    with pytest.raises(DeclarationError, match=r"transactional.* in place of prefetch"):
        app.include(handle, prefetch=5)
    app.include(handle, prefetch=0)
