"""Renewals: one statement each half lease for all leases of a subscription, and what goes wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from runtime_kit import (
    HOUR,
    MINUTE,
    PLAIN,
    SECOND,
    Handler,
    Plain,
    Work,
    count,
    create,
    observed,
    put,
    serve,
    warnings,
)

from inboxkit import Database, events
from inboxkit_testing import TestApp, Timeline, VirtualClock


def rounds(database: Database, start: float = 0.0) -> list[float]:
    """When renewals were sent, in seconds."""
    begin = observed(database).clock.now() - timedelta(seconds=observed(database).clock.monotonic())
    sent = observed(database).recording.transactions("renew")
    return [round((t.statements[0].at - begin) / SECOND, 2) for t in sent]


def renewed(database: Database) -> list[int]:
    """How many rows each round renewed: its first statement returns them on every database."""
    sent = observed(database).recording.transactions("renew")
    return [t.statements[0].rows or 0 for t in sent]


async def test_one_statement_each_half_lease_renews_all(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(5))
    handler = Handler(70)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=5)) as app:
        await app.advance(65 * SECOND)
        assert rounds(inbox_database) == [15, 30, 45, 60]
        await app.advance(10 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(timeline.of(events.Renewed)) == 20
    assert len(handler.runs) == 5


async def test_rows_claimed_later_join_the_round(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    async with TestApp(serve(inbox_database, PLAIN, Handler(60), workers=3)) as app:
        await app.advance(10 * SECOND)
        await app.publish(PLAIN, Work(2))
        await app.advance(40 * SECOND)
        assert rounds(inbox_database) == [15, 30, 45]
        assert renewed(inbox_database) == [2, 2, 2]


async def test_nothing_in_work_needs_no_renewal(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    async with TestApp(serve(inbox_database, PLAIN, Handler())) as app:
        await app.publish(PLAIN, Work(1))
        await app.advance(5 * MINUTE)
        assert rounds(inbox_database) == []


async def test_a_claim_answered_during_a_round_brings_the_next_one_forward(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    faults = observed(inbox_database).faults
    async with TestApp(serve(inbox_database, PLAIN, Handler(60), workers=3)) as app:
        # The round of 15 s is answered at 17 s; meanwhile a row is claimed, at 15.5 s.
        faults.delay("renew", 2)
        await app.advance(15.5 * SECOND)
        await app.publish(PLAIN, Work(2))
        await app.advance(16 * SECOND)
        # Where a round is a transaction, the clock is read in it, at 17 s, so the first row needs none
        # before 32 s; but the half lease of the second ends at 30.5 s. Postgres read it at 15 s.
        second = 30 if inbox_database.dialect == "postgres" else 30.5
        assert rounds(inbox_database) == [17, second]


async def test_renewals_that_fail_are_repeated_each_twentieth_of_the_lease(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    timeline: Timeline,
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    fault = observed(inbox_database).faults.refuse("renew", times=4)
    handler = Handler(50)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(55 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert fault.hits == 4
    times = [event.at for event in timeline.of(events.Renewed)]
    # 15, 16.5, 18 and 19.5 s failed; 21 s did not.
    assert (times[0] - virtual_clock.start) / SECOND == 21
    assert len(warnings(caplog, "could not be renewed")) == 1
    assert handler.attempts == [1]


async def test_renewals_that_never_work_end_the_hold_in_time(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse("renew", times=1000)
    handler = Handler(50, 0)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(26.9 * SECOND)
        assert handler.cancelled == []
        assert not handler.deliveries[0].lost.is_set()
        await app.advance(4.5 * SECOND)
        assert handler.cancelled == [(1, 27)]
        assert handler.deliveries[0].lost.is_set()
        # The lease itself ends at 30 s, and the next poll finds the row.
        assert handler.attempts == [1, 2]
        assert 30 <= handler.times[1] <= 31
    assert [(event.at - virtual_clock.start) / SECOND for event in timeline.of(events.Lost)] == [27]


async def test_a_renewal_whose_answer_was_lost_keeps_both_tokens(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.lose_reply("renew")
    handler = Handler(16)  # ends before the renewal is repeated at 16.5 s
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(20 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert len(timeline.of(events.Finished)) == 1


async def test_a_renewal_that_was_never_written_keeps_the_old_token(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    faults = observed(inbox_database).faults
    faults.lose_reply("renew")  # this one stands in the row
    faults.refuse("renew", times=2)
    handler = Handler(40)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(45 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert handler.attempts == [1]


@pytest.mark.parametrize("times", [2, 7])
async def test_renewals_whose_answers_are_lost_one_after_another_keep_the_row(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, times: int
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.lose_reply("renew", times=times)
    handler = Handler(40)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(45 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert len(timeline.of(events.Finished)) == 1


async def test_a_hanging_renewal_does_not_keep_the_handler_past_its_hold(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.delay("renew", 60, times=100)
    handler = Handler(100, 0)
    lease = 10 * SECOND
    async with TestApp(serve(inbox_database, PLAIN, handler, lease=lease)) as app:
        await app.advance(9 * SECOND)
        assert handler.cancelled == [(1, 9)]
        assert handler.deliveries[0].lost.is_set()
        await app.advance(3 * SECOND)
        assert handler.attempts == [1, 2]
        assert handler.times[1] >= 10
        assert await count(inbox_database, Plain) == 0


async def test_a_renewal_that_comes_too_late_renews_nothing_of_a_lost_row(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """The rounds of a row whose hold has ended are over, so its lease ends when it was to end."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse("renew", times=1000)

    async def stubborn(delivery: object) -> None:
        import anyio

        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)

    handler = Handler(stubborn, 0)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=2)) as app:
        await app.advance(28 * SECOND)
        observed(inbox_database).faults.clear()
        await app.advance(4 * SECOND)
        assert handler.attempts == [1, 2]
        await app.advance(100 * SECOND)
    assert len(timeline.of(events.Lost)) == 1
    assert len(timeline.of(events.Finished)) == 1


async def test_a_row_that_is_locked_by_others_is_renewed_a_little_later(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    if inbox_database.dialect == "sqlite":
        pytest.skip("SQLite locks no rows")
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2)
    handler = Handler(40)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=2)) as app:
        await app.advance(14 * SECOND)
        async with inbox_database.connection() as other:
            # Not db.transaction(): a block of the service's own would forbid time to pass.
            await other.execute("BEGIN")
            await other.execute("SELECT * FROM plain_jobs WHERE id = 1 FOR UPDATE")
            await app.advance(2 * SECOND)
            await other.execute("ROLLBACK")
        await app.advance(30 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert handler.attempts == [1, 1]
    first = next(e for e in timeline.of(events.Renewed) if e.id == 1)  # type: ignore[attr-defined]
    other_row = [e for e in timeline.of(events.Renewed) if e.id == 2]  # type: ignore[attr-defined]
    assert 16 <= (first.at - virtual_clock.start) / SECOND <= 18.5
    # The other row was renewed on time, and only as often as it should be.
    assert (other_row[0].at - virtual_clock.start) / SECOND == 15
    assert len(other_row) == 2


async def test_a_row_that_is_locked_for_long_is_asked_for_until_its_hold_ends(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    if inbox_database.dialect == "sqlite":
        pytest.skip("SQLite locks no rows")
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(40)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(14 * SECOND)
        async with inbox_database.connection() as other:
            await other.execute("BEGIN")
            await other.execute("SELECT * FROM plain_jobs WHERE id = 1 FOR UPDATE")
            await app.advance(11 * SECOND)  # until 25 s: 2 s before the hold ends
            await other.execute("ROLLBACK")
        await app.advance(30 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert handler.attempts == [1]


async def test_the_deadline_moves_with_each_renewal(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(50)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        start = virtual_clock.start
        assert handler.deliveries[0].deadline == start + 27 * SECOND
        await app.advance(16 * SECOND)
        assert handler.deliveries[0].deadline == start + 42 * SECOND


async def test_a_lease_of_the_queue_goes_before_that_of_the_broker(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    from inboxkit import InboxQueue

    await create(inbox_database, Plain)
    queue = InboxQueue(Plain, "own", Work, lease=timedelta(seconds=3.2))
    await put(inbox_database, queue, 1)
    handler = Handler(50)
    async with TestApp(serve(inbox_database, queue, handler, lease=HOUR)) as app:
        await app.advance(7 * SECOND)
        assert rounds(inbox_database) == [2, 4, 6]  # of 4 s: rounded up
