"""Jobs that take minutes, under a lease of one minute: the guide's cases and what it says."""

from __future__ import annotations

import logging
from datetime import timedelta

import anyio
import pytest
import reports
from reports import REPORTS, RenderReport, Report, render, service

from inboxkit import Database, Outcome, Service, ack, events
from inboxkit._runtime.renewing import Renewer
from inboxkit_testing import TestApp, VirtualClock, delivery
from inboxkit_testing.timeline import recorded

FIVE_MINUTES = Report(id=1, pages=30_000)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


async def insert_leased(db: Database, report: Report, locked_until: timedelta) -> None:
    """A row as another process left it: counted once, under a lease that ends then."""
    row = RenderReport.of(report)
    await db.execute(
        "INSERT INTO report_jobs (attempt, locked_until, payload) VALUES (2, $1, $2)",
        db.clock.now() + locked_until,
        row.payload,
    )


async def test_a_five_minute_render_is_delivered_once(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.publish(REPORTS, FIVE_MINUTES)
        await app.advance(6 * MINUTE)
        app.subscriber(render).assert_called_once()
        assert app.outcomes == [ack()]
        assert await app.rows(RenderReport) == []


async def test_the_lease_is_renewed_each_half_minute(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    with recorded() as timeline:
        async with TestApp(service(inbox_database)) as app:
            await app.publish(REPORTS, FIVE_MINUTES)
            await app.advance(6 * MINUTE)
    renewed = [event.at - start for event in timeline.of(events.Renewed)]
    # At 300 s the last renewal and the handler's end are one instant: either may come first.
    assert renewed[:9] == [n * timedelta(seconds=30) for n in range(1, 10)]
    assert len(renewed) <= 10


async def test_without_renewals_the_lease_is_lost_and_the_handler_cancelled(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def never(self: Renewer) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Renewer, "renew", never)
    ends: list[timedelta] = []
    start = virtual_clock.now()

    async def draw(report: Report) -> None:
        try:
            await anyio.sleep(300)
        finally:
            ends.append(virtual_clock.now() - start)

    monkeypatch.setattr(reports, "draw", draw)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(REPORTS, FIVE_MINUTES)
        await app.advance(61 * SECOND)
        # A tenth of the lease before its end the hold is over; at its end the row is claimed anew.
        assert ends == [timedelta(seconds=54)]
        assert [call.attempt for call in app.subscriber(render).runs] == [1]
        assert len(app.subscriber(render).calls) == 2
    assert "is lost" in caplog.text


async def test_only_the_row_whose_lease_is_over_is_delivered(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await reports.create_schema(inbox_database)
    await insert_leased(inbox_database, Report(1, pages=1), -SECOND)
    await insert_leased(inbox_database, Report(2, pages=1), 10 * MINUTE)
    kept = await inbox_database.fetch_value("SELECT locked_until FROM report_jobs WHERE id = 2")
    async with TestApp(service(inbox_database)) as app:
        await app.advance(2 * SECOND)
        app.subscriber(render).assert_called_with(Report(1, pages=1))
        assert [run.attempt for run in app.subscriber(render).runs] == [2]
        (left,) = await app.rows(RenderReport)
        assert left.id == 2
        now = await inbox_database.fetch_value("SELECT locked_until FROM report_jobs WHERE id = 2")
        assert now == kept
    assert "rendering report 1 again: attempt 2" in caplog.text


async def test_a_lease_in_force_ends_and_then_its_row_is_delivered(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await reports.create_schema(inbox_database)
    await insert_leased(inbox_database, Report(1, pages=1), 30 * SECOND)
    async with TestApp(service(inbox_database)) as app:
        await app.advance(29 * SECOND)
        app.subscriber(render).assert_not_called()
        await app.advance(2 * SECOND)
        app.subscriber(render).assert_called_once()


async def test_a_settlement_after_a_lost_lease_changes_nothing(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    with recorded() as timeline:
        async with TestApp(service(inbox_database)) as app:
            await app.publish(REPORTS, Report(1, pages=1_000))
            # Another instance took the row over: its token stands there now.
            await app.advance(5 * SECOND)
            await inbox_database.execute(
                "UPDATE report_jobs SET locked_until = $1, attempt = 3", start + 2 * MINUTE
            )
            await app.advance(MINUTE)
            (row,) = await app.rows(RenderReport)
            assert (row.attempt, row.locked_until) == (3, start + 2 * MINUTE)
    (lost,) = timeline.of(events.Lost)
    assert lost.at - start == timedelta(seconds=10)
    assert timeline.of(events.Finished) == []


async def test_a_row_deleted_by_an_operator_is_a_lost_lease(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    with recorded() as timeline:
        async with TestApp(service(inbox_database)) as app:
            await app.publish(REPORTS, Report(1, pages=1_000))
            await inbox_database.execute("DELETE FROM report_jobs")
            await app.advance(MINUTE)
            assert await app.rows(RenderReport) == []
    assert len(timeline.of(events.Lost)) == 1


async def test_a_lease_holds_a_connection_for_a_statement_only(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_work: list[int] = []

    async def draw(report: Report) -> None:
        in_work.append(report.id)
        await anyio.sleep(10)

    monkeypatch.setattr(reports, "draw", draw)
    app = service(inbox_database)
    wide = Service("reports", app.broker)
    wide.on_startup(reports.create_schema)
    wide.include(render, workers=2 * inbox_database.pool_size)
    async with TestApp(wide) as running:
        for number in range(2 * inbox_database.pool_size):
            await running.broker.publish(REPORTS, Report(number, pages=1))
        await running.settle()
        assert sorted(in_work) == list(range(2 * inbox_database.pool_size))
        assert await inbox_database.fetch_value("SELECT count(*) FROM report_jobs") == len(in_work)
        await running.advance(11 * SECOND)
        assert await running.rows(RenderReport) == []


async def test_an_orderly_stop_gives_the_attempt_back(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    app = Service("reports", service(inbox_database).broker, drain_timeout=timedelta(seconds=5))
    app.on_startup(reports.create_schema)
    app.include(render)
    async with TestApp(app) as first:
        await first.publish(REPORTS, FIVE_MINUTES)
        await first.advance(MINUTE)
    rows = await inbox_database.fetch("SELECT attempt, locked_until FROM report_jobs")
    assert [tuple(row) for row in rows] == [(1, None)]


async def test_a_handler_is_tested_without_a_queue(virtual_clock: VirtualClock) -> None:
    outcome: Outcome = await render(Report(1, pages=2), delivery(REPORTS, Report(1, pages=2)))
    assert outcome == ack()


@pytest.fixture(autouse=True)
def _see_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
