"""Recurring jobs over changes of clocks, outages, crashes and several hosts, in virtual time."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cronsim", reason="it is the extra cron")

import recurring
from recurring import BOOKS, RATES, ScheduledRun, close_books, fetch_rates, plan_all, service

from inboxkit import Database, TransactionalDelivery
from inboxkit_testing import TestApp, VirtualClock, World

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Tests that pass days look at their tables each six hours: due times that this process knows are met to
# the second all the same.
SELDOM = timedelta(hours=6)

SPRING = datetime(2030, 3, 29, 22, 30, tzinfo=UTC)
"""Two nights later Berlin leaves out 2:00 to 3:00."""
AUTUMN = datetime(2030, 10, 25, 22, 30, tzinfo=UTC)
"""Two nights later Berlin has 2:00 to 3:00 twice."""


@pytest.fixture
def virtual_clock(request: pytest.FixtureRequest) -> VirtualClock:
    """It starts when the test says."""
    return VirtualClock(start=getattr(request, "param", datetime(2030, 1, 1, 12, 30, tzinfo=UTC)))


async def finished(db: Database, name: str) -> list[str]:
    """When the finished runs of a job were planned for, in the order in which they ended."""
    rows = await db.fetch("SELECT planned_for FROM finished_runs WHERE name = $1", name)
    return [datetime.fromisoformat(row[0]).strftime("%d %H:%M") for row in rows]


async def open_runs(app: TestApp) -> Counter[str]:
    return Counter(row.name for row in await app.pending(ScheduledRun))


ONE_OF_EACH = Counter({BOOKS.name: 1, RATES.name: 1})


@pytest.mark.parametrize(
    ("virtual_clock", "nights"),
    [
        (SPRING, ["30 01:30", "31 01:00", "01 00:30"]),
        (AUTUMN, ["26 00:30", "27 00:30", "28 01:30"]),
    ],
    indirect=["virtual_clock"],
    ids=["clocks put forward", "clocks put back"],
)
async def test_each_night_has_one_run_and_each_hour_too(
    nights: list[str], inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    async with TestApp(service(inbox_database, SELDOM)) as app:
        await app.advance(3 * DAY)
        assert await finished(inbox_database, BOOKS.name) == nights
        hours = [start + timedelta(minutes=30) + n * HOUR for n in range(72)]
        assert await finished(inbox_database, RATES.name) == [f"{at:%d %H:%M}" for at in hours]
        for row in await app.rows(ScheduledRun):
            # Each was run at its second.
            assert row.processed_at in (row.planned_for, None)
        assert await open_runs(app) == ONE_OF_EACH


async def test_a_day_of_outage_is_made_up_for_by_one_run(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database, SELDOM)) as app:
        await app.advance(HOUR)
    await virtual_clock.advance(DAY)
    async with TestApp(service(inbox_database, SELDOM)) as app:
        await app.advance(SECOND)
        assert await finished(inbox_database, RATES.name) == ["01 13:00", "01 14:00"]
        assert await finished(inbox_database, BOOKS.name) == ["02 01:30"]
        assert await open_runs(app) == ONE_OF_EACH
        await app.advance(HOUR)
        assert await finished(inbox_database, RATES.name) == ["01 13:00", "01 14:00", "02 14:00"]


async def test_two_hosts_plan_and_run_each_run_once(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    # What the other has planned is found by a look at the table.
    async with World(lambda db: service(db, timedelta(minutes=10)), inbox_database) as world:
        await world.start("a")
        # Its clock is behind: it plans a run that the other has run already.
        await world.advance(timedelta(minutes=30))
        await world.start("b", clock_offset=-2 * SECOND)
        await world.advance(2 * HOUR)
        await world.stop("a")
        await world.advance(timedelta(hours=2, minutes=15))
        assert await finished(inbox_database, RATES.name) == [f"01 {n}:00" for n in range(13, 18)]
        rows = [row for row in await world.rows(ScheduledRun) if row.processed_at is None]
        assert Counter(row.name for row in rows) == ONE_OF_EACH


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_statement_neither_loses_nor_doubles_a_run(
    when: str, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Each hour the process dies at another statement of the run, and is started again."""
    async with World(lambda db: service(db, HOUR), inbox_database) as world:
        await world.start("host")
        hours = 0
        for statement in itertools.count(1):
            await world.advance(timedelta(minutes=30) - SECOND)
            fault = world.crash_at("host", statement, when)  # type: ignore[arg-type]
            await world.advance(timedelta(seconds=5))
            hours += 1
            if not fault.hits:
                break
            await world.start("host")
            # The row's lease ends, and the service that has claimed nothing looks again.
            await world.advance(timedelta(minutes=30) - 4 * SECOND)
        assert statement > 4
        found = await finished(inbox_database, RATES.name)
        first = datetime(2030, 1, 1, 13, tzinfo=UTC)
        assert found == [f"{first + n * HOUR:%d %H:%M}" for n in range(hours)]
        rows = [row for row in await world.rows(ScheduledRun) if row.processed_at is None]
        assert Counter(row.name for row in rows) == ONE_OF_EACH


async def test_a_run_that_fails_is_repeated_and_plans_the_next_when_it_succeeds(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([ValueError("no rates"), ValueError("no rates"), None])
    done = recurring.done

    async def done_at_last(run: ScheduledRun, delivery: TransactionalDelivery) -> None:
        await done(run, delivery)
        if (error := next(failures)) is not None:
            raise error

    monkeypatch.setattr(recurring, "done", done_at_last)
    async with TestApp(service(inbox_database, SELDOM)) as app:
        await app.advance(timedelta(minutes=30) + SECOND / 2)
        assert await finished(inbox_database, RATES.name) == []
        assert await open_runs(app) == ONE_OF_EACH
        await app.advance(timedelta(seconds=10))
        assert await finished(inbox_database, RATES.name) == ["01 13:00"]
        assert len(app.subscriber(fetch_rates).calls) == 3
        app.subscriber(close_books).assert_not_called()
        assert await open_runs(app) == ONE_OF_EACH


async def test_planning_again_plans_nothing_new(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    served = service(inbox_database, SELDOM)
    async with TestApp(served) as app:
        for _ in range(3):
            await plan_all(served)
        assert await open_runs(app) == ONE_OF_EACH
