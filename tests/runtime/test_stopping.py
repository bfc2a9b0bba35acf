"""Stopping: drain, cancel, release; and what each gives back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from database_cells import cells, everywhere
from runtime_kit import (
    FIFO,
    HOUR,
    JOBS,
    MINUTE,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    another,
    count,
    create,
    observed,
    put,
    serve,
    table,
    warnings,
)

from inboxkit import Database, Delivery, Inbox, InboxQueue, ack, events, role
from inboxkit_testing import TestApp, Timeline, VirtualClock
from inboxkit_testing.faults import Operation


@everywhere
async def test_a_stop_claims_no_more_and_waits_for_the_handlers(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2, 3)
    handler = Handler(10)
    async with serve(inbox_database, PLAIN, handler, workers=2).running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
        handle.stop()
    assert sorted(handler.ended) == [1, 2]
    assert virtual_clock.monotonic() == 10
    assert await table(inbox_database, Plain) == [(3, 1)]
    handle.stop()
    handle.cancel()


async def test_leaving_the_block_stops_the_service_in_order(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(10)
    async with serve(inbox_database, PLAIN, handler).running():
        await virtual_clock.settle()
    assert handler.ended == [1]
    assert await count(inbox_database, Plain) == 0


async def test_the_drain_keeps_renewing_so_that_no_other_process_gets_the_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    handler, rival = Handler(45), Handler()
    other = another(inbox_database)
    app = serve(inbox_database, PLAIN, handler, lease=10 * SECOND, drain_timeout=MINUTE)
    await put(inbox_database, PLAIN, 1)
    async with app.running() as handle:
        await virtual_clock.advance(5 * SECOND)
        async with other, serve(other, PLAIN, rival).running():
            handle.stop()
            await virtual_clock.advance(50 * SECOND)
    assert rival.runs == []
    assert handler.ended == [1]
    assert await count(inbox_database, Plain) == 0


@everywhere
async def test_after_the_drain_timeout_handlers_are_cancelled_and_their_rows_given_back(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2)
    handler = Handler(by={1: 1000, 2: 3})
    app = serve(inbox_database, PLAIN, handler, workers=2, drain_timeout=5 * SECOND)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
    assert handler.cancelled == [(1, 6)]
    assert await table(inbox_database, Plain, "id", "attempt", "locked_until") == [(1, 1, None)]
    (released,) = timeline.of(events.Released)
    assert released.given_back is True  # type: ignore[attr-defined]
    assert timeline.of(events.Failed) == timeline.of(events.Lost) == []


async def test_three_deployments_use_up_no_attempt(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(100, 100, 100, 1)
    settings: dict[str, Any] = {"max_attempts": 2, "dead_letter": "jobs.dead"}
    for _ in range(3):
        app = serve(inbox_database, JOBS, handler, drain_timeout=SECOND, **settings)
        async with app.running() as handle:
            await virtual_clock.advance(SECOND)
            handle.stop()
    async with TestApp(serve(inbox_database, JOBS, handler, **settings)) as app4:
        await app4.advance(2 * SECOND)
        assert handler.attempts == [1, 1, 1, 1]
        assert await app4.rows(Job) == []


async def raises_when_cancelled(delivery: Delivery) -> None:
    """As a driver does, whose connection was broken off by the cancellation."""
    try:
        await anyio.sleep(1000)
    except anyio.get_cancelled_exc_class():
        raise ConnectionError("broken off") from None


async def answers_when_cancelled(delivery: Delivery) -> Any:
    try:
        await anyio.sleep(1000)
    except anyio.get_cancelled_exc_class():
        return ack()


async def cleans_up_when_cancelled(delivery: Delivery) -> None:
    try:
        await anyio.sleep(1000)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(2)


@pytest.mark.parametrize("how", [raises_when_cancelled, cleans_up_when_cancelled])
async def test_what_a_cancelled_handler_raises_is_no_failure(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, how: Any
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    app = serve(inbox_database, JOBS, Handler(how), max_attempts=1, dead_letter="dead")
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.cancel()
    assert await table(inbox_database, Job, "name", "attempt") == [("jobs", 1)]
    assert timeline.of(events.Failed) == []


async def test_a_handler_that_answers_its_cancellation_is_settled(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    async with serve(inbox_database, JOBS, Handler(answers_when_cancelled)).running() as handle:
        await virtual_clock.advance(SECOND)
        handle.cancel()
    assert await count(inbox_database, Job) == 0


@everywhere
@pytest.mark.parametrize("way", ["run", "running"])
async def test_a_cancellation_from_outside_gives_the_rows_back(
    inbox_database: Database, virtual_clock: VirtualClock, way: str
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2, 3)
    handler = Handler(cleans_up_when_cancelled)
    app = serve(inbox_database, PLAIN, handler, workers=3, lease=10 * MINUTE)

    async def run() -> None:
        if way == "run":
            await app.run()
        else:
            async with app.running():
                await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.sleep(5)
        tasks.cancel_scope.cancel()
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)] * 3
    assert virtual_clock.monotonic() == 7


@pytest.mark.parametrize("way", ["run", "running"])
async def test_asyncios_own_cancellation_gives_the_rows_back(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_backend: str, way: str
) -> None:
    """`Task.cancel` passes every shield."""
    if inbox_backend == "trio":
        pytest.skip("asyncio's")
    import asyncio

    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2, 3)
    handler = Handler(cleans_up_when_cancelled)
    app = serve(inbox_database, PLAIN, handler, workers=3, lease=10 * MINUTE)

    async def run() -> None:
        if way == "run":
            await app.run()
        else:
            async with app.running():
                await anyio.sleep_forever()

    task = asyncio.create_task(run())
    await anyio.sleep(5)
    task.cancel()
    await anyio.sleep(1)
    task.cancel()  # once more, while it ends
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)] * 3
    assert observed(inbox_database)


async def test_asyncios_timeout_gives_the_rows_back(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_backend: str
) -> None:
    if inbox_backend == "trio":
        pytest.skip("asyncio's")
    import asyncio

    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    app = serve(inbox_database, PLAIN, Handler(100), lease=10 * MINUTE)

    async def run() -> None:
        async with asyncio.timeout(5):
            await app.run()

    with pytest.raises(TimeoutError):
        await run()
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)]


@everywhere
async def test_rows_of_a_claim_that_answers_after_the_stop_are_given_back(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    handler = Handler()
    async with serve(inbox_database, PLAIN, handler, lease=HOUR).running() as handle:
        await virtual_clock.settle()
        observed(inbox_database).faults.delay("claim", 10)
        await virtual_clock.advance(2 * SECOND)
        await put(inbox_database, PLAIN, 1)
        handle.stop()
        await virtual_clock.settle()
    assert handler.runs == []
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)]


async def test_a_claim_that_never_answers_does_not_keep_the_service(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    app = serve(inbox_database, PLAIN, Handler(), drain_timeout=5 * SECOND)
    async with app.running() as handle:
        await virtual_clock.settle()
        observed(inbox_database).faults.delay("claim", 10_000)
        await virtual_clock.advance(2 * SECOND)
        handle.stop()
    assert virtual_clock.monotonic() <= 2 + 5 + 5 + 5 + 2


async def test_rows_that_no_handler_has_yet_go_back_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """Claimed and not started when the stop comes: free at once, and not counted."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, *range(8))
    handler = Handler(100)
    app = serve(inbox_database, PLAIN, handler, workers=8, lease=10 * MINUTE)
    async with app.running() as handle:
        handle.stop()
        await frozen_clock.settle()
        handle.cancel()
    rows = await table(inbox_database, Plain, "attempt", "locked_until")
    assert rows == [(1, None)] * 8


async def test_settlements_that_fail_are_tried_once_more_before_the_end(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    fault = observed(inbox_database).faults.refuse("settle", times=10_000)
    app = serve(inbox_database, PLAIN, Handler(), drain_timeout=10 * SECOND, lease=10 * MINUTE)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
        await virtual_clock.advance(14 * SECOND)
        observed(inbox_database).faults.clear()
        assert fault.hits > 2
    assert await count(inbox_database, Plain) == 0
    assert len(timeline.of(events.Finished)) == 1


async def test_a_row_that_cannot_be_settled_does_not_keep_the_service(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.refuse("settle", times=100_000)
    app = serve(inbox_database, PLAIN, Handler(), drain_timeout=10 * SECOND)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
    assert virtual_clock.monotonic() <= 1 + 10 + 5 + 5
    observed(inbox_database).faults.clear()
    assert await count(inbox_database, Plain) == 1


LEFT = {
    "a settlement is not answered": (Handler, lambda faults: faults.delay("settle", 10_000)),
    "a settlement fails again and again": (
        Handler,
        lambda faults: faults.refuse("settle", times=100_000),
    ),
    "a release is not answered": (
        lambda: Handler(1000),
        lambda faults: faults.delay("settle", 10_000),
    ),
}


@pytest.mark.parametrize("why", LEFT)
async def test_the_log_names_each_row_that_a_stop_leaves(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    make, harm = LEFT[why]
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2)
    harm(observed(inbox_database).faults)
    app = serve(inbox_database, PLAIN, make(), drain_timeout=SECOND, workers=2, lease=10 * MINUTE)
    async with app.running() as handle:
        await virtual_clock.advance(0.5 * SECOND)
        handle.stop()
    assert sorted(event.id for event in timeline.of(events.Unsettled)) == [1, 2]
    for row in (1, 2):
        assert len(warnings(caplog, f"row {row} is left unsettled by the stop")) == 1


class Locked(Inbox, table="locked_jobs"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="stop_keyed_jobs", advisory_lock="stopped-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


FORMS = {
    "lease": PLAIN,
    "FIFO": FIFO,
    "row lock": InboxQueue(Locked, "locked", Work),
    "advisory": InboxQueue(Keyed, "keyed", Work),
}
UNANSWERED: dict[str, Callable[[Operation], bool]] = {
    "nothing": lambda operation: True,
    "no statement": lambda operation: operation.kind in ("statement", "script"),
    "no end of a transaction": lambda operation: operation.kind in ("commit", "rollback"),
}


@pytest.mark.parametrize("what", UNANSWERED)
@pytest.mark.parametrize("seconds", [0.5, 1000], ids=["handlers end", "handlers are cancelled"])
@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "form"),
    [
        pytest.param(*cell.values, form, id=f"{cell.id}-{form}", marks=cell.marks)
        for form in FORMS
        for cell in cells("postgres", "mariadb", *(("sqlite",) if form != "row lock" else ()))
    ],
)
async def test_a_stop_lasts_no_longer_than_its_phases_whatever_is_not_answered(
    inbox_database: Database, virtual_clock: VirtualClock, form: str, seconds: float, what: str
) -> None:
    """Each wait for a last word is short, but they come one after the other."""
    queue = FORMS[form]
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1, 2)
    app = serve(inbox_database, queue, Handler(seconds), workers=2, drain_timeout=2 * SECOND)
    async with app.running() as handle:
        await virtual_clock.advance(0.25 * SECOND)
        observed(inbox_database).faults.delay(UNANSWERED[what], 10_000, times=100_000)
        begin = virtual_clock.monotonic()
        handle.stop()
    assert virtual_clock.monotonic() - begin <= 2 + 5 + 5
    observed(inbox_database).faults.clear()
    if what == "nothing":
        assert await count(inbox_database, queue.row) == 2


async def test_a_release_of_unknown_outcome_is_not_repeated(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    fault = observed(inbox_database).faults.lose_reply("settle", times=10)
    app = serve(inbox_database, PLAIN, Handler(100), drain_timeout=SECOND)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
    assert fault.hits == 1


async def test_nothing_is_released_after_a_renewal_of_unknown_outcome(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back at its expiry, counted."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.lose_reply("renew", times=3)
    app = serve(inbox_database, PLAIN, Handler(100), drain_timeout=timedelta(0))
    async with app.running() as handle:
        await virtual_clock.advance(15.5 * SECOND)
        handle.stop()
    ((attempt, locked_until),) = await table(inbox_database, Plain, "attempt", "locked_until")
    assert attempt == 2
    assert locked_until is not None
    assert len(warnings(caplog, "was not released")) == 1


async def test_a_handler_that_swallows_its_cancellation_is_waited_for_beside_others_tasks(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """In a caller's own task group the process is not ours to end: each second is logged."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)

    async def swallow(delivery: Delivery) -> Any:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return ack()

    handler = Handler(swallow)
    app = serve(inbox_database, PLAIN, handler, drain_timeout=5 * SECOND)
    rival = Handler()
    async with another(inbox_database) as other, app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
        async with serve(other, PLAIN, rival).running():
            await virtual_clock.advance(59.5 * SECOND)
    assert rival.runs == []
    assert await count(inbox_database, Plain) == 0  # it answered in the end
    records = warnings(caplog, "handlers do not end")
    assert 40 <= len(records) <= 50
    assert "row 1 of queue 'plain'" in records[0]


async def test_the_attempt_of_an_acked_row_is_not_given_back(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """The handler had ended; a middleware was still at it when the stop came."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    app = serve(inbox_database, PLAIN, Handler(), drain_timeout=SECOND)

    async def linger(delivery: Any, call_next: Any) -> Any:
        outcome = await call_next(delivery)
        await anyio.sleep(100)
        return outcome

    app.use(linger)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
    assert [row[1] for row in await table(inbox_database, Plain)] == [2]
    (released,) = timeline.of(events.Released)
    assert released.given_back is False  # type: ignore[attr-defined]


async def test_a_published_row_is_refused_once_the_service_has_stopped(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    from inboxkit import ClosedError

    await create(inbox_database, Plain)
    app = serve(inbox_database, PLAIN, Handler())
    async with app.running():
        await app.broker.publish(PLAIN, Work(1))
    with pytest.raises(ClosedError, match="closed"):
        await app.broker.publish(PLAIN, Work(2))
