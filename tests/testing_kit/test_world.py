"""Several instances over one database: crashed, cut off, with clocks that are wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pymysql
import pytest

from inboxkit import (
    Broker,
    ClosedError,
    Database,
    DatabaseError,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    OutcomeUnknownError,
    SchemaError,
    Service,
    TransactionalDelivery,
    events,
    role,
    subscriber,
)
from inboxkit._db.mysql_url import read_target
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import (
    InvariantViolation,
    StatementGate,
    VirtualClock,
    VirtualRunner,
    World,
    open_test_database,
    run,
)
from inboxkit_testing.backends import BackendName
from inboxkit_testing.marks import Crashed, Ended

SECOND = timedelta(seconds=1)
Start = Callable[[Callable[[Database], Service]], Awaitable[World]]


class Jobs(Inbox, table="world_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Jobs, "jobs", bytes, lease=10 * SECOND)
Handle = Callable[[bytes, Delivery[Any, Any]], Awaitable[None]]


SERIAL = {
    "sqlite": "INTEGER PRIMARY KEY",
    "postgres": "serial PRIMARY KEY",
    "mysql": "integer AUTO_INCREMENT PRIMARY KEY",
}


TABLES = {
    "sqlite": "SELECT name FROM sqlite_master",
    "postgres": "SELECT table_name AS name FROM information_schema.tables",
    "mysql": "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()",
}


async def create_schema(db: Database) -> None:
    tables = TABLES[db.dialect]
    if await db.fetch_value(f"SELECT count(*) FROM ({tables}) AS t WHERE name = 'effects'"):
        return
    for statement in create_table(get_dialect(db.dialect), Jobs.spec):
        await db.execute(statement)
    await db.execute(f"CREATE TABLE effects (n {SERIAL[db.dialect]}, what text)")


def serving(
    handler: Handle, *, workers: int = 1, poll: timedelta = SECOND
) -> Callable[[Database], Service]:
    """A factory of services that do this."""

    def service(database: Database) -> Service:
        @subscriber(JOBS)
        async def handle(message: bytes, delivery: Delivery) -> None:
            await handler(message, delivery)

        app = Service("jobs", Broker(database, poll_interval=poll))
        app.on_startup(create_schema)
        app.include(handle, workers=workers)
        return app

    return service


def sleeping(seconds: float) -> Handle:
    async def handle(message: bytes, delivery: Delivery) -> None:
        await delivery.clock.sleep(seconds)

    return handle


async def write(delivery: Delivery[Any, Any], what: str) -> None:
    await delivery.database.execute("INSERT INTO effects (what) VALUES ($1)", what)


def outside(database: Database) -> tuple[list[str], list[tuple[int, bool]]]:
    """Effects, and attempt and lease of each row, as another client than the kit's sees them."""
    url: str = database.url  # type: ignore[attr-defined]
    if database.dialect == "mysql":
        target = read_target(url)
        connection: Any = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            ssl_disabled=True,
        ).cursor()
    elif database.dialect == "postgres":
        connection = psycopg.connect(url).cursor()
    else:
        connection = sqlite3.connect(url.partition("///")[2]).cursor()
    connection.execute("SELECT what FROM effects ORDER BY n")
    effects = connection.fetchall()
    connection.execute("SELECT attempt, locked_until FROM world_jobs ORDER BY id")
    rows = connection.fetchall()
    connection.connection.close()
    return [what for (what,) in effects], [(attempt, until is not None) for attempt, until in rows]


async def test_two_instances_share_the_work(inbox_world: Start) -> None:
    world = await inbox_world(serving(sleeping(4)))
    a, b = await world.start("a"), await world.start("b")
    assert world.running == ("a", "b")
    for n in range(6):
        await world.publish("jobs", b"%d" % n)
    await world.drain()
    assert world.clock.monotonic() < 20  # 24 s of work by two
    claims = [event.instance for event in world.timeline.of(events.Claimed)]
    assert sorted(claims) == ["a"] * 3 + ["b"] * 3
    assert a.database.recording is not b.database.recording
    assert await world.rows(Jobs) == []
    world.history.check_all()


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "when"),
    [
        ("sqlite-inloop", "trio", "before"),
        ("sqlite-inloop", "asyncio", "after"),
        ("sqlite", "asyncio", "reply lost"),
        ("postgres", "trio", "before"),
        ("postgres", "asyncio", "after"),
        ("postgres", "trio", "reply lost"),
    ],
)
async def test_a_crash_at_any_statement_loses_nothing_and_settles_nothing_twice(
    inbox_world: Start, when: Any
) -> None:
    done: list[bytes] = []

    async def handle(message: bytes, delivery: Delivery) -> None:
        async with delivery.database.transaction() as tx:
            await tx.execute("INSERT INTO effects (what) VALUES ($1)", message.decode())
        await delivery.clock.sleep(7)  # renewed once
        done.append(message)

    world = await inbox_world(serving(handle, poll=5 * SECOND))
    struck, hits = 0, True
    for k in range(1, 30):
        await world.start("a")
        fault = world.crash_at("a", k, when)
        with suppress(OutcomeUnknownError):
            await world.publish("jobs", b"%d" % k, by="a")
        await world.advance(9 * SECOND)
        hits = bool(fault.hits)
        struck += hits
        if world.running:
            await world.stop("a")
        assert not hits or (world.instances["a"].state == "crashed") == (when != "reply lost")
        world.database.recording.clear()
        if not hits:
            break
        await world.start("healthy")
        await world.drain(40 * SECOND)
        await world.stop("healthy")
    assert struck >= 4  # insert, claim, handler, renewal, settlement
    assert not hits
    ids = {event.id for event in world.timeline.of(events.Published)}
    assert len(ids) > struck // 2  # the first statements are those that publish
    assert await world.rows(Jobs) == []
    world.history.check_all()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend"),
    [
        ("sqlite-inloop", "asyncio"),
        ("sqlite-inloop", "trio"),
        ("sqlite", "trio"),
        ("postgres", "asyncio"),
        ("mariadb", "trio"),
    ],
)
async def test_what_is_refused_at_any_statement_is_done_all_the_same(
    inbox_world: Start, times: int
) -> None:
    """Also where it is the handler's own, which then fails; nothing of it has happened."""
    seen: list[str] = []

    async def handle(message: bytes, delivery: Delivery) -> None:
        try:
            async with delivery.database.transaction() as tx:
                await tx.execute("INSERT INTO effects (what) VALUES ($1)", message.decode())
        except DatabaseError as error:
            seen.append(str(error))
            raise

    world = await inbox_world(serving(handle))
    await world.start("a")
    struck, hits = 0, 1
    for k in range(1, 30):
        fault = world.refuse("a", k, times=times)
        with suppress(DatabaseError):
            await world.publish("jobs", b"%d" % k, by="a")
        await world.drain()
        hits = fault.hits
        world.instances["a"].database.faults.clear()
        if not hits:
            break
        struck += 1
    assert struck >= 4
    assert not hits
    assert any("refused by the test; nothing happened" in error for error in seen)
    assert await world.rows(Jobs) == []
    effects = [row[0] for row in await world.database.fetch("SELECT what FROM effects")]
    assert len(effects) == len(set(effects))
    assert set(effects) == {sent.message.decode() for sent in world.published if sent.is_known}
    world.history.check_all()


@pytest.mark.parametrize("inbox_db", ["sqlite-inloop", "sqlite"])
async def test_a_drain_waits_for_a_lock_of_what_is_held_back(inbox_world: Start) -> None:
    """A settlement that is late keeps the write lock for longer than a look at the rows waits for it."""

    @subscriber(JOBS, transactional=True)
    async def handle(message: bytes, delivery: TransactionalDelivery) -> None:
        await delivery.tx.execute("INSERT INTO effects (what) VALUES ('done')")

    def service(database: Database) -> Service:
        app = Service("jobs", Broker(database))
        app.on_startup(create_schema)
        app.include(handle)
        return app

    world = await inbox_world(service)
    await world.start("a")
    world.delay_at("a", "settle", 40.0)
    await world.publish("jobs", b"1", by="a")
    await world.drain()
    assert 40 <= world.clock.monotonic() < 100
    assert await world.rows(Jobs) == []
    world.history.check_all()


@pytest.mark.parametrize("inbox_db", ["sqlite-inloop", "sqlite", "postgres"])
async def test_the_timeline_tells_at_which_statement_it_crashed(inbox_world: Start) -> None:
    async def handle(message: bytes, delivery: Delivery) -> None:
        async with delivery.database.transaction() as tx:
            await tx.execute("INSERT INTO effects (what) VALUES ($1)", message.decode())

    world = await inbox_world(serving(handle))
    places: list[tuple[int | str, Any]] = [
        ("settle", "before"),
        ("settle", "after"),
        ("execute", "after"),
        ("claim", "before"),
    ]
    for statement, when in places:
        await world.start("a")
        world.crash_at("a", statement, when)
        await world.publish("jobs", b"1")
        await world.advance(2 * SECOND)
        assert world.instances["a"].state == "crashed"
    await world.start("a")
    await world.crash("a")
    told = [event.text for event in world.timeline.of(Crashed)]  # type: ignore[attr-defined]
    assert told == [
        "crashed before 'settle'",
        "crashed after 'settle'",
        "crashed after INSERT INTO effects (what) VALUES ($1)",
        "crashed before 'claim'",
        "crashed",
    ]


@pytest.mark.parametrize("how", ["hang", "fail"])
async def test_a_short_partition_is_survived(inbox_world: Start, how: Any) -> None:
    world = await inbox_world(serving(sleeping(8)))
    await world.start("a")
    await world.publish("jobs", b"x", by="a")
    await world.advance(SECOND)
    world.partition("a", how)
    assert world.instances["a"].is_cut
    await world.advance(2 * SECOND)
    await world.start("b")
    world.heal("a")
    await world.drain()
    (finished,) = world.timeline.of(events.Finished)
    assert finished.instance == "a"
    assert world.timeline.of(events.Lost) == []
    world.history.check_all()


@pytest.mark.parametrize("how", ["hang", "fail"])
async def test_in_a_long_partition_the_other_takes_over(inbox_world: Start, how: Any) -> None:
    world = await inbox_world(serving(sleeping(60)))
    await world.start("a")
    await world.publish("jobs", b"x", by="a")
    await world.advance(SECOND)
    await world.start("b")
    world.partition("a", how)
    await world.advance(8.5 * SECOND)
    # A tenth of the lease before its end the handler is cancelled, though nothing was heard.
    (ended,) = world.timeline.of(Ended)
    assert isinstance(ended, Ended)
    assert (ended.instance, ended.outcome) == ("a", "lost")
    assert (ended.at - world.timeline.of(events.Claimed)[0].at) == 9 * SECOND
    await world.advance(10 * SECOND)
    claims = [(e.instance, e.attempt) for e in world.timeline.of(events.Claimed)]  # type: ignore[attr-defined]
    assert claims == [("a", 1), ("b", 2)]
    before = outside(world.database)
    world.heal("a")
    await world.settle()
    assert outside(world.database) == before
    await world.drain()
    (finished,) = world.timeline.of(events.Finished)
    assert finished.instance == "b"
    world.history.check_all()


async def test_what_hung_arrives_late_and_is_fenced(inbox_world: Start) -> None:
    world = await inbox_world(serving(sleeping(8.9)))
    await world.start("a")
    await world.publish("jobs", b"x", by="a")
    await world.advance(4 * SECOND)
    world.partition("a")  # so nothing is renewed, and the settlement hangs
    await world.advance(4.95 * SECOND)
    # By its clock the lease is over, and it is right to take the row.
    await world.start("b", clock_offset=1.5 * SECOND)
    await world.settle()
    claims = [(e.instance, e.attempt) for e in world.timeline.of(events.Claimed)]  # type: ignore[attr-defined]
    assert claims == [("a", 1), ("b", 2)]
    before = outside(world.database)
    await world.advance(0.1 * SECOND)
    world.heal("a")
    await world.settle()
    (lost,) = world.timeline.of(events.Lost)
    assert (lost.instance, "another lease" in lost.reason) == ("a", True)  # type: ignore[attr-defined]
    assert outside(world.database) == before == ([], [(3, True)])
    await world.drain()
    world.history.check_all()


async def test_a_crash_that_never_strikes_is_warned_of(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    with pytest.warns(UserWarning, match="never struck") as warned:  # noqa: PT031 - where it ends
        async with World(serving(sleeping(1)), inbox_database) as world:
            await world.start("a")
            mistyped = world.crash_at("a", "sttle", "after")
            asked = world.crash_at("a", 500, "reply lost")
            assert not asked.hits
            await world.publish("jobs", b"x", by="a")
            await world.advance(2 * SECOND)
            commit = world.crash_at("a", "COMMIT", "reply lost")
            with pytest.raises(OutcomeUnknownError):
                async with world.instances["a"].database.transaction() as tx:
                    await tx.execute("INSERT INTO effects (what) VALUES ('x')")
    assert repr(mistyped) == "<Fault crash_at('a', 'sttle', 'after'): not hit>"
    assert repr(asked) == "<Fault crash_at('a', 500, 'reply lost'): not hit>"
    assert repr(commit) == "<Fault crash_at('a', 'COMMIT', 'reply lost'): hit>"
    (warning,) = warned
    text = str(warning.message)
    assert text.startswith(f"{mistyped} has never struck;")
    assert all(repr(name) in text for name in ("claim", "commit", "insert", "settle"))


async def test_an_id_used_again_after_a_lost_reply(inbox_world: Start) -> None:
    world = await inbox_world(serving(sleeping(1)))
    await world.start("a")
    ids = []
    for _ in range(3):
        world.crash_at("a", "settle", "reply lost")
        ids.append(await world.publish("jobs", b"x", by="a"))
        await world.advance(30 * SECOND)
        if world.database.dialect == "sqlite":
            await world.database.execute("DELETE FROM sqlite_sequence")
    await world.drain()
    if world.database.dialect == "sqlite":
        assert ids == [1, 1, 1]
        assert [len(lives) for lives in world.history.facts.lives.values()] == [3]
    world.history.check_all(left=[])


class Locked(Inbox, table="locked_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


LOCKED = InboxQueue(Locked, "locked", bytes)


def locking(database: Database) -> Service:
    @subscriber(LOCKED)
    async def handle(message: bytes, delivery: Delivery) -> None:
        await delivery.clock.sleep(8)

    app = Service("locked", Broker(database))
    app.include(handle, workers=2)
    return app


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "how"),
    [("postgres", "trio", "crash"), ("postgres", "asyncio", "fail"), ("postgres", "trio", "fail")],
)
async def test_rows_that_a_connection_holds_go_to_the_other(
    inbox_world: Start, inbox_database: Database, how: Any
) -> None:
    for statement in create_table(get_dialect("postgres"), Locked.spec):
        await inbox_database.execute(statement)
    world = await inbox_world(locking)
    await world.start("a")
    for _ in range(2):
        await world.publish(LOCKED, b"x", by="a")
    await world.start("b")
    await world.advance(2 * SECOND)
    if how == "crash":
        await world.crash("a")
    else:
        world.partition("a", how)
    await world.drain()
    finished = [event.instance for event in world.timeline.of(events.Finished)]
    assert finished == ["b", "b"]
    assert world.clock.monotonic() < 20
    world.history.check_all(left=[])


class Keyed(Inbox, table="world_keyed", advisory_lock="world-{id}"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


KEYED = InboxQueue(Keyed, "keyed", bytes)


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "queue", "statement"),
    [
        ("postgres", "trio", LOCKED, "commit"),
        ("mariadb", "asyncio", LOCKED, "commit"),
        ("postgres", "asyncio", KEYED, "settle"),
        ("mysql", "trio", KEYED, "settle"),
        ("sqlite", "asyncio", KEYED, "settle"),
    ],
)
async def test_settlement_whose_reply_is_lost_with_its_session_has_lost_no_row(
    inbox_world: Start, inbox_database: Database, queue: Any, statement: str
) -> None:
    for ddl in create_table(get_dialect(inbox_database.dialect), queue.spec):
        await inbox_database.execute(ddl)

    def keeping(database: Database) -> Service:
        @subscriber(queue)
        async def handle(message: bytes, delivery: Delivery) -> None:
            await delivery.clock.sleep(1)

        app = Service("keeping", Broker(database))
        app.include(handle)
        return app

    world = await inbox_world(keeping)
    await world.start("a")
    id = await world.publish(queue, b"x", by="a")
    fault = world.crash_at("a", statement, "reply lost")
    await world.drain()
    assert fault.hits == 1
    (unknown,) = world.timeline.of(events.OutcomeUnknown)
    assert (unknown.queue, unknown.id, unknown.attempt) == (queue.name, id, 1)  # type: ignore[attr-defined]
    assert await inbox_database.fetch(f"SELECT id FROM {queue.spec.table}") == []
    world.history.check_all(left=[])


async def test_clocks_that_are_wrong(inbox_world: Start) -> None:
    world = await inbox_world(serving(sleeping(20), workers=2))
    ahead = await world.start("ahead", clock_offset=0.4 * SECOND, drift=0.01)
    await world.start("behind", clock_offset=-0.4 * SECOND)
    start = world.clock.now()
    for n in range(4):
        await world.publish("jobs", b"%d" % n)
    await world.advance(10 * SECOND)
    assert ahead.clock.now() - start == 10.5 * SECOND
    await world.crash("ahead")
    await world.drain()
    firsts = {event.instance: event for event in reversed(world.timeline.of(events.Claimed))}
    for name, ahead_by in (("ahead", 0.4), ("behind", -0.4)):
        index = world.timeline.events.index(firsts[name])
        off = firsts[name].at - world.timeline.times[index]
        assert off.total_seconds() == pytest.approx(ahead_by, abs=0.02)
    assert world.timeline.of(events.Lost) == []
    world.history.check_all()


async def test_misuse_is_told(inbox_world: Start, inbox_database: Database) -> None:
    world = await inbox_world(serving(sleeping(1)))
    with pytest.raises(LookupError, match="crash: there is no instance 'a'; started were: none"):
        await world.crash("a")
    await world.start("a")
    with pytest.raises(ClosedError, match="instance 'a' is running already: stop or crash it"):
        await world.start("a")
    with pytest.raises(DeclarationError, match="other than 'world'"):
        await world.start("world")
    with pytest.raises(ClosedError, match="'a' is not cut"):
        world.heal("a")
    with pytest.raises(ValueError, match="'hang' or 'fail', not 'slow'"):
        world.partition("a", "slow")  # type: ignore[arg-type]
    world.partition("a")
    with pytest.raises(ClosedError, match="cut from the database already"):
        world.partition("a")
    world.heal("a")
    with pytest.raises(ValueError, match="counted from 1"):
        world.crash_at("a", 0)
    with pytest.raises(ValueError, match="not 'during'"):
        world.crash_at("a", 1, "during")  # type: ignore[arg-type]
    for wrong in ((0, 1), ("", 1), (-1, 1), ("settle", 0), (True, 1)):
        with pytest.raises(ValueError, match="name what is refused, or count it from 1"):
            world.refuse("a", wrong[0], times=wrong[1])
    await world.stop("a")
    for step in (world.stop("a"), world.crash("a"), world.publish("jobs", b"x", by="a")):
        with pytest.raises(ClosedError, match="instance 'a' does not run, it is stopped"):
            await step
    await world.publish("jobs", b"x")
    with pytest.raises(ClosedError, match=r"no instance runs.*start\('a'\)"):
        await world.drain()
    closed = World(serving(sleeping(1)), inbox_database)
    with pytest.raises(ClosedError, match="not open"):
        await closed.start("a")
    with pytest.raises(DeclarationError, match="in virtual time"):
        World(serving(sleeping(1)), Database("sqlite:///x.db"))
    with pytest.raises(DeclarationError, match="another database"):
        World(lambda _: Service("x", Broker("sqlite:///x.db")), inbox_database)
    with pytest.raises(DeclarationError, match="returns a Service, not None"):
        World(lambda _: None, inbox_database)  # type: ignore[arg-type,return-value]


async def test_a_database_of_one_connection_is_refused(virtual_clock: VirtualClock) -> None:
    for url in ("sqlite:///:memory:", "sqlite-inloop"):
        with pytest.raises(DeclarationError, match="several can open"):
            World(serving(sleeping(1)), open_test_database(url, clock=virtual_clock))


async def test_instances_that_end_by_themselves_say_why_once(inbox_world: Start) -> None:
    async def fail(message: bytes, delivery: Delivery) -> None:
        raise SystemExit(message.decode())

    async def drop(database: Database) -> None:
        await database.execute("DROP TABLE world_jobs")

    def broken(database: Database) -> Service:
        app = serving(fail)(database)
        if database.instance == "b":
            app._startup[:] = [drop]
        return app

    world = await inbox_world(broken)
    await world.start("a")
    await world.publish("jobs", b"bye", by="a")
    await world.settle()
    assert world.instances["a"].state == "failed"
    with pytest.raises(SystemExit, match="bye"):
        await world.stop("a")
    await world.advance(SECOND)
    with pytest.raises(SchemaError, match="world_jobs"):
        await world.start("b")
    assert world.running == ()


async def test_rows_that_stay_are_named(inbox_world: Start) -> None:
    world = await inbox_world(serving(sleeping(1000)))
    await world.start("a")
    id = await world.publish("jobs", b"x", by="a")
    with pytest.raises(
        InvariantViolation, match=rf"row {id} of queue 'jobs' unfinished after"
    ) as e:
        await world.drain(20 * SECOND)
    assert (e.value.rule, e.value.queue, e.value.id) == ("nothing_lost", "jobs", id)
    assert "lease renewed" in str(e.value)


@asynccontextmanager
async def gated(url: str, clock: VirtualClock) -> AsyncIterator[World]:
    async def handle(message: bytes, delivery: Delivery) -> None:
        await write(delivery, message.decode())
        await delivery.clock.sleep(3)

    async with (
        open_test_database(url, clock=clock) as database,
        World(serving(handle), database) as world,
    ):
        yield world


def test_a_machine_drives_it_and_its_schedule_repeats_the_run(
    cell: tuple[str, BackendName],
) -> None:
    url, backend = cell

    def play(choices: list[int], backend: BackendName) -> tuple[list[str], StatementGate]:
        gate = StatementGate(choices)
        clock = VirtualClock(gate=gate)
        with VirtualRunner(backend=backend, clock=clock) as runner:
            world_of = gated(url, clock)
            world = runner.call(world_of.__aenter__)
            for name in ("a", "b"):
                runner.call(world.start, name)
            for n in range(3):
                runner.call(world.publish, "jobs", b"%d" % n)
            world.crash_at("a", 3, "after")
            runner.call(world.advance, 4 * SECOND)
            if "a" not in world.running:
                runner.call(world.start, "a")
            runner.call(world.drain)
            world.history.check_all()
            ids = {
                id: n
                for n, id in enumerate(sorted(e.id for e in world.timeline.of(events.Published)))
            }  # type: ignore[attr-defined]
            told = [
                f"{type(e).__name__} {e.instance} {ids.get(getattr(e, 'id', None), '')}"
                for e in world.timeline
            ]
            # Who of both hangs up first is the operating system's choice.
            runner.call(world_of.__aexit__, None, None, None)
        return told, gate

    first, gate = play([1, 0, 2, 1, 1, 0, 3, 1, 2], backend)
    assert any("Crashed" in line for line in first)
    again, _ = play(gate.schedule, backend)
    assert again == first


def test_what_the_body_raises_is_raised_and_nothing_is_left(cell: tuple[str, BackendName]) -> None:
    url, backend = cell
    clock = VirtualClock()

    async def main() -> None:
        async with (
            open_test_database(url, clock=clock) as database,
            World(serving(sleeping(1000)), database) as world,
        ):
            await world.start("a")
            await world.publish("jobs", b"x", by="a")
            world.partition("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main, clock=clock, backend=backend)
