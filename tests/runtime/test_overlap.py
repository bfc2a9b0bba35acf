"""A worker goes on while the settlement of its last row is in flight: how far, and what waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from runtime_kit import (
    FIFO,
    JOBS,
    KEYED,
    PLAIN,
    SECOND,
    Fifo,
    Handler,
    Job,
    Keyed,
    Plain,
    Watch,
    Work,
    count,
    create,
    observed,
    put,
    serve,
    settlements,
    table,
)

from inboxkit import (
    Broker,
    Database,
    Delivery,
    InboxQueue,
    OutcomeUnknownError,
    Service,
    ack,
    drop,
    events,
    insert_rows,
    retry,
    subscriber,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock

ALL_JOBS = InboxQueue.every_group(Fifo, Work)
LEASED = "SELECT count(*) FROM plain_jobs WHERE locked_until IS NOT NULL"


async def put_keyed(database: Database, accounts: str) -> None:
    """One row for each letter, numbered."""
    async with database.transaction() as tx:
        await insert_rows(
            tx, *(Keyed.of(Work(n), account=account) for n, account in enumerate(accounts))
        )


@pytest.mark.parametrize("outcome", [ack(), drop("no")])
async def test_the_next_row_begins_while_a_settlement_is_in_flight(
    inbox_database: Database, virtual_clock: VirtualClock, outcome: Any
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(4))
    observed(inbox_database).faults.delay("settle", 1)
    handler = Handler(outcome)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        # The second is the one more that may await its settlement; the third has no room until then.
        assert handler.times == [0, 0]
        await app.advance(5 * SECOND)
        assert handler.times == [0, 0, 1, 1]
        assert await count(inbox_database, Plain) == 0
    assert handler.most == 1


@pytest.mark.parametrize("workers", [1, 3, 10])
async def test_as_many_rows_as_workers_may_await_their_settlements_beside_those_in_hand(
    inbox_database: Database, virtual_clock: VirtualClock, workers: int
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(5 * workers))
    faults = observed(inbox_database).faults
    faults.refuse("settle", times=10_000)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=workers)) as app:
        await app.advance(90 * SECOND)
        assert sorted(handler.numbers) == [*range(2 * workers)]
        assert await inbox_database.fetch_value(LEASED) == 2 * workers
        faults.clear()
        await app.advance(10 * SECOND)
        # They were renewed all the while: no row was handed out twice.
        assert sorted(handler.numbers) == [*range(5 * workers)]
        assert set(handler.attempts) == {1}
        assert await count(inbox_database, Plain) == 0
    assert handler.most <= workers


async def test_no_more_rows_are_taken_than_workers_are_free_whatever_awaits_its_settlement(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(9))
    observed(inbox_database).faults.delay("settle", 1)
    handler = Handler(by={0: None, 1: None} | dict.fromkeys(range(2, 9), 20))
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=3)) as app:
        assert sorted(handler.numbers) == [0, 1, 2, 3, 4]
        assert await inbox_database.fetch_value(LEASED) == 5
        await app.advance(10 * SECOND)
        assert sorted(handler.numbers) == [0, 1, 2, 3, 4]
        assert await inbox_database.fetch_value(LEASED) == 3


@pytest.mark.parametrize("fault", ["delay", "refuse", "lose reply"])
async def test_a_fifo_group_waits_for_the_answer(
    inbox_database: Database, virtual_clock: VirtualClock, fault: str
) -> None:
    await create(inbox_database, Fifo)
    await put(inbox_database, FIFO, *range(3))
    break_settlements(inbox_database, fault)
    handler = Handler()
    async with TestApp(serve(inbox_database, FIFO, handler, workers=3)) as app:
        assert handler.numbers == [0]
        await app.advance(5 * SECOND)
        assert handler.numbers == [0, 1, 2]
        assert handler.times[1] >= 0.9


@pytest.mark.parametrize("fault", ["delay", "refuse", "lose reply"])
async def test_other_groups_of_every_group_go_on_and_the_same_one_waits_for_the_answer(
    inbox_database: Database, virtual_clock: VirtualClock, fault: str
) -> None:
    await create(inbox_database, Fifo)
    await put(inbox_database, ALL_JOBS.group("a"), 1, 2)
    await put(inbox_database, ALL_JOBS.group("b"), 3)
    break_settlements(inbox_database, fault)
    handler = Watch()
    async with TestApp(serve(inbox_database, ALL_JOBS, handler)) as app:
        assert handler.numbers == [1, 3]
        await app.advance(5 * SECOND)
        assert handler.numbers == [1, 3, 2]
        # The settlement was written at once where only its answer was lost: but nobody knew.
        assert handler.times[2] >= 0.9
        assert await count(inbox_database, Fifo) == 0


@pytest.mark.parametrize("fault", ["delay", "refuse", "lose reply"])
async def test_a_key_waits_for_the_answer_and_others_of_its_worker_do_not(
    inbox_database: Database, virtual_clock: VirtualClock, fault: str
) -> None:
    await create(inbox_database, Keyed)
    await put_keyed(inbox_database, "aab")
    break_settlements(inbox_database, fault)
    handler = Handler()
    async with TestApp(serve(inbox_database, KEYED, handler, workers_by_key=1)) as app:
        assert handler.numbers == [0, 2]
        await app.advance(5 * SECOND)
        assert handler.numbers == [0, 2, 1]
        assert handler.times[2] >= 0.9
        assert await count(inbox_database, Keyed) == 0


async def test_a_key_goes_on_past_rows_that_are_lost_or_cannot_be_settled(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Keyed)
    await put_keyed(inbox_database, "aaaa")

    async def rob(delivery: Delivery) -> None:
        await inbox_database.execute(
            "UPDATE keyed_jobs SET locked_until = $1 WHERE id IN ($2, $3)",
            virtual_clock.now() + timedelta(hours=1),
            delivery.id,
            delivery.id + 2,
        )
        await virtual_clock.sleep(60)

    handler = Handler(by={0: rob, 1: 1, 3: 1})
    async with TestApp(serve(inbox_database, KEYED, handler, workers_by_key=1)) as app:
        await app.advance(25 * SECOND)
        # The one in hand, and the one that waited behind another.
        assert handler.numbers == [0, 1, 3]
        assert handler.ended == [1, 3]
        assert await count(inbox_database, Keyed) == 2
    assert len(timeline.of(events.Lost)) == 2


async def test_rows_that_wait_for_their_turn_go_back_at_a_stop(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    await put_keyed(inbox_database, "aaa")
    observed(inbox_database).faults.delay("settle", 1, times=1)
    handler = Handler()
    app = serve(inbox_database, KEYED, handler, workers_by_key=1)
    async with app.running() as handle:
        await virtual_clock.settle()
        assert handler.numbers == [0]
        handle.stop()
    assert handler.numbers == [0]
    assert await table(inbox_database, Keyed, "attempt", "locked_until") == [(1, None)] * 2
    assert virtual_clock.monotonic() == 1


@pytest.mark.parametrize("workers", [1, 4])
async def test_a_stop_settles_all_that_awaits_it(
    inbox_database: Database, virtual_clock: VirtualClock, workers: int
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(4 * workers))
    observed(inbox_database).faults.delay("settle", 2)
    handler = Handler()
    app = serve(inbox_database, PLAIN, handler, workers=workers)
    async with app.running() as handle:
        await virtual_clock.settle()
        assert sorted(handler.numbers) == [*range(2 * workers)]
        handle.stop()
    left = await table(inbox_database, Plain, "attempt", "locked_until")
    assert left == [(1, None)] * (2 * workers)
    assert len(handler.ended) == 2 * workers


async def test_a_retried_row_is_claimed_once_its_settlement_was_answered(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 0, 1, 2)
    observed(inbox_database).faults.delay("settle", 1)
    handler = Handler(retry(), None)
    async with TestApp(serve(inbox_database, JOBS, handler, poll_interval=60 * SECOND)) as app:
        await app.advance(3 * SECOND)
        assert (handler.numbers, handler.times) == ([0, 1, 0, 2], [0, 0, 1, 1])
        assert handler.attempts == [1, 1, 2, 1]


async def test_batches_go_on_and_are_bounded_too(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(40))
    calls: list[list[int]] = []
    faults = observed(inbox_database).faults
    faults.refuse("settle", times=10_000)

    @subscriber(PLAIN, batch=3)
    async def handle(deliveries: list[Delivery[Plain, Work]]) -> None:
        calls.append([delivery.message.n for delivery in deliveries])

    app = Service("service", Broker(inbox_database))
    app.include(handle, workers=2)
    async with TestApp(app) as running:
        await running.advance(20 * SECOND)
        assert sorted(calls) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
        faults.clear()
        await running.advance(10 * SECOND)
        assert sorted(n for call in calls for n in call) == [*range(40)]
        assert await count(inbox_database, Plain) == 0


async def test_a_drain_takes_fewer_settlements_than_rows(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """What ends together is settled together, though claims go on beside it."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(100))
    async with TestApp(serve(inbox_database, PLAIN, Handler(), workers=10)):
        assert await count(inbox_database, Plain) == 0
    assert len(settlements(inbox_database)) <= 20


async def test_a_cancelled_service_gives_back_what_is_unsettled_and_hands_out_no_more(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(20))
    observed(inbox_database).faults.delay("settle", 1)
    handler = Handler(by=dict.fromkeys(range(3, 20), 600))
    app = serve(inbox_database, PLAIN, handler, workers=3)
    async with app.running() as handle:
        await virtual_clock.settle()
        assert sorted(handler.numbers) == [0, 1, 2, 3, 4, 5]
        handle.cancel()
    assert len(handler.runs) == 6
    assert len(timeline.of(events.Finished)) == 3
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)] * 17


def break_settlements(database: Database, fault: str) -> None:
    """The first one's answer comes about a second late."""
    faults = observed(database).faults
    match fault:
        case "delay":
            faults.delay("settle", 1)
        case "refuse":
            faults.refuse(
                "settle", error=lambda _: OutcomeUnknownError("broken", statement="settle")
            )
        case _:
            faults.lose_reply("settle")


@pytest.mark.parametrize("end", [SystemExit(3), ValueError("stop")])
@pytest.mark.parametrize("settings", [{}, {"prefetch": 1}, {"workers_by_key": 1}])
async def test_nothing_more_is_claimed_once_a_handler_has_ended_the_service(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    end: BaseException,
    settings: dict[str, Any],
) -> None:
    await create(inbox_database, Keyed)
    await put_keyed(inbox_database, "abacab")
    handler = Handler(end, 1)
    app = serve(inbox_database, KEYED, handler, on_error="stop", **settings)
    with pytest.raises(type(end)):
        await app.run()
    # What was queued at the worker may come into its hand yet, and then ends in peace.
    assert handler.numbers in ([[0]] if not settings else [[0], [0, 1]])
    claimed = 4 if "workers_by_key" in settings else 1 + settings.get("prefetch", 0)
    assert len(timeline.of(events.Claimed)) == claimed
    left = await table(inbox_database, Keyed, "attempt", "locked_until")
    assert left == [(2, None)] + [(1, None)] * (6 - len(handler.runs))
