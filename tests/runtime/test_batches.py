"""Handlers of batches: what is in one, what becomes of each row, and what ends it early."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from database_cells import everywhere, on_servers
from runtime_kit import (
    FIFO,
    HOUR,
    KEYED,
    MINUTE,
    SECOND,
    Fifo,
    Work,
    another,
    count,
    create,
    observed,
    put,
    table,
    warnings,
)
from server_kit import allow, holders, kill, locks, refuse

from inboxkit import (
    Ack,
    Backoff,
    Broker,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    LeaseLostError,
    Outcome,
    Service,
    Settle,
    ack,
    drop,
    events,
    insert_rows,
    retry,
    retry_after,
    role,
    subscriber,
)
from inboxkit._runtime.accepting import Intake
from inboxkit._runtime.held import Held, Stage
from inboxkit._runtime.reporting import Reporter
from inboxkit.abc import Claim, Claimed, Fence, Reading
from inboxkit_testing import TestApp, Timeline, VirtualClock, World
from inboxkit_testing.app import Call


class Leased(Inbox, table="batch_leased"):
    """Held by leases."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="batch_locked"):
    """Held by row locks."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Advisory(Inbox, table="batch_advisory", advisory_lock="batch_advisory-{account}"):
    """Held by keys; rows of one account are in work one at a time."""

    id: int = role.id(generated=True)
    name: str = role.group()
    account: str | None = role.column(default=None)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Plain(Inbox, table="batch_plain"):
    """Row mode: no payload."""

    id: int = role.id(generated=True)
    size: int = role.column()
    locked_until: datetime | None = role.locked_until()


class Keyed(Inbox, table="batch_keyed"):
    """Has partition keys."""

    id: int = role.id(generated=True)
    account: str = role.partition_key()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


QUEUES = {
    "lease": InboxQueue(Leased, "jobs", Work),
    "row lock": InboxQueue(Locked, "jobs", Work),
    "advisory": InboxQueue(Advisory, "jobs", Work),
}
LEASED, LOCKED, ADVISORY = QUEUES.values()
DEAD = "jobs.dead"
CAP = {"max_attempts": 3, "dead_letter": DEAD}


@pytest.fixture(params=list(QUEUES))
def queue(request: pytest.FixtureRequest, inbox_db: str) -> InboxQueue[Any, Work]:
    """One of each form that the database has."""
    if request.param == "row lock" and inbox_db.startswith("sqlite"):
        pytest.skip("SQLite has no row locks")
    return QUEUES[request.param]


class Batches:
    """Notes what it is called with, and answers as told: an answer a call, the last one for ever.

    An answer is an outcome, a list of them or None; seconds to sleep before an ack; an error to raise;
    or an async function of the deliveries.
    """

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers) or [None]
        self.calls: list[list[int]] = []
        self.attempts: list[list[int]] = []
        self.times: list[float] = []
        self.deliveries: list[list[Delivery]] = []
        self.cancelled: list[float] = []
        self.now = self.most = 0

    async def __call__(
        self, deliveries: list[Delivery[Any, Work]]
    ) -> Outcome | Sequence[Outcome] | None:
        clock = deliveries[0].clock
        self.calls.append([delivery.message.n for delivery in deliveries])
        self.attempts.append([delivery.attempt for delivery in deliveries])
        self.times.append(round(clock.monotonic(), 1))
        self.deliveries.append(list(deliveries))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, int | float):
                await clock.sleep(answer)
                return ack()
            outcome: Any = await answer(deliveries) if callable(answer) else answer
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(round(clock.monotonic(), 1))
            raise
        finally:
            self.now -= 1
        return outcome  # type: ignore[no-any-return]


def serve(
    database: Database,
    queue: InboxQueue[Any, Work],
    handler: Batches,
    size: int,
    *,
    poll_interval: timedelta = HOUR,
    drain_timeout: timedelta = 30 * SECOND,
    **settings: Any,
) -> Service:
    app = Service(
        "service", Broker(database, poll_interval=poll_interval), drain_timeout=drain_timeout
    )
    app.include(subscriber(queue, batch=size)(handler), **settings)
    return app


async def fill(database: Database, queue: InboxQueue[Any, Work], *numbers: int) -> list[Any]:
    """Rows of accounts of their own."""
    assert queue.row is not None
    await create(database, queue.row)
    return await more(database, queue, *numbers)


async def more(database: Database, queue: InboxQueue[Any, Work], *numbers: int) -> list[Any]:
    """Rows of one transaction, whose commit wakes the queue."""
    rows = []
    for n in numbers:
        columns = {"account": f"of {n}"} if queue is ADVISORY else {}
        rows.append(queue.row.of(Work(n), name=queue.name, **columns))  # type: ignore[union-attr]
    async with database.transaction() as tx:
        return await insert_rows(tx, *rows)


async def test_six_rows_arrive_as_four_and_two_without_waiting(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await fill(inbox_database, queue, *range(6))
    handler = Batches(7, None)
    app = serve(inbox_database, queue, handler, 4)
    async with TestApp(app) as test:
        assert handler.calls == [[0, 1, 2, 3]]
        (delivery, *_) = handler.deliveries[0]
        assert (delivery.queue, delivery.group, delivery.attempt) == (queue, "jobs", 1)
        assert delivery.row.name == "jobs"
        assert (delivery.deadline is None) == (queue is not LEASED)
        await test.advance(7 * SECOND)
        assert (handler.calls[1:], handler.times) == ([[4, 5]], [0, 7])
        await test.publish(queue, Work(6), **({"account": "x"} if queue is ADVISORY else {}))
        log = test.subscriber(queue.name)
        assert log.calls == [[Work(n) for n in call] for call in ([0, 1, 2, 3], [4, 5], [6])]
        assert log.runs[5] == Call(Work(5), delivery.id + 5, 1, ack(), None)
        assert test.outcomes == [ack()] * 7
        assert await count(inbox_database, queue.row) == 0
    assert await locks(inbox_database) == 0


async def test_workers_have_a_batch_each(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await fill(inbox_database, queue, *range(8))
    handler = Batches(10)
    async with serve(inbox_database, queue, handler, 3, workers=2).running():
        await virtual_clock.advance(5 * SECOND)
        assert sorted(handler.calls) == [[0, 1, 2], [3, 4, 5]]
        if queue is LEASED:
            recording = observed(inbox_database).recording
            claims = [each for each in recording.transactions() if each.name == "claim"]
            assert len(claims) == 1, "one statement for all free workers"
        await virtual_clock.advance(20 * SECOND)
        # Sessions with a row each are claimed side by side, so that the two may share the rest.
        rest = handler.calls[2:]
        assert (
            sorted(rest) == [[6], [7]] if len(rest) == 2 and queue is ADVISORY else rest == [[6, 7]]
        )
        assert handler.most == 2
        assert await count(inbox_database, queue.row) == 0


@everywhere
async def test_what_a_handler_may_return_and_what_becomes_of_each_row(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Work],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(inbox_database, queue.row)
    handler = Batches(
        [ack(), retry(), retry_after(HOUR), drop("enough")],
        retry_after(2 * HOUR),  # of the retried one
        Settle(drop("all")),  # two that are due after an hour and two
        [ack(), ack(), ack(), ack()],
        [ack(), None, 5],
        None,
    )
    app = serve(inbox_database, queue, handler, 4, on_error=Backoff.fixed(MINUTE, jitter=0), **CAP)
    async with app.running():
        first = await more(inbox_database, queue, 0, 1, 2, 3)
        await virtual_clock.settle()
        assert handler.calls == [[0, 1, 2, 3], [1]]
        assert [row[:2] for row in await table(inbox_database, queue.row)] == [
            (first[1], 3),
            (first[2], 2),
        ]
        handler._answers.insert(0, Settle(drop("all")))
        await virtual_clock.advance(3 * HOUR)
        assert (handler.calls[2:], handler.attempts[2:]) == ([[2], [1]], [[2], [3]])
        assert await count(inbox_database, queue.row) == 0
        assert len(warnings(caplog, "dropped row")) == 3

        await more(inbox_database, queue, 4, 5, 6)
        await virtual_clock.settle()
        assert handler.calls[4:] == [[4, 5, 6]]
        assert await count(inbox_database, queue.row) == 3, "nothing tells whose outcomes these are"
        (told,) = {str(r.exc_info[1]) for r in caplog.records if r.exc_info}
        assert "of 3 deliveries returned a list of 4 outcomes" in told
        assert len(warnings(caplog, "failed: ")) == 3
        await virtual_clock.advance(MINUTE)
        assert handler.calls[5:] == [[4, 5, 6]]
        assert len(warnings(caplog, "(at 1, 2: NoneType, int)")) == 2, "what is none fails alone"
        assert [row[1] for row in await table(inbox_database, queue.row)] == [3, 3]
        await virtual_clock.advance(MINUTE)
        assert handler.calls[6:] == [[5, 6]]
        assert await count(inbox_database, queue.row) == 0
    assert await locks(inbox_database) == 0


@pytest.mark.parametrize(
    ("how", "queue"),
    [
        *(("error", form) for form in QUEUES),
        *(("timeout", form) for form in QUEUES),
        ("value", "lease"),
        ("own cancellation", "advisory"),
    ],
    indirect=["queue"],
)
async def test_a_failure_is_each_rows_own_attempt(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Work],
    caplog: pytest.LogCaptureFixture,
    timeline: Timeline,
    how: str,
) -> None:
    ids = await fill(inbox_database, queue, 0, 1, 2)
    name = queue.row.spec.table
    await inbox_database.execute(f"UPDATE {name} SET attempt = 3 WHERE id = $1", ids[1])

    async def cancel(deliveries: list[Delivery]) -> None:
        raise anyio.get_cancelled_exc_class()("mine")

    fault = {"error": ValueError("no"), "timeout": 9, "value": "ack", "own cancellation": cancel}
    handler = Batches(fault[how], None)
    backoff = Backoff.linear(10 * SECOND, jitter=0)
    app = serve(inbox_database, queue, handler, 3, timeout=5 * SECOND, on_error=backoff, **CAP)
    async with app.running():
        await virtual_clock.advance(6 * SECOND)
        rows = await inbox_database.fetch(f"SELECT id, name FROM {name} ORDER BY id")
        assert [tuple(row) for row in rows] == [
            *((ids[0], "jobs"), (ids[1], DEAD), (ids[2], "jobs")),
        ]
        assert {event.delay for event in timeline.of(events.Retried)} == {10 * SECOND}
        assert len(timeline.of(events.Failed)) == 3
        told = [record for record in caplog.records if record.exc_info]
        assert len(told) == 1, "one traceback for all"
        await virtual_clock.advance(15 * SECOND)
        assert (handler.calls[1:], handler.attempts[1:]) == ([[0, 2]], [[2, 2]])
        assert await count(inbox_database, queue.row) == 1


@everywhere
async def test_rows_that_cannot_be_read_or_are_spent_leave_their_batch(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Work],
    timeline: Timeline,
) -> None:
    ids = await fill(inbox_database, queue, 0, 1, 2, 3)
    name = queue.row.spec.table
    text = b"{" if inbox_database.dialect == "postgres" else "{"
    await inbox_database.execute(f"UPDATE {name} SET payload = $1 WHERE id = $2", text, ids[1])
    await inbox_database.execute(f"UPDATE {name} SET attempt = 4 WHERE id = $1", ids[2])
    handler = Batches(5)
    app = serve(inbox_database, queue, handler, 4, on_decode_error="drop", **CAP)
    async with app.running():
        await virtual_clock.advance(SECOND)
        assert handler.calls == [[0, 3]]
        # A row lock's transaction ends with the last of its rows; else nothing is waited for.
        assert await count(inbox_database, queue.row) == (4 if queue is LOCKED else 3)
        await virtual_clock.advance(5 * SECOND)
        (left,) = await inbox_database.fetch(f"SELECT id, name, attempt FROM {name}")
        assert tuple(left) == (ids[2], DEAD, 4)
        (dead,) = timeline.of(events.DeadLettered)
        assert dead.id == ids[2]
    for attempt, payload in ((1, text), (4, text)):
        (id,) = await more(inbox_database, queue, 9)
        await inbox_database.execute(
            f"UPDATE {name} SET payload = $1, attempt = $2 WHERE id = $3", payload, attempt, id
        )
    async with serve(inbox_database, queue, handler, 4, on_decode_error="drop", **CAP).running():
        await virtual_clock.settle()
        rows = await inbox_database.fetch(f"SELECT name FROM {name}")
        assert [row[0] for row in rows] == [DEAD, DEAD]
    assert len(handler.calls) == 1, "no call without a delivery"
    assert await locks(inbox_database) == 0


@on_servers
async def test_a_row_lock_that_cannot_be_settled_undoes_its_batch_once(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await fill(inbox_database, LOCKED, *range(5))
    await refuse(inbox_database, Locked, ids[1])
    handler = Batches()
    async with TestApp(serve(inbox_database, LOCKED, handler, 4)) as app:
        assert handler.calls[0] == [0, 1, 2, 3]
        assert await count(inbox_database, Locked) == 5
        (told,) = warnings(caplog, "4 rows of one batch were undone together")
        assert f"that of row {ids[1]} failed" in told
        await app.advance(2 * SECOND)
        assert sorted(handler.calls[1:]) == [[0], [2], [3], [4]], "one by one"
        assert await count(inbox_database, Locked) == 1
        for n in (5, 6, 7):
            await app.publish(LOCKED, Work(n))
        await app.advance(3 * MINUTE)
        assert await table(inbox_database, Locked) == [(ids[1], 1)]
        calls = handler.calls[5:]
        assert [call for call in calls if call != [1]] == [[5], [6], [7]], (
            "nothing was undone again"
        )
        assert 10 <= calls.count([1]) <= 20
        await allow(inbox_database, Locked)
        await app.advance(MINUTE)
        await more(inbox_database, LOCKED, 8, 9)
        await app.settle()
        assert handler.calls[-1] == [8, 9]
    assert await count(inbox_database, Locked) == 0
    assert len(warnings(caplog, "undone together")) == 1


async def test_one_lost_lease_leaves_the_others_their_handler(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    ids = await fill(inbox_database, LEASED, 0, 1, 2)
    handler = Batches(40, 100)
    later = virtual_clock.now() + HOUR
    async with TestApp(serve(inbox_database, LEASED, handler, 3)) as app:
        async with inbox_database.transaction() as tx:
            await tx.execute(
                "UPDATE batch_leased SET locked_until = $1 WHERE id = $2",
                _at(inbox_database, later),
                ids[1],
            )
        await app.advance(20 * SECOND)
        assert [delivery.lost.is_set() for delivery in handler.deliveries[0]] == [0, 1, 0]
        assert handler.now == 1
        await app.advance(21 * SECOND)
        assert [row[0] for row in await table(inbox_database, Leased)] == [ids[1]]
        assert handler.cancelled == []
        assert len(timeline.of(events.Lost)) == 1

        await more(inbox_database, LEASED, 3, 4)
        await app.settle()
        async with inbox_database.transaction() as tx:
            await tx.execute(
                "UPDATE batch_leased SET locked_until = $1", _at(inbox_database, later)
            )
        start = virtual_clock.monotonic()
        await app.advance(20 * SECOND)
        (at,) = handler.cancelled
        assert 14 <= at - start <= 16
        runs = app.subscriber("jobs").runs[3:]
        assert [type(run.error) for run in runs] == [LeaseLostError] * 2
        assert len(await table(inbox_database, Leased)) == 3


def _at(database: Database, instant: datetime) -> Any:
    return instant if database.dialect != "sqlite" else instant.isoformat(timespec="microseconds")


@on_servers
async def test_sessions_that_end_and_answers_that_are_lost(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = await fill(inbox_database, LOCKED, 0, 1, 2)
    text = "UPDATE batch_locked SET attempt = 4 WHERE id = $1"
    await inbox_database.execute(text, ids[1])
    handler = Batches(300, 10, None)
    async with TestApp(serve(inbox_database, LOCKED, handler, 3, **CAP)) as app:
        await app.advance(SECOND)
        await kill(inbox_database, await holders(inbox_database))
        await app.advance(2 * SECOND)
        assert handler.calls == [[0, 2]] * 2
        assert handler.attempts == [[1, 1]] * 2
        assert len(handler.cancelled) == 1
        assert {event.id for event in timeline.of(events.Lost)} == set(ids)  # type: ignore[attr-defined]
        assert inbox_database.room._free == 8
        fault = observed(inbox_database).faults.lose_reply("commit")
        await app.advance(MINUTE)
        assert fault.hits == 1
        assert [row[0] for row in await table(inbox_database, Locked)] == [ids[1]]
        assert len(warnings(caplog, "the answer to its settlement was lost")) == 2
        await app.publish(LOCKED, Work(3))
        await app.publish(LOCKED, Work(4))
        assert handler.calls[2:] == [[3], [4]]
        assert inbox_database.room._free == 9
    assert await locks(inbox_database) == 0


async def test_a_crash_in_mid_batch_loses_nothing(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await create(inbox_database, queue.row)
    ended: list[int] = []

    def service(database: Database) -> Service:
        async def work(deliveries: list[Delivery[Any, Work]]) -> list[Outcome]:
            await deliveries[0].clock.sleep(20)
            ended.extend(delivery.message.n for delivery in deliveries)
            return [ack() if one.attempt > 1 or n else retry() for n, one in enumerate(deliveries)]

        app = Service("service", Broker(database))
        app.include(subscriber(queue, batch=3)(work), workers=2)
        return app

    async with World(service, inbox_database) as world:
        for name in ("a", "b"):
            await world.start(name)
        for n in range(8):
            columns = {"account": f"of {n}"} if queue is ADVISORY else {}
            await world.publish(queue, Work(n), by="a", **columns)
        await world.advance(10 * SECOND)
        await world.crash("a")
        await world.drain()
        world.history.check_all()
    assert {*ended} == {*range(8)}
    assert len(ended) > 8, "retries"
    assert await count(inbox_database, queue.row) == 0


@everywhere
@pytest.mark.parametrize("how", ["drain", "cancel", "cancelled", "exit", "claim in flight"])
async def test_stops_settle_a_batch_or_give_it_back(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: InboxQueue[Any, Work],
    timeline: Timeline,
    how: str,
) -> None:
    await fill(inbox_database, queue, *range(10))

    async def leave(deliveries: list[Delivery]) -> None:
        await anyio.sleep(2)
        raise SystemExit(3)

    handler = Batches(leave if how == "exit" else 20)
    app = serve(inbox_database, queue, handler, 4, workers=2, drain_timeout=25 * SECOND)
    if how == "cancelled":
        app = serve(inbox_database, queue, handler, 4, workers=2, drain_timeout=5 * SECOND)
    if how == "claim in flight":
        observed(inbox_database).faults.delay("claim", 10, times=1)
    try:
        async with app.running() as handle:
            await virtual_clock.advance(SECOND)
            handle.cancel() if how == "cancel" else handle.stop() if how != "exit" else None
            await anyio.sleep(60)
    except SystemExit:
        pass
    rows = [attempt for _, attempt in await table(inbox_database, queue.row)]
    released = timeline.of(events.Released)
    match how:
        case "drain":
            assert (rows, len(handler.cancelled)) == ([1, 1], 0)
        case "claim in flight":
            assert (rows, handler.calls) == ([1] * 10, [])
            assert {event.given_back for event in released} == {True}
        case "exit":
            assert sorted(rows) == [1, 1, *[2] * 8]
            assert {event.given_back for event in released} == {False}
        case _:
            assert (rows, len(handler.cancelled)) == ([1] * 10, 2)
            assert [event.given_back for event in released] == [True] * 8
    if queue is LEASED:
        assert set(await table(inbox_database, Leased, "locked_until")) == {(None,)}
    assert await locks(inbox_database) == 0


@everywhere
async def test_one_row_of_a_key_is_in_a_batch_and_the_pool_keeps_room(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Advisory)
    for n in range(6):
        await put(inbox_database, ADVISORY, n, account="same" if n < 3 else f"of {n}")
    handler = Batches(10)
    app = serve(inbox_database, ADVISORY, handler, 4)
    async with app.running():
        await virtual_clock.advance(5 * SECOND)
        assert handler.calls == [[0, 3, 4, 5]]
        await virtual_clock.advance(30 * SECOND)
        assert handler.calls[1:] == [[1], [2]]
    if inbox_database.dialect == "sqlite":
        return
    await more(inbox_database, ADVISORY, *range(10, 17))
    async with another(inbox_database, pool_size=4) as small:
        handler = Batches(10)
        async with serve(small, ADVISORY, handler, 5, workers=3).running():
            await virtual_clock.advance(5 * SECOND)
            assert handler.calls == [[10, 11, 12]], "a batch shrinks, and one connection is left"
            assert await small.fetch_value("SELECT 1") == 1
            async with small.connection():
                await virtual_clock.advance(30 * SECOND)
                assert sorted(n for call in handler.calls for n in call) == [*range(10, 17)]
        assert small._pool.in_use == 0  # type: ignore[union-attr]
    assert await locks(inbox_database) == 0


async def test_fifo_queues_have_batches_of_one_and_groups_share_a_batch(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo, Leased, Plain)
    await put(inbox_database, FIFO, 1, 2, 3)
    handler = Batches()
    async with serve(inbox_database, FIFO, handler, 5, workers=3).running():
        await virtual_clock.settle()
        assert (handler.calls, handler.times) == ([[1], [2], [3]], [0, 0, 0])
    for row, heads in ((Fifo, [[1, 3], [2]]), (Leased, [[1, 3, 2]])):
        queue = InboxQueue.every_group(row, Work)
        await put(inbox_database, queue.group("a"), 1, 2)
        await put(inbox_database, queue.group("b"), 3)
        handler = Batches()
        async with serve(inbox_database, queue, handler, 5).running():
            await virtual_clock.settle()
            assert (handler.calls, len(handler.deliveries)) == (heads, len(heads))
            assert [one.group for one in handler.deliveries[0]][:2] == ["a", "b"]


async def test_a_batch_waits_for_answers_about_its_rows(virtual_clock: VirtualClock) -> None:
    """Its row was let go of by the server, and the older delivery's answer is on its way."""
    reading = Reading(virtual_clock.now(), virtual_clock.monotonic())
    holds: dict[int, Held] = {}
    begun: list[Any] = []
    released: list[Held] = []
    intake = Intake(
        holds,
        None,
        Reporter("service", "jobs", virtual_clock),
        holds_together=True,
        batch=3,
        turns=None,
        hand_over=begun.append,
        move=begun.append,
        release=released.append,
        lose=lambda held, reason: begun.append((held, reason)),
    )

    def claim(hold: int, *ids: int) -> list[Held]:
        rows = [Claimed(Fence(id, (), 1, hold), reading, 1, True, id == 9) for id in ids]
        intake.accept(Claim(tuple(rows), reading), False)
        return [held for held in holds.values() if held.claimed.fence.hold == hold]

    for number, is_resting in ((1, False), (3, True)):
        first, spent = claim(number, 1, 9)
        assert begun == [spent, first.batch]
        for held in (first, spent):
            held.stage = Stage.ENDED
        begun.clear()
        again = claim(number + 1, 1, 2, 9)
        assert begun == []
        intake.answered(spent, is_resting)
        assert (begun == [again[2]], released == [again[2]]) == (not is_resting, is_resting)
        intake.answered(first, is_resting)
        assert (begun[1:], released[1:]) == (
            ([], again[:2]) if is_resting else ([again[0].batch], [])
        )
        assert again[0].batch is not None
        assert again[0].batch.rows == tuple(again[:2])
        begun.clear()
        for held in list(holds.values()):
            intake.forget(held)
        holds.clear()


async def test_row_mode_and_middleware(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    async with inbox_database.transaction() as tx:
        await insert_rows(tx, *(Plain(size=size) for size in (3, 4)))
    rows = InboxQueue(Plain, "plain")
    seen: list[Any] = []

    @subscriber(rows, batch=9)
    async def sum_up(deliveries: list[Delivery[Plain, Plain]]) -> list[Ack]:
        seen.append(sum(delivery.message.size for delivery in deliveries))
        assert all(delivery.row is delivery.message for delivery in deliveries)
        return [ack() for _ in deliveries]

    async def each(delivery: Delivery, call_next: Any) -> Outcome:
        raise AssertionError

    async def around(deliveries: list[Delivery], call_next: Any) -> Any:
        seen.append([delivery.id for delivery in deliveries])
        seen.append(await call_next(deliveries))
        return drop("by the middleware")

    app = Service("service", Broker(inbox_database))
    app.include(sum_up)
    app.use(each, batch=around)
    async with TestApp(app) as test:
        assert seen == [[1, 2], 7, [ack(), ack()]]
        assert test.outcomes == [ack(), ack()]
        assert await count(inbox_database, Plain) == 0


def test_what_cannot_be_declared() -> None:
    async def handler(deliveries: list[Delivery[Any, Work]]) -> None: ...
    async def single(delivery: Any, call_next: Any) -> Any: ...

    app = Service("service", Broker("sqlite:///never-opened.db"))
    with pytest.raises(DeclarationError, match=r"'keyed'.*workers_by_key would not keep"):
        app.include(subscriber(KEYED, batch=2)(handler), workers_by_key=2)
    app.include(subscriber(KEYED, batch=2)(handler), workers=2)
    with pytest.raises(
        DeclarationError, match=r"takes batches, and the middleware 'single'.*batch="
    ):
        app.use(single)
    app.use(single, batch=single)
    other = Service("other", Broker("sqlite:///never-opened.db"))
    other.use(single)
    with pytest.raises(DeclarationError, match=r"use\(single, batch=…\)"):
        other.include(subscriber(LEASED, batch=2)(handler))
    for size in (0, -1, True, "3", 2.0):
        with pytest.raises(DeclarationError, match="batch must be an int of at least 1"):
            subscriber(LEASED, batch=size)  # type: ignore[call-overload]
