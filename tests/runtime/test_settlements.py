"""Settlements: written once, together where they are ready together, repeated while the hold lasts."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    KEPT,
    MINUTE,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Kept,
    Plain,
    Work,
    count,
    create,
    observed,
    put,
    serve,
    settlements,
    table,
    warnings,
)
from server_kit import refuse

from inboxkit import Database, DatabaseError, ack, drop, events, retry, retry_after
from inboxkit_testing import TestApp, Timeline, VirtualClock

OUTCOMES = {"ack": ack(), "drop": drop("no"), "retry": retry(), "later": retry_after(HOUR)}


async def test_a_lone_settlement_waits_for_nothing(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    async with TestApp(serve(inbox_database, PLAIN, Handler())) as app:
        await app.publish(PLAIN, Work(1))
        assert await count(inbox_database, Plain) == 0


async def test_settlements_that_become_ready_meanwhile_go_out_together(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(10))
    faults = observed(inbox_database).faults
    handler = Handler(by={n: 1 + 0.01 * n for n in range(10)})
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=10)) as app:
        faults.delay("settle", 1)
        await app.advance(3 * SECOND)
        written = [t.statements[-1].rowcount for t in settlements(inbox_database)]
        assert sorted(written) == [1, 9]
        assert await count(inbox_database, Plain) == 0


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_settlement_whose_answer_was_lost_is_not_written_twice(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, outcome: str
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    fault = observed(inbox_database).faults.lose_reply("settle")
    handler = Handler(OUTCOMES[outcome], 600)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(10 * SECOND)
        assert fault.hits == 1
        assert len(handler.runs) == (2 if outcome == "retry" else 1)
        assert await count(inbox_database, Job) == (0 if outcome in ("ack", "drop") else 1)
        if outcome == "later":
            (row,) = await app.rows(Job)
            assert (row.attempt, row.locked_until) == (2, None)
            assert row.retry_after - virtual_clock.start == HOUR
    assert timeline.of(events.Lost) == []
    (unknown,) = timeline.of(events.OutcomeUnknown)
    assert unknown.is_gone == (outcome in ("ack", "drop"))  # type: ignore[attr-defined]
    assert timeline.of(events.Finished) == []  # never counted as this delivery's


async def test_a_finished_row_that_stays_counts_as_settled_too(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Kept)
    await put(inbox_database, KEPT, 1)
    observed(inbox_database).faults.lose_reply("settle")
    handler = Handler()
    async with TestApp(serve(inbox_database, KEPT, handler)) as app:
        await app.advance(10 * SECOND)
        (row,) = await app.rows(Kept)
        assert row.processed_at == virtual_clock.start
    (unknown,) = timeline.of(events.OutcomeUnknown)
    assert unknown.is_gone  # type: ignore[attr-defined]
    assert len(handler.runs) == 1


async def test_a_settlement_of_unknown_outcome_that_was_not_written_is_written_then(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    from inboxkit import OutcomeUnknownError

    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse(
        "settle", error=lambda operation: OutcomeUnknownError("broken", statement="settle")
    )
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(10 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(handler.runs) == len(timeline.of(events.Finished)) == 1


@pytest.mark.parametrize("lease", [timedelta(seconds=1), timedelta(seconds=30)])
async def test_a_settlement_that_failed_is_repeated_while_its_hold_lasts(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
    lease: timedelta,
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse("settle", times=2)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler, lease=lease)) as app:
        await app.advance(30 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(handler.runs) == len(timeline.of(events.Finished)) == 1
    assert len(warnings(caplog, "settlement of row 1 failed")) == 1


async def test_a_settlement_is_repeated_for_as_long_as_renewals_keep_the_hold(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """Such as a row that somebody else keeps locked for two minutes."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    fault = observed(inbox_database).faults.refuse("settle", times=10_000)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(2 * MINUTE)
        assert fault.hits > 10
        observed(inbox_database).faults.clear()
        await app.advance(10 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(handler.runs) == 1


async def test_without_renewals_the_repeats_end_with_the_hold_and_the_row_comes_back(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    faults = observed(inbox_database).faults
    faults.refuse("settle", times=10_000)
    faults.refuse("renew", times=10_000)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(29 * SECOND)
        assert len(handler.runs) == 1
        faults.clear()
        await app.advance(3 * SECOND)
        assert handler.attempts == [1, 2]
        assert await count(inbox_database, Plain) == 0
    assert len(warnings(caplog, "row 1 could not be settled")) == 1


async def test_a_row_whose_settlement_a_constraint_refuses_returns_at_its_expiry(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not spin, and keeps nobody from working: the others go on with the only worker."""
    await create(inbox_database, Plain)
    first, *_ = await put(inbox_database, PLAIN, *range(5))
    await refuse(inbox_database, Plain, first)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(29 * SECOND)
        assert handler.numbers == [0, 1, 2, 3, 4]
        assert len(settlements(inbox_database)) <= 6
        await app.advance(60 * SECOND)
        assert handler.numbers == [0, 1, 2, 3, 4, 0, 0]
        assert [row[0] for row in await table(inbox_database, Plain)] == [first]
    assert "refused by a trigger" in caplog.text


async def test_a_settlement_that_the_database_refuses_for_now_is_repeated_without_a_second_run(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """Such as a table that is being altered."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse(
        "settle", times=3, error=lambda operation: DatabaseError("no such column")
    )
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(25 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(handler.runs) == 1


async def test_one_failing_row_does_not_hold_up_those_that_settle_with_it(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    ids = await put(inbox_database, PLAIN, *range(10))
    await refuse(inbox_database, Plain, ids[3])
    handler = Handler(5)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=10)) as app:
        await app.advance(5 * SECOND)
        assert [row[0] for row in await table(inbox_database, Plain)] == [ids[3]]
    assert len(timeline.of(events.Finished)) == 9


async def test_a_log_handler_that_raises_keeps_no_settlement_from_being_written(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    import logging

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("disk full")

    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)
    text = "x\0y\ud800" * 100_000
    handler = Handler(by={1: ValueError(text), 2: drop("a\0b\ud800"), 3: None})
    broken = Broken()
    logger = logging.getLogger("inboxkit")
    logger.addHandler(broken)
    try:
        async with TestApp(serve(inbox_database, JOBS, handler, workers=3)) as app:
            assert [row.attempt for row in await app.rows(Job)] == [2]
            await app.advance(10 * SECOND)
            assert len(handler.runs) > 3
    finally:
        logger.removeHandler(broken)


async def test_the_text_of_a_failure_is_cut_and_made_printable(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The traceback, which is the handler's own, cannot be sent to another process of the test run.
    monkeypatch.setattr(logging.getLogger("inboxkit"), "propagate", False)
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(ValueError("x\0y\ud800" * 100_000), None)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(2 * SECOND)
    (failed,) = timeline.of(events.Failed)
    assert len(failed.error) < 600  # type: ignore[attr-defined]
    assert failed.error.isprintable()  # type: ignore[attr-defined]


async def test_a_row_that_others_keep_locked_holds_up_no_other_settlement(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    if inbox_database.dialect == "sqlite":
        pytest.skip("SQLite locks no rows")
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(5))
    handler = Handler(by={0: 5, 1: 5, 2: 5, 3: 6, 4: 5})
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=5)) as app:
        await app.advance(SECOND)
        async with inbox_database.connection() as other:
            await other.execute("BEGIN")
            await other.execute("SELECT * FROM plain_jobs WHERE id = 3 FOR UPDATE")
            # The group has a tenth of the lease; then each goes by itself, perhaps row 3 first.
            await app.advance(14 * SECOND)
            assert [row[0] for row in await table(inbox_database, Plain)] == [3]
            await app.publish(PLAIN, Work(9))
            await app.advance(4 * SECOND)
            assert [row[0] for row in await table(inbox_database, Plain)] == [3]
            await other.execute("ROLLBACK")
        await app.advance(10 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []
    assert len(handler.runs) == len(timeline.of(events.Finished)) == 6


async def test_settlements_that_wait_for_the_writer_of_another_process_are_written_after_it(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(5))
    handler = Handler(5)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=5)) as app:
        await app.advance(4 * SECOND)
        observed(inbox_database).faults.delay("settle", 8)
        await app.advance(20 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert len(handler.runs) == len(timeline.of(events.Finished)) == 5
