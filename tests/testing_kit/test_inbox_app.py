"""The fixture `inbox_app`: a service over the test's own database, in the test's time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from inboxkit import (
    Broker,
    ClosedError,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    SchemaError,
    Service,
    ack,
    retry_after,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock

Start = Callable[[Callable[[Database], Service]], Awaitable[TestApp]]


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Jobs, "jobs", bytes, poll_interval=timedelta(hours=1))


@subscriber(JOBS)
async def handle(message: bytes, delivery: Delivery) -> Outcome:
    return ack() if delivery.attempt > 1 else retry_after(timedelta(days=3))


async def create_schema(db: Database) -> None:
    for statement in create_table(get_dialect(db.dialect), Jobs.spec):
        await db.execute(statement)


def service(database: Database) -> Service:
    app = Service("service", Broker(database))
    app.on_startup(create_schema)
    app.include(handle)
    return app


async def test_an_app_runs_in_virtual_time_without_another_fixture(inbox_app: Start) -> None:
    app = await inbox_app(service)
    assert isinstance(app.database.clock, VirtualClock)
    await app.publish(JOBS, b"x")
    await app.advance(timedelta(days=3))
    assert [run.attempt for run in app.subscriber(handle).runs] == [1, 2]
    assert await app.rows(Jobs) == []


async def test_an_app_is_over_the_tests_database_and_clock(
    inbox_app: Start, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    app = await inbox_app(service)
    assert app.database is inbox_database
    assert inbox_database.clock is frozen_clock
    await app.publish(JOBS, b"x")
    assert [row.due for row in await app.rows(Jobs)] == [frozen_clock.now() + timedelta(days=3)]


async def test_an_app_that_was_not_entered_says_so(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    app = TestApp(service(inbox_database))
    cure = (
        r"^TestApp of service .* does not run yet: enter it first, by async with TestApp\(service\)"
    )
    for early in (
        lambda: app.publish(JOBS, b"x"),
        lambda: app.advance(timedelta(seconds=1)),
        app.settle,
        lambda: app.rows(Jobs),
        lambda: app.pending(Jobs),
        lambda: app.dead(Jobs),
    ):
        with pytest.raises(ClosedError, match=cure):
            await early()
    with pytest.raises(TypeError, match="TestApp is an async context manager"), app:
        raise AssertionError("it was entered")


async def test_a_service_that_cannot_start_says_so(inbox_app: Start) -> None:
    def without_schema(database: Database) -> Service:
        app = Service("service", Broker(database))
        app.include(handle)
        return app

    with pytest.raises(SchemaError, match="'jobs' does not exist"):
        await inbox_app(without_schema)


def test_a_sync_test_is_told_that_it_must_be_async(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_sync(inbox_app): pass")
    result = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:trio", "-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the test that uses it must be async*"])
