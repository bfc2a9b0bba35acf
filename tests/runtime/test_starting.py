"""Start-up: its order, and what is closed again when a step fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import anyio
import pytest
from runtime_kit import (
    DEAD,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    another,
    create,
    observed,
    put,
    serve,
)

from inboxkit import (
    Broker,
    ClosedError,
    Database,
    Inbox,
    InboxQueue,
    SchemaError,
    Service,
    StartupError,
    events,
    role,
    subscriber,
)
from inboxkit.errors import DialectError
from inboxkit_testing import TestApp, Timeline, VirtualClock, open_test_database


def told(error: BaseException) -> str:
    """All that an error says."""
    return str(error)


async def test_the_order_is_hooks_lifespan_checks_claim(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    order: list[str] = []
    database = another(inbox_database)

    @asynccontextmanager
    async def lifespan(service: Service) -> AsyncIterator[str]:
        order.append("lifespan")
        await database.fetch("SELECT 1")
        yield "state"
        order.append("lifespan left")

    handler = Handler()
    app = serve(database, JOBS, handler, lifespan=lifespan)

    @app.on_startup
    async def hook(db: Database) -> None:
        assert db is database
        assert db.is_open
        order.append("first hook")
        await create(db, Job)  # so the check comes after
        await put(db, JOBS, 1)

    async def second(db: Database) -> None:
        order.append("second hook")

    app.on_startup(second)
    assert not database.is_open
    async with app.running() as handle:
        assert handle.ready.is_set()
        await virtual_clock.settle()
        assert handler.deliveries[0].state == "state"
        order.append("running")
    assert order == ["first hook", "second hook", "lifespan", "running", "lifespan left"]
    assert not database.is_open
    started, stopped = timeline.of(events.Started), timeline.of(events.Stopped)
    assert [(e.instance, e.queue) for e in (*started, *stopped)] == [("service", "")] * 2
    kinds = [type(e).__name__ for e in timeline]
    assert kinds.index("Started") <= kinds.index("Claimed") or "Claimed" in kinds
    assert kinds[-1] == "Stopped"


async def test_a_database_that_was_open_stays_open(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    app = serve(inbox_database, JOBS, Handler())
    async with app.running():
        pass
    assert inbox_database.is_open
    with pytest.raises(ClosedError):
        await app.broker.publish(JOBS, Work(1))


async def test_the_same_service_runs_again(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    app = serve(inbox_database, JOBS, handler)
    for n in (1, 2):
        async with app.running():
            await app.broker.publish(JOBS, Work(n))
            await virtual_clock.settle()
    assert handler.numbers == [1, 2]


async def test_a_service_that_runs_refuses_to_run_twice_and_to_include(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    app = serve(inbox_database, JOBS, Handler())
    async with app.running():
        with pytest.raises(ClosedError, match="running already"):
            async with app.running():
                pass
        with pytest.raises(ClosedError, match="include before it starts"):
            app.include(subscriber(DEAD)(Handler()))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["run", "running"])
@pytest.mark.parametrize("step", ["hook", "lifespan", "check"])
async def test_a_step_that_fails_closes_what_was_opened_and_raises_its_error_bare(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, step: str, way: str
) -> None:
    database = another(inbox_database)
    left: list[str] = []

    @asynccontextmanager
    async def lifespan(service: Service) -> AsyncIterator[None]:
        if step == "lifespan":
            raise LookupError("no lifespan")
        try:
            yield
        finally:
            await database.fetch("SELECT 1")
            left.append("lifespan")

    app = serve(database, JOBS, Handler(), lifespan=lifespan)

    @app.on_startup
    async def hook(db: Database) -> None:
        if step == "hook":
            raise LookupError("no hook")

    async def start() -> None:
        if way == "run":
            await app.run()
        else:
            async with app.running():
                raise AssertionError("it started")

    kind = SchemaError if step == "check" else LookupError
    with pytest.raises(kind) as raised:
        await start()
    assert not database.is_open
    assert not app.broker.is_open
    assert left == (["lifespan"] if step == "check" else [])
    if step == "check":
        text = told(raised.value)
        assert "'jobs'" in text  # the subscription, and here its table
        assert "does not exist" in text or "no table" in text or "create" in text.lower()
    assert timeline.of(events.Started) == timeline.of(events.Stopped) == []
    # And the same object starts, once that is mended.
    if step == "check":
        await create(inbox_database, Job)
        async with app.running():
            pass


async def test_a_start_up_error_names_subscription_table_and_column(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    class Wider(Inbox, table="jobs"):
        id: int = role.id(generated=True)
        name: str = role.group()
        note: str = role.column("note")
        locked_until: datetime | None = role.locked_until()
        payload: bytes = role.payload()

    await create(inbox_database, Job)
    queue = InboxQueue(Wider, "the-wide-ones", Work)
    with pytest.raises(SchemaError) as raised:
        await serve(inbox_database, queue, Handler(), name="the-service").run()
    assert (raised.value.table, raised.value.column) == ("jobs", "note")
    text = told(raised.value)
    assert all(word in text for word in ("the-wide-ones", "jobs", "note"))


async def test_a_dead_letter_table_is_checked_too(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    app = serve(inbox_database, PLAIN, Handler(), max_attempts=2, dead_letter="dead_plain_jobs")
    with pytest.raises(StartupError) as raised:
        await app.run()
    assert "dead_plain_jobs" in told(raised.value)
    await inbox_database.execute("CREATE TABLE dead_plain_jobs (id integer PRIMARY KEY)")
    with pytest.raises(StartupError) as raised:
        await app.run()
    assert "dead_plain_jobs" in told(raised.value)


@pytest.mark.parametrize("inbox_db", ["sqlite"])
async def test_a_table_without_lease_or_key_is_refused_on_sqlite(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    class RowLock(Inbox, table="row_lock_jobs"):
        id: int = role.id(generated=True)
        payload: bytes = role.payload()

    await create(inbox_database, RowLock)
    queue = InboxQueue(RowLock, "row-lock", Work)
    with pytest.raises(DialectError) as raised:
        await serve(inbox_database, queue, Handler()).run()
    assert "row_lock_jobs" in told(raised.value)
    assert "locked_until" in told(raised.value)
    assert "row-lock" in told(raised.value)


async def test_a_database_that_cannot_be_reached_is_a_start_up_error(
    virtual_clock: VirtualClock, inbox_backend: str, tmp_path: Any
) -> None:
    database = open_test_database(f"sqlite:///{tmp_path}/no/such/folder/x.db", clock=virtual_clock)
    with pytest.raises(StartupError):
        await serve(database, JOBS, Handler()).run()
    assert not database.is_open


@pytest.mark.parametrize("step", ["hook", "lifespan", "check", "before"])
async def test_a_cancellation_while_starting_ends_it_at_once(
    inbox_database: Database, virtual_clock: VirtualClock, step: str
) -> None:
    await create(inbox_database, Job)
    database = another(inbox_database)
    left: list[str] = []

    @asynccontextmanager
    async def lifespan(service: Service) -> AsyncIterator[None]:
        try:
            if step == "lifespan":
                await anyio.sleep(1000)
            yield
        finally:
            left.append("lifespan")

    app = serve(database, JOBS, Handler(), lifespan=lifespan)

    @app.on_startup
    async def hook(db: Database) -> None:
        if step == "hook":
            await anyio.sleep(1000)

    if step == "check":
        observed(database).faults.delay("describe", 1000, times=10)
    with anyio.CancelScope() as scope:
        if step == "before":
            scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.run)
            await anyio.sleep(1 if step != "before" else 0)
            scope.cancel()
    assert virtual_clock.monotonic() <= 2
    assert not database.is_open
    assert not app.broker.is_open
    if step in ("lifespan", "check"):
        assert left == ["lifespan"]
    async with serve(another(inbox_database), JOBS, Handler()).running():
        pass


async def test_a_service_without_subscriptions_runs_and_stops(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    app = Service("empty", Broker(inbox_database))
    async with TestApp(app) as running:
        await running.advance(SECOND)


@pytest.mark.parametrize("way", ["run", "running"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_a_hook_that_exits_ends_the_start_up(
    inbox_database: Database, virtual_clock: VirtualClock, kind: type[BaseException], way: str
) -> None:
    database = another(inbox_database)
    app = serve(database, JOBS, Handler())

    @app.on_startup
    async def hook(db: Database) -> None:
        raise kind("no configuration")

    seen: BaseException | None = None
    try:
        if way == "run":
            await app.run()
        else:
            async with app.running():
                raise AssertionError("it started")
    except BaseException as error:  # noqa: BLE001
        seen = error
    assert type(seen) is kind
    assert not database.is_open
