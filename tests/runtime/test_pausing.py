"""Queues that the control table pauses: nothing is claimed, what is in work goes on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import anyio.lowlevel
import pytest
from runtime_kit import DEAD, JOBS, SECOND, Handler, Job, Work, another, create, observed, table

from inboxkit import (
    Broker,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    SchemaError,
    Service,
    events,
    retry,
    role,
    subscriber,
)
from inboxkit._operating.pausing import set_paused
from inboxkit._sql.control import create_control
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, Timeline, VirtualClock


class Locked(Inbox, table="paused_locked"):
    """The row lock form."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="paused_keyed", advisory_lock="paused-{id}"):
    """The advisory lock form."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


LOCKED = InboxQueue(Locked, "locked", Work)
KEYED = InboxQueue(Keyed, "keyed", Work)
CONTROL = "inbox control"


def service(
    database: Database, queue: InboxQueue[Any, Any], handler: Handler, *, name: str = "one"
) -> Service:
    app = Service(name, Broker(database), control_table=CONTROL)

    @subscriber(queue)
    async def handle(work: Work, delivery: Delivery) -> Any:
        return await handler(work, delivery)

    app.include(handle, workers=3)
    return app


async def make(database: Database, *tables: Any) -> None:
    await create(database, *tables)
    spec = Service("s", Broker(database), control_table=CONTROL).control
    assert spec is not None
    await database.execute(create_control(get_dialect(database.dialect), spec))


@asynccontextmanager
async def served(
    database: Database, queue: InboxQueue[Any, Any], handler: Handler
) -> AsyncIterator[tuple[TestApp, Service]]:
    app = service(database, queue, handler)
    async with TestApp(app) as kit:
        yield kit, app


FORMS = {
    "lease": (Job, JOBS, "sqlite"),
    "lease on a server": (Job, JOBS, "postgres"),
    "lease on MariaDB": (Job, JOBS, "mariadb"),
    "lease on MySQL": (Job, JOBS, "mysql"),
    "row lock": (Locked, LOCKED, "postgres"),
    "row lock on MariaDB": (Locked, LOCKED, "mariadb"),
    "advisory lock": (Keyed, KEYED, "postgres"),
    "advisory lock on SQLite": (Keyed, KEYED, "sqlite"),
}


@pytest.mark.parametrize(
    ("case", "inbox_db"), [(case, form[2]) for case, form in FORMS.items()], ids=list(FORMS)
)
async def test_a_paused_queue_claims_nothing_and_work_in_hand_ends(
    case: str, inbox_database: Database, frozen_clock: VirtualClock, timeline: Timeline
) -> None:
    kind, queue, _database = FORMS[case]
    handler = Handler(5, None)
    await make(inbox_database, kind)
    async with served(inbox_database, queue, handler) as (kit, app):
        await kit.publish(queue, Work(1))
        assert handler.numbers == [1]
        assert await set_paused(app, [queue.name], paused=True) == {queue.name}
        assert await set_paused(app, [queue.name], paused=True) == set()
        await kit.advance(SECOND)
        await kit.publish(queue, Work(2))
        await kit.advance(timedelta(seconds=30))
        assert handler.numbers == [1]
        assert len(await table(inbox_database, kind, "id")) == 1, "the first was acked meanwhile"
        assert await set_paused(app, [queue.name], paused=False) == {queue.name}
        await kit.advance(SECOND)
        assert handler.numbers == [1, 2]
        assert await table(inbox_database, kind, "id") == []
    told = [event for event in timeline.events if type(event).__name__ in ("Paused", "Resumed")]
    assert [(type(event), event.queue, event.instance) for event in told] == [
        (events.Paused, queue.name, "one"),
        (events.Resumed, queue.name, "one"),
    ]


async def test_a_pause_is_seen_by_every_instance_and_outlives_them(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    first, second = Handler(), Handler()
    await make(inbox_database, Job)
    async with (
        another(inbox_database, "two") as other,
        served(inbox_database, JOBS, first) as (kit, app),
        service(other, JOBS, second, name="two").running(),
    ):
        await set_paused(app, ["jobs"], paused=True)
        await kit.advance(SECOND)
        await kit.publish(JOBS, Work(1))
        await kit.advance(timedelta(minutes=1))
    third = Handler()
    async with served(inbox_database, JOBS, third) as (kit, app):
        await kit.advance(timedelta(minutes=1))
        assert first.numbers == second.numbers == third.numbers == []
        await set_paused(app, ["jobs"], paused=False)
        await kit.advance(SECOND)
        assert third.numbers == [1]


async def test_a_pause_is_one_queues_own(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    jobs, dead = Handler(retry()), Handler()
    await make(inbox_database, Job)
    app = Service("one", Broker(inbox_database), control_table=CONTROL)

    @subscriber(JOBS)
    async def handle(work: Work, delivery: Delivery) -> Any:
        return await jobs(work, delivery)

    @subscriber(DEAD)
    async def review(work: Work, delivery: Delivery) -> Any:
        return await dead(work, delivery)

    app.include(handle, max_attempts=1, dead_letter="jobs.dead")
    app.include(review)
    async with TestApp(app) as kit:
        await set_paused(app, ["jobs.dead"], paused=True)
        await kit.advance(SECOND)
        await kit.publish(JOBS, Work(1))
        await kit.advance(SECOND * 10)
        assert (jobs.numbers, dead.numbers) == ([1], [])
        await set_paused(app, ["jobs.dead", "jobs"], paused=False)
        await kit.advance(SECOND)
        assert dead.numbers == [1]


async def test_a_paused_service_stops_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await make(inbox_database, Job)
    app = service(inbox_database, JOBS, Handler())
    await set_paused_before(app)
    async with app.running() as handle:
        await frozen_clock.advance(SECOND * 5)
        handle.stop()
    assert frozen_clock.now() - datetime(2030, 1, 1, tzinfo=frozen_clock.now().tzinfo) == SECOND * 5


async def set_paused_before(app: Service) -> None:
    async with app.broker:
        await set_paused(app, ["jobs"], paused=True)


async def test_looks_cost_one_statement_a_poll_and_none_without_a_control_table(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    database = observed(inbox_database)
    await make(inbox_database, Job)

    def looks() -> int:
        return [one.name for one in database.recording.statements()].count("control")

    async with served(inbox_database, JOBS, Handler()) as (kit, _app):
        assert looks() == 1, "before anything is claimed"
        for number in range(50):
            await kit.publish(JOBS, Work(number))
        assert looks() == 1, "claims ask for nothing"
        await kit.advance(SECOND * 10)
        assert looks() == 11
    plain = Service("plain", Broker(inbox_database))

    @subscriber(JOBS)
    async def handle(work: Work) -> None: ...

    plain.include(handle)
    async with TestApp(plain) as kit:
        await kit.advance(SECOND * 10)
    assert looks() == 11


async def test_an_unreadable_control_table_changes_nothing(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    handler = Handler()
    await make(inbox_database, Job)
    async with served(inbox_database, JOBS, handler) as (kit, app):
        await set_paused(app, ["jobs"], paused=True)
        await kit.advance(SECOND)
        quoted = get_dialect(inbox_database.dialect).quote(CONTROL)
        await inbox_database.execute(f"DROP TABLE {quoted}")
        await kit.publish(JOBS, Work(1))
        await kit.advance(SECOND * 10)
        assert handler.numbers == [], "still paused"


async def test_a_service_without_its_control_table_does_not_start(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    with pytest.raises(
        SchemaError, match=r"control table: table 'inbox control' does not exist"
    ) as caught:
        async with service(inbox_database, JOBS, Handler()).running():
            raise AssertionError("it must not start")
    made = str(caught.value).partition("such as by:\n")[2]
    await inbox_database.execute(made)
    async with service(inbox_database, JOBS, Handler()).running():
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("name", ["", ".control", "control.", "a.b.c", 7, ("a",)])
def test_a_control_tables_name_is_one_or_two_parts(name: Any) -> None:
    with pytest.raises(DeclarationError, match="control_table is the name of a table"):
        Service("s", Broker("sqlite:///x.db"), control_table=name)


def test_pauses_are_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    from inboxkit._runtime.reporting import Reporter

    with caplog.at_level(logging.INFO, logger="inboxkit"):
        reporter = Reporter("one", "jobs", VirtualClock())
        reporter.paused()
        reporter.resumed()
    assert [record.getMessage() for record in caplog.records] == [
        "queue 'jobs' is paused: it claims nothing until it is resumed",
        "queue 'jobs' is resumed",
    ]
