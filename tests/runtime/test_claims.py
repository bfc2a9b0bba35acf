"""Claims: as many rows as there are free workers, in one statement."""

from __future__ import annotations

import itertools

from runtime_kit import (
    HOUR,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    count,
    create,
    observed,
    put,
    serve,
    settlements,
    table,
)
from server_kit import refuse

from inboxkit import Database, Delivery, Outcome, ack, drop, events, retry, retry_after
from inboxkit_testing import TestApp, Timeline, VirtualClock


async def mixed(delivery: Delivery) -> Outcome:
    """Five kinds of endings, all at one instant."""
    await delivery.clock.sleep(5)
    match delivery.message.n % 5:
        case 0:
            return retry_after(HOUR)
        case 1:
            return drop("enough")
        case 2:
            raise ValueError("broken")
        case 3 if delivery.attempt == 1:
            return retry()
        case _:
            return ack()


async def test_fifty_rows_are_claimed_at_once_and_settled_in_five_transactions(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    ids = await put(inbox_database, JOBS, *range(50))
    await refuse(inbox_database, Job, ids[4])
    handler = Handler(mixed)
    recording = observed(inbox_database).recording
    async with TestApp(serve(inbox_database, JOBS, handler, workers=50)) as app:
        assert len(handler.runs) == 50
        assert len(recording.transactions("claim")) == 1
        await app.advance(SECOND)
        await inbox_database.execute(
            "UPDATE jobs SET locked_until = $1 WHERE id = $2",
            virtual_clock.now() + HOUR,
            ids[9],
        )
        recording.clear()
        await app.advance(4 * SECOND)
        assert len(handler.runs) >= 50
        end = virtual_clock.now()
        together = [t for t in settlements(inbox_database) if t.statements[0].at == end]
        assert len(together) <= 5
    lost = timeline.of(events.Lost)
    assert [event.id for event in lost] == [ids[9]]  # type: ignore[attr-defined]


async def test_a_full_claim_is_followed_by_the_next_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(7))
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=2)):
        pairs = [sorted(handler.numbers[at : at + 2]) for at in range(0, 7, 2)]
        assert pairs == [[0, 1], [2, 3], [4, 5], [6]]
        assert await count(inbox_database, Plain) == 0


async def test_no_more_rows_are_taken_than_workers_are_free(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(9))
    handler = Handler(10)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=3)) as app:
        rows = await table(inbox_database, Plain, "attempt")
        assert [attempt for (attempt,) in rows] == [2] * 3 + [1] * 6
        await app.advance(35 * SECOND)
        assert handler.most == 3
        assert len(handler.runs) == 9


async def test_a_free_worker_gets_the_next_row_while_others_work(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(4))
    handler = Handler(by={0: 20, 1: 1, 2: 1, 3: 1})
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=2)) as app:
        await app.advance(4 * SECOND)
        assert handler.times == [0, 0, 1, 2]
        assert handler.ended == [1, 2, 3]


async def test_one_worker_takes_one_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2)
    handler = Handler(2)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        assert [row[1] for row in await table(inbox_database, Plain)] == [2, 1]
        await app.advance(5 * SECOND)
        assert handler.times == [0, 2]


async def test_an_empty_table_is_asked_once_a_poll(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    recording = observed(inbox_database).recording
    async with TestApp(serve(inbox_database, PLAIN, Handler())) as app:
        recording.clear()
        await app.advance(100 * SECOND)
        claims = [t.statements[0].at for t in recording.transactions("claim")]
    waits = [(b - a) / SECOND for a, b in itertools.pairwise(claims)]
    assert 100 <= len(claims) <= 112
    assert all(0.9 <= wait <= 1.001 for wait in waits)
    assert len({round(wait, 4) for wait in waits}) > 50


async def test_all_messages_arrive(inbox_database: Database, virtual_clock: VirtualClock) -> None:
    await create(inbox_database, Job)
    handler = Handler(0.5)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=7)) as app:
        for n in range(20):
            await app.broker.publish(JOBS, Work(n))
        await app.advance(10 * SECOND)
        assert sorted(handler.numbers) == list(range(20))
        assert await count(inbox_database, Job) == 0
