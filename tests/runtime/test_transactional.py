"""Transactional handlers: what they write is there with the ack, or not at all; in every claim form."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, cast

import anyio
import psycopg
import pymysql
import pytest
from anyio.abc import TaskGroup
from database_cells import cells, everywhere, on
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Handler,
    Work,
    another,
    create,
    killed,
    observed,
    put,
    warnings,
)

from inboxkit import (
    Broker,
    ConstraintError,
    Database,
    DatabaseBusyError,
    DatabaseError,
    Inbox,
    InboxQueue,
    Outcome,
    OutcomeUnknownError,
    Service,
    TransactionalDelivery,
    TransactionHeldError,
    TransactionTooLongError,
    ack,
    drop,
    events,
    insert_rows,
    retry,
    role,
    subscriber,
)
from inboxkit._db.mysql_url import read_target
from inboxkit_testing import ObservedDatabase, TestApp, Timeline, VirtualClock
from inboxkit_testing.crashpoints import When, arm_crash
from inboxkit_testing.faults import Fault


class Leased(Inbox, table="tx_leased"):
    """Under a lease."""

    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="tx_locked"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="tx_keyed", advisory_lock="tx_keyed-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


Queue = InboxQueue[Any, Work]
LEASED: Queue = InboxQueue(Leased, "leased", Work)
LOCKED: Queue = InboxQueue(Locked, "locked", Work)
KEYED: Queue = InboxQueue(Keyed, "keyed", Work)

CELLS = [
    pytest.param(*cell.values, queue, id=f"{cell.id}-{queue.name}", marks=cell.marks)
    for cell in cells("sqlite", "postgres", "mariadb", "mysql", once=())
    for queue in (LEASED, LOCKED, KEYED)
    if (cell.values[0], queue) != ("sqlite", LOCKED)
]
every_cell = pytest.mark.parametrize(("inbox_db", "inbox_backend", "queue"), CELLS)
on_sqlite = on("sqlite")
on_servers = on("postgres", "mariadb", "mysql", once=["mariadb"])

Answer = Callable[[TransactionalDelivery], Awaitable[Outcome | None]]


async def write(delivery: TransactionalDelivery) -> None:
    """The effect of a message."""
    n = delivery.message.n
    await delivery.tx.execute("INSERT INTO effects (n) VALUES ($1)", n)


class Effects:
    """Writes the effect of each message, and then does what it is told by the message's number."""

    def __init__(self, by: dict[int, Answer] | None = None) -> None:
        self.by = by or {}
        self.runs: list[tuple[int, int, float]] = []

    async def __call__(self, work: Work, delivery: TransactionalDelivery) -> Outcome | None:
        self.runs.append((work.n, delivery.attempt, round(delivery.clock.monotonic(), 1)))
        await write(delivery)
        answer = self.by.get(work.n)
        return await answer(delivery) if answer is not None else ack()

    def attempts(self, n: int) -> list[int]:
        return [attempt for number, attempt, _ in self.runs if number == n]


def serving(
    database: Database,
    queue: Queue,
    handler: Any,
    *,
    poll: timedelta = HOUR,
    lifespan: Any = None,
    **settings: Any,
) -> Service:
    """A service of one transactional handler."""
    app = Service("service", Broker(database, poll_interval=poll), lifespan=lifespan)
    app.include(subscriber(queue, transactional=True)(handler), **settings)
    return app


async def prepare(database: Database, *queues: Queue) -> None:
    await create(database, *(queue.row for queue in queues))
    await database.execute("CREATE TABLE effects (n int PRIMARY KEY)")


def outside(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """What a connection that the kit knows nothing of reads, or writes."""
    url = observed(database).url
    location = url.partition("://")[2]
    connection: Any
    if database.dialect == "sqlite":
        connection = sqlite3.connect(location.removeprefix("/"))
    elif database.dialect == "postgres":
        connection = psycopg.connect(url)
    else:
        target = read_target(f"mysql://{location}")
        connection = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            ssl_disabled=True,
        )
    try:
        cursor = connection.cursor()
        cursor.execute(sql)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
    finally:
        connection.close()
    return [tuple(row) for row in found]


def effects(database: Database) -> list[int]:
    return [row[0] for row in outside(database, "SELECT n FROM effects ORDER BY n")]


def rows(database: Database, queue: Queue) -> list[tuple[int, int]]:
    found = outside(database, f"SELECT id, attempt FROM {queue.spec.table} ORDER BY id")
    return cast("list[tuple[int, int]]", found)


async def fail_in_silence(delivery: TransactionalDelivery) -> Outcome:
    with suppress(ConstraintError):
        await write(delivery)  # its effect is there already
    return ack()


async def stop_in_silence(delivery: TransactionalDelivery) -> Outcome:
    with anyio.move_on_after(0):
        await delivery.tx.fetch("SELECT 1")
    return ack()


async def fail_in_a_nested_one(delivery: TransactionalDelivery) -> Outcome:
    try:
        async with delivery.tx.transaction():
            await write(delivery)
    except ConstraintError:
        return ack()
    raise AssertionError


async def fail_in_silence_in_a_nested_one(delivery: TransactionalDelivery) -> Outcome:
    async with delivery.tx.transaction() as nested:
        with suppress(ConstraintError):
            await nested.execute("INSERT INTO effects (n) VALUES ($1)", delivery.message.n)
    return ack()


async def end_it(delivery: TransactionalDelivery) -> Outcome:
    await delivery.tx.execute("ROLLBACK")
    return ack()


async def end_it_and_go_on(delivery: TransactionalDelivery) -> Outcome:
    chained = " AND CHAIN" if delivery.database.dialect != "sqlite" else ""
    with suppress(DatabaseError):
        await delivery.tx.execute(f"COMMIT{chained}")
    return ack()


async def end_it_in_a_nested_one(delivery: TransactionalDelivery) -> Outcome:
    with pytest.raises(DatabaseError, match=r"ROLLBACK would end delivery\.tx.*nothing was sent"):
        await delivery.tx.execute("ROLLBACK")
    async with delivery.tx.transaction() as nested:
        await nested.execute("ROLLBACK")
    return ack()


async def fail(delivery: TransactionalDelivery) -> None:
    raise ValueError("no")


async def sleep(delivery: TransactionalDelivery) -> None:
    await delivery.clock.sleep(60)


async def answers(outcome: Outcome | None) -> Outcome | None:
    return outcome


@every_cell
async def test_only_an_ack_keeps_what_the_handler_wrote(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: Queue,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await prepare(inbox_database, queue)
    handler = Effects(
        {
            1: lambda _: answers(None),
            2: lambda _: answers(drop("enough")),
            3: lambda d: answers(retry() if d.attempt == 1 else ack()),
            4: fail,
            5: sleep,
            6: fail_in_silence,
            7: fail_in_silence_in_a_nested_one,
            8: fail_in_a_nested_one,
            9: stop_in_silence,
            10: end_it,
            11: end_it_and_go_on,
            12: end_it_in_a_nested_one,
        }
    )
    app = serving(inbox_database, queue, handler, timeout=0.5 * SECOND)
    async with TestApp(app) as test:
        for n in handler.by:
            handler.runs.clear()
            await test.publish(queue, Work(n))
            await test.advance(0.6 * SECOND)
            kept = n in (1, 3, 8)
            assert (n, effects(inbox_database)) == (n, [n] if kept else [])
            is_settled = kept or n == 2
            expected = [] if is_settled else [2]
            assert (n, [row[1] for row in rows(inbox_database, queue)]) == (n, expected)
            await test.advance(1.5 * SECOND)
            if not is_settled:
                assert handler.attempts(n)[:2] == [1, 2], f"{n} is tried again"
            outside(inbox_database, f"DELETE FROM {queue.spec.table}")
            outside(inbox_database, "DELETE FROM effects")
    assert len(warnings(caplog, "a statement in delivery.tx failed")) >= 2
    assert len(warnings(caplog, "a statement in delivery.tx was cancelled")) >= 1
    assert "ROLLBACK would end delivery.tx" in caplog.text
    assert "COMMIT would end delivery.tx" in caplog.text
    assert inbox_database.room._free == 9
    assert inbox_database._pool is not None
    assert inbox_database._pool.in_use == 0


async def end_it_unseen(delivery: TransactionalDelivery) -> Outcome:
    """By what nobody can see in the statement's words."""
    await delivery.tx.execute("CALL end_it()")
    return ack()


async def change_a_table(delivery: TransactionalDelivery) -> Outcome:
    await delivery.tx.execute("CREATE TABLE changed (n int)")
    with suppress(DatabaseError):
        await delivery.tx.execute("INSERT INTO changed VALUES (1)")
    return ack()


@pytest.mark.parametrize("inbox_db", ["mariadb", "mysql"])
async def test_a_transaction_that_ended_unseen_settles_nothing(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The row's lock has gone with it: a procedure that commits and begins another, a table's change."""
    await prepare(inbox_database, LOCKED)
    await inbox_database.execute("CREATE PROCEDURE end_it() BEGIN COMMIT; START TRANSACTION; END")
    handler = Effects({1: end_it_unseen, 2: change_a_table})
    app = serving(inbox_database, LOCKED, handler, on_error="drop")
    async with TestApp(app) as test:
        for n in (1, 2):
            await test.publish(LOCKED, Work(n))
            assert [row[1] for row in rows(inbox_database, LOCKED)] == [1]
            told = warnings(caplog, "a statement of the handler has ended its transaction")
            assert len(told) == n
            outside(inbox_database, f"DELETE FROM {LOCKED.spec.table}")
            await test.advance(2 * SECOND)
        assert outside(inbox_database, "SELECT count(*) FROM changed") == [(0,)]


@on_sqlite
async def test_a_transaction_that_an_error_has_ended_settles_nothing(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """As a deadlock does on MariaDB: a nested one that is undone does not mend it."""
    await prepare(inbox_database, LEASED)

    async def fail_it(delivery: TransactionalDelivery) -> Outcome:
        with suppress(ConstraintError):
            async with delivery.tx.transaction() as nested:
                await nested.execute("INSERT OR ROLLBACK INTO effects (n) VALUES (1)")
        return ack()

    handler = Effects({1: fail_it})
    async with TestApp(serving(inbox_database, LEASED, handler)) as test:
        await test.publish(LEASED, Work(1))
        await test.settle()
        assert effects(inbox_database) == []
        assert [row[1] for row in rows(inbox_database, LEASED)] == [2]


class _Strike:
    """Has something happen at the k-th statement after the handler's first write."""

    def __init__(self, database: ObservedDatabase, k: int, when: When) -> None:
        self._given = database, k, when
        self.fault: Fault | None = None

    async def __call__(self, delivery: TransactionalDelivery) -> Outcome:
        if self.fault is None:
            self.fault = arm_crash(*self._given)
        return ack()


@every_cell
async def test_a_crash_at_any_statement_leaves_both_or_neither(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue
) -> None:
    """From the handler's write to the answer of the COMMIT; a connection outside the kit looks."""
    await prepare(inbox_database, queue)
    n = 0
    whens: list[When] = ["before", "after", "reply lost"]
    for when in whens:
        settled, k = False, 0
        while not settled:
            n, k = n + 1, k + 1
            other = another(inbox_database, f"other-{n}")
            strike = _Strike(other, k, when)
            (id,) = await put(inbox_database, queue, n)
            async with other, killed(serving(other, queue, Effects({n: strike}))):
                await virtual_clock.advance(0.5 * SECOND)
                settled = id not in [row[0] for row in rows(inbox_database, queue)]
                assert (n in effects(inbox_database)) == settled, f"{when} statement {k}"
            assert strike.fault is not None
            assert strike.fault.hits or when == "before"
        assert k > 1, "the settlement and its COMMIT"
    async with TestApp(serving(inbox_database, queue, Effects(), poll=SECOND)) as test:
        await test.advance(40 * SECOND)
        assert rows(inbox_database, queue) == []
        assert effects(inbox_database) == list(range(1, n + 1))


@every_cell
async def test_an_ack_that_did_not_come_to_pass_is_none(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: Queue,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its handler runs again, whatever `on_error` says of the handler's own failures."""
    await prepare(inbox_database, queue)
    faults = observed(inbox_database).faults

    def is_write(operation: Any) -> bool:
        return bool(operation.script == "settle") and operation.kind == "statement"

    def is_commit(operation: Any) -> bool:
        return bool(operation.script == "settle") and operation.kind == "commit"

    handler = Effects()
    async with TestApp(serving(inbox_database, queue, handler, on_error="drop")) as test:
        for n, where, error in (
            (1, is_write, DatabaseBusyError("busy")),
            (2, is_write, ConstraintError("refused")),
            (3, is_commit, ConstraintError("refused")),
            (4, is_commit, OutcomeUnknownError("lost")),
        ):
            faults.refuse(where, error=lambda _, error=error: error)  # type: ignore[misc]
            await test.publish(queue, Work(n))
            # With its COMMIT the row lock is gone, and the attempt cannot be counted.
            attempt = 1 if queue is LOCKED and where is is_commit else 2
            assert n not in effects(inbox_database)
            assert [row[1] for row in rows(inbox_database, queue)] == [attempt], n
            await test.advance(1.2 * SECOND)
            assert (effects(inbox_database)[-1], rows(inbox_database, queue)) == (n, [])
            assert handler.attempts(n) == [1, attempt]
    assert len(timeline.of(events.Finished)) == 4
    # A lease outlives its session, so that it can be looked for what became of the row.
    unknown = [event.is_gone for event in timeline.of(events.OutcomeUnknown)]
    assert unknown == ([] if queue is LEASED else [False])
    assert len(warnings(caplog, "answer to")) == 1


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "queue"),
    # Where an advisory lock of the session holds the row, that is gone with it.
    [cell for cell in CELLS if cell.values[0] == "sqlite" or cell.values[2] is not KEYED],
)
async def test_an_idle_connection_that_has_ended_is_no_failure_of_the_handler(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue, caplog: Any
) -> None:
    """The BEGIN finds it, and is sent again on a new one; the claim's too, where that begins one."""
    await prepare(inbox_database, queue)
    handler = Effects()
    async with TestApp(serving(inbox_database, queue, handler)) as test:
        await test.settle()
        faults = observed(inbox_database).faults
        for n in (1, 2):
            lost = faults.lose_reply(lambda sent: sent.kind == "begin" and sent.script is None)
            await test.publish(queue, Work(n))
            assert lost.hits == 1
    assert effects(inbox_database) == [1, 2]
    assert [(n, attempt) for n, attempt, _ in handler.runs] == [(1, 1), (2, 1)]
    assert rows(inbox_database, queue) == []
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


@every_cell
async def test_a_stop_takes_back_what_was_written_and_the_attempt(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue
) -> None:
    await prepare(inbox_database, queue)
    handler = Effects({1: sleep})
    async with serving(inbox_database, queue, handler).running() as handle:
        await put(inbox_database, queue, 1)
        await virtual_clock.advance(SECOND)
        assert len(handler.runs) == 1
        handle.cancel()
    assert (effects(inbox_database), rows(inbox_database, queue)) == ([], [(1, 1)])


@every_cell
async def test_what_it_inserts_and_publishes_is_there_with_the_ack_and_wakes_after_it(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue
) -> None:
    target = KEYED if queue is not KEYED and inbox_database.dialect != "mysql" else LEASED
    if target is queue:
        target = InboxQueue(Late, "late", Work)
    await prepare(inbox_database, queue, target)
    calls: list[tuple[str, int]] = []

    async def publish(work: Work, delivery: TransactionalDelivery) -> Outcome:
        await insert_rows(delivery.tx, target.row.of(Work(10)))  # type: ignore[union-attr]
        await delivery.publish(target, Work(11), within=delivery.tx)
        delivery.tx.after_commit(
            lambda: calls.append(("after", len(rows(delivery.database, queue))))
        )
        await delivery.clock.sleep(1)
        if delivery.attempt == 1:
            raise ValueError("no")
        return ack()

    async def only_waits(work: Work, delivery: TransactionalDelivery) -> None:
        delivery.tx.after_commit(
            lambda: calls.append(("unopened", len(rows(delivery.database, queue))))
        )

    received = Handler()
    app = serving(inbox_database, queue, publish)
    app.include(subscriber(target)(received), workers=2)  # type: ignore[arg-type]
    async with TestApp(app) as test:
        await test.publish(queue, Work(1))
        await test.advance(4 * SECOND)
        assert sorted(received.numbers) == [10, 11]
        assert 2.8 <= received.times[0] <= 3.2
        assert calls == [("after", 0)]
    async with TestApp(serving(inbox_database, queue, only_waits)) as test:
        await test.publish(queue, Work(2))
        assert calls[1:] == [("unopened", 0)]


class Late(Inbox, table="tx_late"):
    """Where one more queue goes."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@asynccontextmanager
async def nursery(_: Service) -> AsyncIterator[TaskGroup]:
    async with anyio.create_task_group() as tasks:
        yield tasks


@every_cell
async def test_a_transaction_that_outlasts_its_handler_is_rolled_back(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: Queue,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await prepare(inbox_database, queue)
    met: list[type[Exception]] = []

    async def use_it_later(delivery: TransactionalDelivery) -> None:
        await delivery.clock.sleep(1)
        await write(delivery)

    async def keep_a_nested_one(delivery: TransactionalDelivery) -> None:
        async with delivery.tx.transaction():
            await delivery.clock.sleep(3)

    async def noting(task: Answer, delivery: TransactionalDelivery) -> None:
        try:
            await task(delivery)
        except TransactionHeldError as error:
            met.append(type(error))

    def starts(task: Any) -> Answer:
        async def start(delivery: TransactionalDelivery) -> None:
            if delivery.attempt == 1:
                delivery.state.start_soon(noting, task, delivery)
                await delivery.clock.sleep(0.5)

        return start

    async def slow(delivery: Any, call_next: Any) -> Outcome:
        outcome: Outcome = await call_next(delivery)
        await delivery.clock.sleep(1)
        return outcome

    handler = Effects({1: starts(use_it_later), 2: starts(keep_a_nested_one)})
    app = serving(inbox_database, queue, handler, lifespan=nursery)
    app.use(slow)
    async with TestApp(app) as test:
        for n in (1, 2):
            await test.publish(queue, Work(n))
            await test.advance(1.6 * SECOND)
            assert n not in effects(inbox_database)
            assert rows(inbox_database, queue) == [(n, 2)]
            await test.advance(8 * SECOND)
            assert (effects(inbox_database)[-1], rows(inbox_database, queue)) == (n, [])
            assert handler.attempts(n) == [1, 2]
    assert met == [TransactionHeldError] * 2
    assert len(warnings(caplog, "delivery.tx is the handler's")) == 2


@on_servers
async def test_the_lock_of_its_own_transaction_keeps_the_row_beyond_its_expiry(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await prepare(inbox_database, LEASED)

    async def lock(delivery: TransactionalDelivery) -> None:
        await delivery.tx.execute("UPDATE tx_leased SET payload = 'x' WHERE id = $1", delivery.id)
        await delivery.clock.sleep(100)

    async def only_take_long(delivery: TransactionalDelivery) -> None:
        await delivery.clock.sleep(100)

    handler, rival = Effects({1: lock, 2: only_take_long}), Effects()
    other = another(inbox_database)
    await put(inbox_database, LEASED, 1, 2)
    async with other, TestApp(serving(inbox_database, LEASED, handler, workers=2)) as test:
        await test.advance(SECOND)
        async with serving(other, LEASED, rival, poll=SECOND).running():
            await virtual_clock.advance(2 * MINUTE)
        assert (effects(inbox_database), rows(inbox_database, LEASED)) == ([1, 2], [])
        assert (len(handler.runs), rival.runs) == (2, [])
    assert timeline.of(events.Lost) == []
    renewed = [event.id for event in timeline.of(events.Renewed)]  # type: ignore[attr-defined]
    assert renewed == [2] * len(renewed)
    assert len(renewed) >= 6


@on_servers
async def test_an_ack_and_a_renewal_in_flight_do_not_wait_for_each_other(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """The renewal moves the token after the ack has begun, and before it is written."""
    await prepare(inbox_database, LEASED)
    faults = observed(inbox_database).faults

    async def wait(delivery: TransactionalDelivery) -> None:
        await delivery.clock.sleep(16)
        faults.delay(lambda operation: operation.script == "settle", 5)

    faults.delay("renew", 2)
    handler = Effects({1: wait})
    async with TestApp(serving(inbox_database, LEASED, handler)) as test:
        await test.publish(LEASED, Work(1))
        await test.advance(20 * SECOND)
        assert effects(inbox_database) == []
        await test.advance(2 * SECOND)
        assert (effects(inbox_database), rows(inbox_database, LEASED)) == ([1], [])
    assert len(timeline.of(events.Renewed)) == 1
    assert timeline.of(events.Lost) == []


@everywhere
async def test_a_lost_lease_loses_what_was_written(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await prepare(inbox_database, LEASED)

    async def be_robbed(work: Work, delivery: TransactionalDelivery) -> None:
        outside(
            delivery.database,
            "UPDATE tx_leased SET locked_until = '2031-01-01T00:00:00.000000+00:00'"
            if delivery.database.dialect == "sqlite"
            else "UPDATE tx_leased SET locked_until = '2031-01-01 00:00:00'",
        )
        await write(delivery)

    async with TestApp(serving(inbox_database, LEASED, be_robbed)) as test:
        await test.publish(LEASED, Work(1))
        assert (effects(inbox_database), rows(inbox_database, LEASED)) == ([], [(1, 2)])
    assert len(timeline.of(events.Lost)) == 1
    assert timeline.of(events.Finished) == []


@on_sqlite
@pytest.mark.parametrize("queue", [LEASED, KEYED], ids=["lease", "advisory"])
async def test_on_sqlite_it_ends_before_any_hold_does(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: Queue,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither its own lease nor that of another queue can be renewed meanwhile."""
    target: Queue = InboxQueue(Late, "late", Work)
    await prepare(inbox_database, queue, target)
    seen: list[type[Exception]] = []

    async def dawdle(delivery: TransactionalDelivery) -> None:
        if delivery.attempt > 1:
            return
        try:
            await delivery.clock.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await delivery.clock.sleep(2)
            try:
                await delivery.tx.fetch("SELECT 1")
            except TransactionTooLongError as error:
                seen.append(type(error))

    handler, beside = Effects({1: dawdle}), Handler(60)
    app = serving(inbox_database, queue, handler)
    app.include(subscriber(target)(beside))  # type: ignore[arg-type]
    async with TestApp(app) as test:
        await test.publish(target, Work(2))
        await test.publish(queue, Work(1))
        await test.advance(23.9 * SECOND)
        assert (len(handler.runs), effects(inbox_database)) == (1, [])
        assert not warnings(caplog, "TransactionTooLongError")
        await test.advance(0.3 * SECOND)
        assert await inbox_database.execute("UPDATE effects SET n = n") == 0, "the lock is free"
        await test.advance(MINUTE)
        assert (effects(inbox_database), rows(inbox_database, queue)) == ([1], [])
        assert handler.attempts(1) == [1, 2]
        assert beside.ended == [2]
        assert seen == [TransactionTooLongError]
    assert timeline.of(events.Lost) == []
    assert len(warnings(caplog, "TransactionTooLongError")) == 1


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "queue"),
    [
        *(
            pytest.param(*cell.values, LEASED, id=f"{cell.id}-leased", marks=cell.marks)
            for cell in cells("postgres", "mariadb", "mysql", once=())
        ),
        *(pytest.param(*cell.values, KEYED, id=f"{cell.id}-keyed") for cell in cells("sqlite")),
    ],
)
async def test_each_delivery_owns_a_connection_of_the_room(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue
) -> None:
    await prepare(inbox_database, queue)
    await put(inbox_database, queue, *range(8))
    handler = Handler(10)
    async with (
        another(inbox_database, pool_size=3) as small,
        serving(small, queue, _with_tx(handler), workers=8).running(),
    ):
        await virtual_clock.advance(5 * SECOND)
        assert handler.now == 2
        await virtual_clock.advance(MINUTE)
        assert (handler.most, len(handler.ended)) == (2, 8)
    assert small.room._free == 2


def _with_tx(handler: Handler) -> Any:
    async def handle(work: Work, delivery: TransactionalDelivery) -> Outcome | None:
        await handler(work, delivery)
        await write(delivery)
        return ack()

    return handle


@on_sqlite
@pytest.mark.parametrize("queue", [LEASED, KEYED], ids=["lease", "advisory"])
async def test_on_sqlite_who_waited_for_the_write_lock_has_time_to_write(
    inbox_database: Database, virtual_clock: VirtualClock, queue: Queue, timeline: Timeline
) -> None:
    """Renewals that waited too go first, so that nobody is cut the moment it begins."""
    target: Queue = InboxQueue(Late, "late", Work)
    await prepare(inbox_database, queue, target)

    async def dawdle(delivery: TransactionalDelivery) -> None:
        if delivery.attempt == 1:
            await delivery.clock.sleep(100)

    async def write_for_a_while(delivery: TransactionalDelivery) -> None:
        await delivery.clock.sleep(2)

    class Later(Effects):
        async def __call__(self, work: Work, delivery: TransactionalDelivery) -> Outcome | None:
            await delivery.clock.sleep(1 if work.n == 1 else 2)
            return await super().__call__(work, delivery)

    handler = Later({1: dawdle, 2: write_for_a_while, 3: write_for_a_while})
    beside = Handler(60)
    app = serving(inbox_database, queue, handler, workers=3)
    app.include(subscriber(target)(beside))  # type: ignore[arg-type]
    await put(inbox_database, target, 9)
    await put(inbox_database, queue, 1, 2, 3)
    async with TestApp(app) as test:
        await test.advance(2 * MINUTE)
        assert (effects(inbox_database), rows(inbox_database, queue)) == ([1, 2, 3], [])
        assert [handler.attempts(n) for n in (1, 2, 3)] == [[1, 2], [1], [1]]
        assert beside.ended == [9]
    assert timeline.of(events.Lost) == []
