"""Jobs that take minutes, under a lease of one minute: the guide's cases and what it says."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import anyio
import pytest
import reports
from reports import REPORTS, RenderReport, Report, render, service

from inboxkit import Broker, Database, Outcome, Service, ack, events
from inboxkit._runtime.renewing import Renewer
from inboxkit_testing import (
    CrashedError,
    ObservedDatabase,
    TestApp,
    VirtualClock,
    delivery,
    open_test_database,
)
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
    inbox_database: ObservedDatabase, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    async with TestApp(service(inbox_database)) as app:
        await app.publish(REPORTS, FIVE_MINUTES)
        await app.advance(6 * MINUTE)
    recording = inbox_database.recording
    claims = [t for t in recording.transactions("claim") if any(s.rows for s in t.statements)]
    assert [claim.statements[0].at for claim in claims] == [start]
    renewed = [renewal.statements[0].at - start for renewal in recording.transactions("renew")]
    # At 300 s the last renewal and the handler's end are one instant: either may come first.
    assert renewed[:9] == [n * timedelta(seconds=30) for n in range(1, 10)]
    assert len(renewed) <= 10


READ_LOCKED_UNTIL = """
import sys
url = sys.argv[1]

def read():
    if url.startswith("sqlite"):
        import sqlite3
        connection = sqlite3.connect(url.partition("///")[2])
    elif url.startswith("postgres"):
        import psycopg
        connection = psycopg.connect(url)
    else:
        import pymysql
        from urllib.parse import urlsplit
        at = urlsplit(url)
        connection = pymysql.connect(
            host=at.hostname, port=at.port, user=at.username, password=at.password or "",
            database=at.path[1:],
        )
    cursor = connection.cursor()
    cursor.execute("SELECT locked_until FROM report_jobs")
    ((until,),) = cursor.fetchall()
    connection.close()
    return until if isinstance(until, str) else until.isoformat()

for _ in sys.stdin:  # a line asks
    text = read()
    # MariaDB and MySQL keep UTC without saying so.
    print(text if "+" in text else text + "+00:00", flush=True)
"""


@contextmanager
def another_process(url: str) -> Iterator[Callable[[], datetime]]:
    """A process that reads when the lease ends, each time it is asked."""
    command = [sys.executable, "-c", READ_LOCKED_UNTIL, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as process:
        asking, answers = process.stdin, process.stdout
        assert asking
        assert answers

        def read() -> datetime:
            asking.write("\n")
            return datetime.fromisoformat(answers.readline().strip())

        yield read


async def test_another_process_sees_each_renewal(
    inbox_database: ObservedDatabase, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    with another_process(inbox_database.url) as read:
        async with TestApp(service(inbox_database)) as app:
            await app.publish(REPORTS, FIVE_MINUTES)
            seen = [read() - start]
            await app.advance(45 * SECOND)
            for _ in range(9):
                seen.append(read() - start)
                await app.advance(30 * SECOND)
    # A lease ends a minute after it was taken or renewed, give or take the token's microseconds.
    rounded = [timedelta(seconds=round(until.total_seconds(), 2)) for until in seen]
    assert rounded == [MINUTE + n * timedelta(seconds=30) for n in range(10)]
    assert len(set(seen)) == len(seen)


async def test_without_renewals_the_lease_is_lost_and_the_handler_cancelled(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def never(self: Renewer) -> None:
        """Nothing is due, ever."""

    monkeypatch.setattr(Renewer, "next_round", never)
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


async def test_a_crash_in_mid_render_keeps_the_row_away_until_its_lease_ends(
    inbox_database: ObservedDatabase, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    dying = open_test_database(inbox_database.url, clock=virtual_clock, instance="dying")
    finished: list[str] = []

    async def serve() -> None:
        try:
            async with dying, service(dying).running():
                await anyio.sleep_forever()
        except* CrashedError:
            finished.append("as a killed process: nothing more was sent")

    start = virtual_clock.now()
    await reports.create_schema(inbox_database)
    await Broker(inbox_database).publish(REPORTS, FIVE_MINUTES)
    async with anyio.create_task_group() as process:
        process.start_soon(serve)
        await virtual_clock.sleep_until(start + 2 * MINUTE + 10 * SECOND)
        await dying.crash()
        process.cancel_scope.cancel()
    held = await inbox_database.fetch_one("SELECT attempt, locked_until FROM report_jobs")
    assert held is not None
    assert held.attempt == 2
    async with TestApp(service(inbox_database)) as app:
        await virtual_clock.sleep_until(start + 3 * MINUTE - SECOND)
        app.subscriber(render).assert_not_called()
        await app.advance(2 * SECOND + timedelta(milliseconds=10))
        assert len(app.subscriber(render).calls) == 1
        await app.advance(6 * MINUTE)
        assert [run.attempt for run in app.subscriber(render).runs] == [2]
        assert await app.rows(RenderReport) == []
    assert "rendering report 1 again: attempt 2" in caplog.text


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
