"""Outcomes: what a handler answers, and what becomes of its row."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    KEPT,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Kept,
    Plain,
    Work,
    count,
    create,
    put,
    serve,
    table,
    warnings,
)

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Outcome,
    Service,
    Settle,
    ack,
    drop,
    events,
    retry,
    retry_after,
    subscriber,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock


@pytest.mark.parametrize("outcome", [None, ack(), drop("because")], ids=str)
async def test_ack_drop_and_nothing_finish_the_row(
    inbox_database: Database, virtual_clock: VirtualClock, outcome: Any
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(outcome)
    async with TestApp(serve(inbox_database, JOBS, handler)):
        assert await count(inbox_database, Job) == 0
        assert len(handler.runs) == 1


async def test_finished_rows_stay_where_the_table_says_so(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Kept)
    await put(inbox_database, KEPT, 1, 2)
    handler = Handler(by={2: drop("no")})
    async with TestApp(serve(inbox_database, KEPT, handler)) as app:
        await app.advance(10 * SECOND)
        rows = await app.rows(Kept)
        assert [row.processed_at for row in rows] == [virtual_clock.start] * 2
        assert [row.locked_until for row in rows] == [None, None]
        assert handler.numbers == [1, 2]


async def test_a_drop_tells_its_reason_in_a_warning(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    timeline: Timeline,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2)
    handler = Handler(by={1: drop("100% wrong"), 2: drop()})
    async with TestApp(
        serve(inbox_database, JOBS, handler, max_attempts=1, dead_letter="x")
    ) as app:
        assert await app.rows(Job) == []  # a dropped row is no dead letter
    (warning,) = warnings(caplog, "100% wrong")
    assert "'jobs'" in warning
    assert "row 1" in warning
    assert "attempt 1" in warning
    assert len(warnings(caplog, "no reason given")) == 1
    reasons = [(e.outcome, e.reason) for e in timeline.of(events.Finished)]  # type: ignore[attr-defined]
    assert reasons == [("drop", "100% wrong"), ("drop", "")]


async def test_retry_hands_the_row_out_again_at_once_as_its_next_attempt(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(retry(), retry(), None)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=5)):
        assert handler.attempts == [1, 2, 3]
        assert await count(inbox_database, Job) == 0


async def test_retry_after_is_due_at_its_very_instant(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Measured from the settlement, and whatever the poll interval is."""
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def later(delivery: Delivery) -> Any:
        await delivery.clock.sleep(2)
        return retry_after(timedelta(seconds=7.123456))

    handler = Handler(later, None)
    async with TestApp(serve(inbox_database, JOBS, handler, poll_interval=HOUR)) as app:
        await app.advance(20 * SECOND)
        assert handler.times == [0, 9.123]
        assert handler.attempts == [1, 2]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=-5)], ids=str)
async def test_zero_and_negative_delays_are_due_at_once(
    inbox_database: Database, frozen_clock: VirtualClock, delay: timedelta
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(retry_after(delay), None)
    async with TestApp(serve(inbox_database, JOBS, handler)):
        assert handler.attempts == [1, 2]


async def test_a_delay_without_end_saturates(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2)
    handler = Handler(by={1: retry_after(timedelta.max)})
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(60 * SECOND)
        (row,) = await app.rows(Job)
        assert row.retry_after.year == 9999
        assert handler.numbers == [1, 2]


async def test_a_delay_without_the_column_is_a_retry_with_one_warning(
    inbox_database: Database, frozen_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(retry_after(HOUR), retry_after(HOUR), None)
    async with TestApp(serve(inbox_database, PLAIN, handler)):
        assert handler.attempts == [1, 2, 3]
    assert len(warnings(caplog, "needs a retry_after column")) == 1


async def test_a_raised_settle_settles_from_deep_inside(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2)
    handler = Handler(by={1: Settle(retry_after(HOUR)), 2: Settle(ack())})
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        (row,) = await app.rows(Job)
        assert row.retry_after == virtual_clock.start + HOUR


async def test_an_exception_that_replaces_a_settle_wins(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def replaced(delivery: Delivery) -> None:
        try:
            raise Settle(ack())
        finally:
            raise ValueError("and then the clean-up failed")

    handler = Handler(replaced, None)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(3 * SECOND)
        assert handler.attempts == [1, 2]
    assert len(timeline.of(events.Failed)) == 1


@pytest.mark.parametrize(
    "answer",
    ["ack", 0, False, True, object(), Settle(ack()), Settle("ack"), [ack()]],
    ids=["text", "0", "False", "True", "object", "Settle", "Settle of text", "list"],
)
async def test_anything_else_is_the_handlers_error(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def odd(delivery: Delivery) -> Any:
        if isinstance(answer, Settle) and answer.outcome == "ack":
            raise answer
        return answer

    handler = Handler(odd, None)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        (row,) = await app.rows(Job)
        assert row.attempt == 2
        await app.advance(3 * SECOND)
        assert await count(inbox_database, Job) == 0
    assert len(warnings(caplog, "returns ack()")) == 1


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("coroutine", r"not the coroutine of .*later, which was not awaited: write return await"),
        ("maker", r"not the function retry: call it"),
    ],
)
async def test_a_forgotten_await_or_call_is_told_with_the_handlers_name(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    returned: str,
    said: str,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def later() -> Outcome:
        return ack()

    @subscriber(JOBS)
    async def forgetful(work: Work, delivery: Delivery) -> Any:
        if delivery.attempt > 1:
            return None
        return later() if returned == "coroutine" else retry

    app = Service("service", Broker(inbox_database))
    app.include(forgetful)
    async with TestApp(app) as test:
        await test.advance(3 * SECOND)
        assert await test.rows(Job) == []
    assert re.search(f"handler 'forgetful' returns .*{said}", caplog.text)


async def test_a_handler_past_its_timeout_is_cancelled_and_has_failed(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(100, 1)
    app = serve(inbox_database, JOBS, handler, timeout=5 * SECOND)
    async with TestApp(app) as running:
        await running.advance(10 * SECOND)
        assert handler.cancelled == [(1, 5)]
        assert handler.attempts == [1, 2]
        assert 5.9 <= handler.times[1] <= 6.1
        assert await count(inbox_database, Job) == 0
    (failed,) = timeline.of(events.Failed)
    assert "TimeoutError" in failed.error  # type: ignore[attr-defined]
    assert not handler.deliveries[0].lost.is_set()


async def test_a_timeout_that_the_handler_catches_is_its_own_affair(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def clean_up(delivery: Delivery) -> Any:
        import anyio

        with anyio.move_on_after(1):
            await anyio.sleep(10)
        return drop("too slow")

    handler = Handler(clean_up)
    async with TestApp(serve(inbox_database, JOBS, handler, timeout=5 * SECOND)) as running:
        await running.advance(10 * SECOND)
        assert await table(inbox_database, Job) == []
        assert len(handler.runs) == 1
        assert math.isclose(virtual_clock.monotonic(), 10)
