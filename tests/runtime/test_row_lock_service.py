"""The row lock form through a service: sessions hold the rows, in virtual time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from database_cells import on
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Handler,
    Work,
    another,
    approximately,
    count,
    create,
    killed,
    observed,
    put,
    serve,
    table,
    warnings,
)
from server_kit import holders, kill, refuse

from inboxkit import (
    Broker,
    Database,
    Inbox,
    InboxQueue,
    LeaseLostError,
    Service,
    ack,
    drop,
    events,
    retry,
    retry_after,
    role,
    subscriber,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock

pytestmark = on("postgres", "mariadb", "mysql", once=["mariadb"])


class Mail(Inbox, table="locked_mails"):
    """Everything but FIFO and keys."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Bare(Inbox, table="locked_bare"):
    """No attempts and no due times."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Plain(Inbox, table="locked_plain"):
    """No due times."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class DeadPlain(Plain, table="locked_dead"):
    """Where the dead letters of `Plain` go."""


class Line(Inbox, table="locked_lines"):
    """FIFO groups with due times."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="locked_keyed"):
    """Order by partition key."""

    id: int = role.id(generated=True)
    account: str = role.partition_key()
    payload: bytes = role.payload()


MAILS = InboxQueue(Mail, "mails", Work)
DEAD = InboxQueue(Mail, "mails.dead", Work)
BARE = InboxQueue(Bare, "bare", Work)
PLAIN = InboxQueue(Plain, "plain", Work)
LINE = InboxQueue(Line, "line", Work)
KEYED = InboxQueue(Keyed, "keyed", Work)


async def test_the_four_outcomes_and_what_they_count(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Mail)
    handler = Handler(
        retry(), retry_after(timedelta(hours=1)), drop("enough"), None, ValueError("no"), ack()
    )
    async with TestApp(serve(inbox_database, MAILS, handler, poll_interval=HOUR)) as app:
        await app.publish(MAILS, Work(1))
        assert handler.times == [0, 0], "an immediate retry waits for no poll"
        assert await table(inbox_database, Mail, "attempt", "retry_after") == [
            (3, virtual_clock.now() + HOUR)
        ]
        await app.advance(HOUR)
        assert handler.attempts == [1, 2, 3]
        assert await count(inbox_database, Mail) == 0
        await app.publish(MAILS, Work(2))
        await app.publish(MAILS, Work(3))
        await app.advance(1.2 * SECOND)
        assert handler.numbers[3:] == [2, 3, 3]
        assert handler.attempts[3:] == [1, 1, 2]
        assert 0.89 <= handler.times[5] - handler.times[4] <= 1.11
        assert await holders(inbox_database) == []
    kinds = [type(event).__name__ for event in timeline if isinstance(event, events.RowEvent)]
    assert [kind for kind in kinds if kind != "Claimed"] == [
        *("Retried", "Retried", "Finished", "Finished", "Failed", "Retried", "Finished")
    ]


@pytest.mark.parametrize("kind", ["group", "table"])
async def test_the_last_attempt_goes_to_the_dead_letter_with_its_number(
    inbox_database: Database, virtual_clock: VirtualClock, kind: str
) -> None:
    await create(inbox_database, Mail, Plain, DeadPlain)
    queue, dead = (MAILS, "mails.dead") if kind == "group" else (PLAIN, "locked_dead")
    handler, mourner = Handler(retry(), ValueError("no"), retry()), Handler()
    app = serve(inbox_database, queue, handler, max_attempts=3, dead_letter=dead)
    if kind == "group":
        app.include(subscriber(DEAD)(mourner))  # type: ignore[arg-type]
    async with TestApp(app) as test:
        await test.publish(queue, Work(1))
        await test.advance(5 * SECOND)
        assert handler.attempts == [1, 2, 3]
        if kind == "group":
            assert mourner.attempts == [3]
            assert await count(inbox_database, Mail) == 0
        else:
            assert await table(inbox_database, DeadPlain) == [(1, 3)]
            assert await count(inbox_database, Plain) == 0


async def test_handlers_of_five_minutes_keep_their_rows_from_everybody_else(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Time passes in a transaction that the runtime keeps."""
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1, 2)
    handler, rival = Handler(300), Handler(300)
    other = another(inbox_database)
    async with (
        other,
        serve(inbox_database, MAILS, handler, workers=4, poll_interval=MINUTE).running(),
        serve(other, MAILS, rival, workers=4, poll_interval=MINUTE).running(),
    ):
        await virtual_clock.advance(4 * MINUTE)
        assert handler.now + rival.now == 2
        await virtual_clock.advance(2 * MINUTE)
        assert sorted(handler.ended + rival.ended) == [1, 2]
        assert await count(inbox_database, Mail) == 0


async def test_a_full_pool_keeps_one_connection_and_every_settlement_admits_one(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, *range(16))
    handler = Handler(10)
    async with another(inbox_database, pool_size=3) as small:
        async with serve(small, MAILS, handler, workers=8, poll_interval=HOUR).running() as handle:
            await virtual_clock.advance(SECOND)
            assert handler.now == 2
            assert await small.fetch_value("SELECT 1") == 1
            await virtual_clock.advance(40 * SECOND)
            assert handler.most == 2
            assert len(handler.runs) == 10
            assert approximately(handler.times) == sorted([0.0, 10.0, 20.0, 30.0, 40.0] * 2)
            start = virtual_clock.monotonic()
            handle.stop()
        assert virtual_clock.monotonic() - start <= 9, "nobody waits for room at a stop"
        assert small.room._free == 2
        assert small._pool is not None
        assert small._pool.in_use == 0
    assert await count(inbox_database, Mail) == 6


async def test_subscriptions_that_share_a_small_pool_take_turns(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail, Plain)
    await put(inbox_database, MAILS, *range(16))
    await put(inbox_database, PLAIN, *range(16))
    first, second = Handler(10), Handler(10)
    async with another(inbox_database, pool_size=3) as small:
        app = serve(small, MAILS, first, workers=8)
        app.include(subscriber(PLAIN)(second), workers=2)  # type: ignore[arg-type]
        async with app.running() as handle:
            await virtual_clock.advance(95 * SECOND)
            assert abs(len(first.runs) - len(second.runs)) <= 2
            assert len(first.runs) + len(second.runs) == 20
            handle.cancel()


async def test_an_empty_queue_is_asked_once_a_poll_whatever_the_workers(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    handler = Handler(5)
    async with TestApp(serve(inbox_database, MAILS, handler, workers=8)) as app:
        recording = observed(inbox_database).recording
        await app.advance(10 * SECOND)
        assert 10 <= len(recording.transactions("claim")) <= 13
        await put(inbox_database, MAILS, *range(8))  # wakes nobody
        await app.advance(1.1 * SECOND)
        assert handler.now == 8
        assert max(handler.times) - min(handler.times) < 0.01
        recording.clear()
        await app.advance(3 * SECOND)
        assert recording.statements("claim") == [], "there is no worker for more"


@pytest.mark.parametrize("queue", [BARE, PLAIN, LINE], ids=["bare", "plain", "fifo"])
async def test_a_row_that_always_fails_does_not_spin(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Any
) -> None:
    """No column keeps its back-off, or it would lose its place: so the queue rests."""
    await create(inbox_database, queue.row)
    handler = Handler(ValueError("no"))
    async with TestApp(serve(inbox_database, queue, handler, poll_interval=HOUR)) as app:
        await app.publish(queue, Work(1))
        await app.advance(60 * SECOND)
        gaps = [b - a for a, b in zip(handler.times, handler.times[1:], strict=False)]
        assert min(gaps) >= 0.999
        if queue is BARE:
            assert 50 <= len(handler.runs) <= 61, "without attempts it is the first delay always"
        else:
            assert handler.attempts == list(range(1, len(gaps) + 2))
            assert 5 <= len(handler.runs) <= 7


async def test_a_settlement_that_is_refused_does_not_spin_and_counts_nothing(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1, 2)
    await refuse(inbox_database, Mail, 1)
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler, workers=2, poll_interval=HOUR)) as app:
        await app.advance(20.5 * SECOND)
        assert handler.numbers.count(2) == 1
        assert handler.numbers.count(1) == 4, "each second at first, and then each ten"
        assert set(handler.attempts) == {1}
        assert await table(inbox_database, Mail) == [(1, 1)]
        told = warnings(caplog, "row 1 could not be settled")
        assert len(told) == handler.numbers.count(1)
    assert "ConstraintError" in str(next(r.exc_info for r in caplog.records if r.exc_info))


async def test_lost_answers_are_said_and_nothing_is_repeated_or_stuck(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Mail)
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler)) as app:
        faults = observed(inbox_database).faults
        settlement, claim = faults.lose_reply("settle"), faults.lose_reply("claim")
        await app.publish(MAILS, Work(1))
        await app.advance(3 * SECOND)
        await app.publish(MAILS, Work(2))
        assert (settlement.hits, claim.hits) == (1, 1)
        assert handler.numbers == [1, 2]
        assert handler.attempts == [1, 1]
        held = observed(inbox_database).recording.transactions("claim")
        settled = [t.outcome for t in held if any(s.script == "settle" for s in t.statements)]
        assert settled == ["failed", "committed"]
    assert inbox_database.room._free == 9
    assert len(warnings(caplog, "the answer to its settlement was lost")) == 1
    assert len(warnings(caplog, "a claim failed")) == 1
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 2


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_connection_that_the_server_ends_loses_the_row_uncounted(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
    workers: int,
) -> None:
    await create(inbox_database, Mail)
    seen: list[Any] = []

    async def watch(delivery: Any, call_next: Any) -> Any:
        try:
            return await call_next(delivery)
        except LeaseLostError as error:
            seen.append((error.id, delivery.lost.is_set()))
            raise

    handler = Handler(300)
    app = serve(inbox_database, MAILS, handler, workers=workers, poll_interval=HOUR)
    app.use(watch)
    async with TestApp(app) as test:
        await test.publish(MAILS, Work(1))
        await test.advance(MINUTE)
        (session,) = await holders(inbox_database)
        await kill(inbox_database, [session])
        await test.advance(3 * SECOND)
        assert seen == [(1, True)]
        assert [n for n, _ in handler.cancelled] == [1]
        assert handler.cancelled[0][1] <= 62
        assert handler.attempts == [1, 1]
        await test.advance(5 * MINUTE)
        assert handler.ended == [1]
        assert await count(inbox_database, Mail) == 0
        assert inbox_database.room._free == 9
    assert len(timeline.of(events.Lost)) == 1
    assert len(warnings(caplog, "the hold of row 1 is lost")) == 1


async def test_a_crash_gives_the_row_back_at_once_uncounted(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1)
    victim = another(inbox_database)
    async with victim, killed(serve(victim, MAILS, Handler(HOUR.total_seconds()))):
        await virtual_clock.advance(SECOND)
        assert await holders(inbox_database) != []
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler)) as app:
        await app.settle()
        assert handler.attempts == [1]


async def test_an_outage_lets_claims_back_off_with_one_record(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Mail)
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler, workers=4)) as app:
        fault = observed(inbox_database).faults.refuse("begin", times=10_000)
        await app.advance(MINUTE)
        assert 6 <= fault.hits <= 8
        observed(inbox_database).faults.clear()
        await put(inbox_database, MAILS, 1, 2, 3)
        await app.advance(31 * SECOND)
        assert sorted(handler.numbers) == [1, 2, 3]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("how", ["drain", "cancel", "stop", "exit"])
async def test_stops_settle_or_give_back_and_leave_no_session(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, how: str
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1, 2, 3)
    by = {2: KeyboardInterrupt if how == "exit" else 20, 1: 20, 3: 20}
    handler = Handler(by=by)
    drain = (5 if how == "stop" else 30) * SECOND
    app = serve(inbox_database, MAILS, handler, workers=2, drain_timeout=drain)

    async def main() -> None:
        async with app.running() as handle:
            await virtual_clock.advance(SECOND)
            if how == "cancel":
                handle.cancel()
            elif how != "exit":
                handle.stop()

    if how == "exit":
        with pytest.raises(KeyboardInterrupt):
            await main()
        assert handler.ended == [1]
        assert await table(inbox_database, Mail) == [(2, 2), (3, 1)], "counted, then the drain"
    else:
        await main()
        took = {"drain": 20, "cancel": 1, "stop": 6}[how]
        assert round(virtual_clock.monotonic()) == took
        left = [(3, 1)] if how == "drain" else [(1, 1), (2, 1), (3, 1)]
        assert await table(inbox_database, Mail) == left
        given = [event.given_back for event in timeline.of(events.Released)]  # type: ignore[attr-defined]
        assert given == ([] if how == "drain" else [True, True])
    assert await holders(inbox_database) == []
    assert inbox_database.room._free == 9
    assert inbox_database._pool is not None
    assert inbox_database._pool.in_use == 0


async def test_a_fifo_group_is_worked_in_order_and_by_one_process(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Line)
    await put(inbox_database, LINE, 1, 2, 3)
    handler = Handler(by={1: retry()})
    answers = iter([retry(), ValueError("no"), 5])

    async def answer(_: Any) -> Any:
        given = next(answers, 5)
        if isinstance(given, ValueError):
            raise given
        if isinstance(given, int):
            await anyio.sleep(given)
            return ack()
        return given

    handler = Handler(answer)
    other = another(inbox_database)
    async with (
        other,
        serve(inbox_database, LINE, handler, workers=3).running(),
        serve(other, LINE, handler).running(),
    ):
        await virtual_clock.advance(30 * SECOND)
    assert handler.numbers == [1, 1, 1, 2, 3]
    assert handler.attempts == [1, 2, 3, 1, 1]
    assert handler.most == 1


async def test_keyed_rows_keep_their_order_and_queued_ones_are_given_back(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    for n in range(12):
        await put(inbox_database, KEYED, n, account="ab"[n % 2])
    handler = Handler(10)
    app = serve(inbox_database, KEYED, handler, workers_by_key=2, drain_timeout=15 * SECOND)
    async with app.running() as handle:
        await virtual_clock.advance(11 * SECOND)
        assert len(await holders(inbox_database)) == 8
        handle.stop()
    assert [n for n in handler.ended if n % 2 == 0] == [0, 2]
    assert [n for n in handler.ended if n % 2] == [1, 3]
    assert await count(inbox_database, Keyed) == 8
    assert inbox_database.room._free == 9


async def test_two_services_share_a_queue_of_many_rows_without_a_double(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, *range(40))
    handler = Handler(0.01)
    async with another(inbox_database, pool_size=4) as other:
        broker = Broker(inbox_database)
        app = Service("first", broker)
        app.include(subscriber(MAILS)(handler), workers=4)  # type: ignore[arg-type]
        async with app.running(), serve(other, MAILS, handler, workers=8).running():
            await virtual_clock.advance(3 * SECOND)
    assert sorted(handler.numbers) == list(range(40))
