"""Outages: the database does not answer for a while, and the service outlives it."""

from __future__ import annotations

import itertools

import pytest
from database_cells import everywhere, on
from runtime_kit import (
    JOBS,
    MINUTE,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    approximately,
    count,
    create,
    observed,
    put,
    serve,
    warnings,
)
from server_kit import kill

from inboxkit import Broker, Database, Service, events, subscriber
from inboxkit.errors import ConnectError
from inboxkit_testing import TestApp, Timeline, VirtualClock

EVERYTHING = ("claim", "settle", "renew", "settle check", "renew check")


async def test_claims_back_off_from_one_second_to_thirty_with_one_record(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(0.5 * SECOND)
        tries: list[float] = []

        def refused(operation: object) -> Exception:
            tries.append(virtual_clock.monotonic())
            from inboxkit import DatabaseBusyError

            return DatabaseBusyError("no server", statement="claim")

        observed(inbox_database).faults.refuse("claim", times=10_000, error=refused)
        await app.advance(3 * MINUTE)
        waits = [b - a for a, b in itertools.pairwise(tries)]
        for wait, exact in zip(waits, [0, 1, 2, 4, 8, 16, 30, 30, 30], strict=False):
            assert 0.9 * exact <= wait <= exact + 0.001
        assert len(waits) >= 8
        assert len(set(approximately(waits[-2:]))) == 2  # a jitter
        # Nothing shortens the wait: not a wake.
        before = len(tries)
        app.broker.wake(JOBS)
        await app.settle()
        assert len(tries) == before
        assert len(warnings(caplog, "a claim failed")) == 1
        observed(inbox_database).faults.clear()
        await put(inbox_database, JOBS, 1)
        await app.advance(31 * SECOND)
        assert handler.numbers == [1]
        assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
        assert len(warnings(caplog, "answers again")) == 1
        # Polls come each second again; the next outage is told of anew.
        observed(inbox_database).faults.refuse("claim", times=3)
        await app.advance(20 * SECOND)
    assert len(warnings(caplog, "a claim failed")) == 2


async def test_a_claim_that_is_not_answered_for_a_minute_is_given_up_and_repeated(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Not sooner, whatever wakes the queue meanwhile; nor does the minute begin before the claim."""
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(5 * MINUTE)
        held = observed(inbox_database).faults.delay("claim", 3600)
        await app.advance(2 * SECOND)
        assert held.hits == 1
        await put(inbox_database, JOBS, 1)
        for _ in range(5):
            app.broker.wake(JOBS)
            await app.advance(11 * SECOND)
        assert handler.numbers == []
        assert warnings(caplog, "a claim failed") == []
        await app.advance(8 * SECOND)
        assert handler.numbers == [1]
        assert len(warnings(caplog, "a claim failed")) == 1
        # And the queue sleeps and is woken as before.
        claims = len(observed(inbox_database).recording.transactions("claim"))
        await app.advance(10 * SECOND)
        assert len(observed(inbox_database).recording.transactions("claim")) - claims in {
            10,
            11,
            12,
        }
        await app.publish(JOBS, Work(2))
        assert handler.numbers == [1, 2]


@everywhere
async def test_an_outage_of_everything_is_one_record_and_loses_nothing(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ten seconds: handlers in work go on, and are settled once it is over."""
    await create(inbox_database, Plain, Job)
    await put(inbox_database, PLAIN, *range(6))
    handler = Handler(by={0: 12, 1: 14, 2: 16, 3: 18, 4: 40, 5: 40})
    app = Service("service", Broker(inbox_database))
    app.include(subscriber(PLAIN)(handler), workers=6)  # type: ignore[arg-type]
    app.include(subscriber(JOBS)(Handler()))  # type: ignore[arg-type]
    async with TestApp(app) as running:
        await running.advance(10 * SECOND)
        faults = observed(inbox_database).faults
        refused = [faults.refuse(name, times=10_000) for name in EVERYTHING]
        await running.advance(10 * SECOND)
        faults.clear()
        assert all(fault.hits for fault in refused[:3])
        await running.advance(60 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert sorted(handler.numbers) == list(range(6))
    assert timeline.of(events.Lost) == []
    assert len(timeline.of(events.Finished)) == 6
    records = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(records) == 1, records


async def test_an_outage_longer_than_the_lease_hands_the_rows_out_again(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1, 2)
    handler = Handler(12, 100, 0)
    async with TestApp(serve(inbox_database, PLAIN, handler, workers=2)) as app:
        await app.advance(10 * SECOND)
        faults = observed(inbox_database).faults
        for name in EVERYTHING:
            faults.refuse(name, times=10_000)
        await app.advance(50 * SECOND)
        faults.clear()
        await app.advance(60 * SECOND)
        assert await count(inbox_database, Plain) == 0
    assert sorted(handler.numbers) == [1, 1, 2, 2]
    assert sorted(a for a in handler.attempts if a) == [1, 1, 2, 2]
    assert (
        len(timeline.of(events.Lost)) == 1
    )  # the one whose handler ran; the other could not settle


async def test_no_connection_is_an_outage_too(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        observed(inbox_database).faults.refuse(
            "claim", times=3, error=lambda operation: ConnectError("no route to host")
        )
        await app.advance(2 * SECOND)
        await put(inbox_database, JOBS, 1)
        await app.advance(10 * SECOND)
        assert handler.numbers == [1]


@everywhere
async def test_a_claim_whose_answer_is_lost_is_found_again_at_its_expiry(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """It counts: nobody can know that no handler ran."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    observed(inbox_database).faults.lose_reply("claim")
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await app.advance(29 * SECOND)
        assert handler.runs == []
        await app.advance(3 * SECOND)
        assert handler.attempts == [2]


@on("postgres", "mariadb", "mysql")
async def test_sessions_that_the_server_ends_are_replaced(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """An administrator kills all connections while a row is in work: it is settled all the same, once."""
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(20)
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        for _ in range(2):
            await app.advance(9.7 * SECOND)
            sessions = [c.session for c in observed(inbox_database).observed._connections]
            assert sessions
            await kill(inbox_database, [session for session in sessions if session is not None])
        await app.advance(10 * SECOND)
        assert await count(inbox_database, Plain) == 0
        await app.publish(PLAIN, Work(2))
        await app.advance(25 * SECOND)
        assert handler.numbers == [1, 2]
    assert timeline.of(events.Lost) == []
    assert len(timeline.of(events.Finished)) == 2


async def test_serialization_failures_of_claims_lose_no_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    observed(inbox_database).faults.refuse("claim", times=3)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=3)) as app:
        for n in range(5):
            await app.broker.publish(JOBS, Work(n))
        await app.advance(10 * SECOND)
        assert sorted(handler.numbers) == list(range(5))
