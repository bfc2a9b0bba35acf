"""The metrics for Prometheus, by what its client exposes as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from telemetry_kit import (
    DEAD,
    JOBS,
    MINUTE,
    ROW_LOCKED,
    SECOND,
    Job,
    RowLocked,
    Work,
    create,
    scrape,
    serve,
)

from inboxkit import Database, DeclarationError, Delivery, insert_rows
from inboxkit.contrib.prometheus import PrometheusMetrics
from inboxkit_testing import ObservedDatabase, VirtualClock

GAUGES = (
    "inboxkit_due_rows",
    "inboxkit_waiting_rows",
    "inboxkit_in_work_rows",
    "inboxkit_expired_rows",
    "inboxkit_dead_rows",
)


async def test_deliveries_are_counted_by_how_they_end(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    app = serve(inbox_database, workers=4, max_attempts=2, dead_letter="jobs.dead")
    PrometheusMetrics(registry).observe(app, interval=None)
    async with app.running():
        await virtual_clock.settle()
        before = scrape(registry)
        for what in ("ack", "ack", "drop", "retry", "later", "raise"):
            await app.broker.publish(JOBS, Work(what, 2))
        await virtual_clock.advance(MINUTE)
    found = scrape(registry)
    # A series is there before its first event: its rate counts that too.
    assert {value for (name, _), value in before.items() if "claim" not in name} == {0.0}
    assert set(before) == set(found)
    settled = {
        outcome: int(value)
        for (name, outcome), value in found.items()
        if name == "inboxkit_settlements_total" and value
    }
    # Three come again, and their second delivery is the last.
    assert settled == {"ack": 2, "drop": 1, "retry": 3, "dead_letter": 3}
    assert found["inboxkit_published_rows_total", ""] == 6
    assert found["inboxkit_claimed_rows_total", ""] == 9
    assert found["inboxkit_retries_total", ""] == 3
    assert found["inboxkit_dead_letters_total", ""] == 3
    assert found["inboxkit_failures_total", ""] == 2
    assert found["inboxkit_leases_lost_total", ""] == 0
    assert found["inboxkit_handler_seconds_count", "returned"] == 7
    assert found["inboxkit_handler_seconds_sum", "returned"] == pytest.approx(14)
    assert found["inboxkit_handler_seconds_count", "raised"] == 2
    assert found["inboxkit_claims_total", "rows"] >= 2
    assert found["inboxkit_claims_total", "empty"] >= 40
    assert found["inboxkit_claims_total", "failed"] == 0
    assert found["inboxkit_claim_seconds_count", "empty"] == found["inboxkit_claims_total", "empty"]
    assert not [key for key in found if key[0] in GAUGES]


async def test_gauges_are_what_the_database_says(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    now = virtual_clock.now()
    async with inbox_database.transaction() as tx:
        await insert_rows(
            tx,
            *(Job.of(Work(), name="jobs", retry_after=now - MINUTE * n) for n in (1, 2)),
            *(Job.of(Work(), name="jobs", retry_after=now + 60 * MINUTE) for _ in range(3)),
            Job.of(Work(), name="jobs.dead"),
        )
        first, second, *_ = await insert_rows(
            tx, *(Job.of(Work(), name="jobs", retry_after=now) for _ in range(3))
        )
        for id, seconds in ((first, 120), (second, -30)):
            until: Any = now + timedelta(seconds=seconds)
            if inbox_database.dialect == "sqlite":
                until = until.isoformat(timespec="microseconds")
            await tx.execute("UPDATE traced_jobs SET locked_until = $1 WHERE id = $2", until, id)
    registry = CollectorRegistry()
    app = serve(inbox_database, max_attempts=9, dead_letter="jobs.dead")
    PrometheusMetrics(registry).observe(app, interval=20 * SECOND)
    _observed(inbox_database).faults.refuse("claim", times=10_000)
    async with app.running():
        await virtual_clock.settle()
        found = scrape(registry)
        assert [found[name, ""] for name in GAUGES] == [3, 3, 1, 1, 1]
        assert found["inboxkit_oldest_due_age_seconds", ""] == 120
        assert found["inboxkit_oldest_expired_lease_age_seconds", ""] == 30
        await virtual_clock.advance(10 * SECOND)
        assert scrape(registry)["inboxkit_oldest_due_age_seconds", ""] == 120  # no look yet
        await virtual_clock.advance(10 * SECOND)
        assert 138 <= scrape(registry)["inboxkit_oldest_due_age_seconds", ""] <= 140
        looks = scrape(registry, None)["inboxkit_looks_total", "answered"]
        assert looks == 2
    # A service that has stopped knows nothing any more.
    assert not [key for key in scrape(registry) if key[0] in GAUGES]


def _observed(database: Database) -> ObservedDatabase:
    assert isinstance(database, ObservedDatabase)
    return database


async def test_nothing_is_due_and_nothing_expired_is_known_to_be_zero(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    app = serve(inbox_database)
    PrometheusMetrics(registry).observe(app)
    async with app.running():
        await virtual_clock.settle()
        found = scrape(registry)
    assert [found.get((name, "")) for name in GAUGES] == [0, 0, 0, 0, None]  # it has no dead letter
    assert found["inboxkit_oldest_due_age_seconds", ""] == 0
    assert found["inboxkit_oldest_expired_lease_age_seconds", ""] == 0


@pytest.mark.parametrize("inbox_db", ["postgres"])
async def test_what_a_row_lock_does_not_show_is_absent(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, RowLocked)
    registry = CollectorRegistry()
    app = serve(inbox_database, ROW_LOCKED)
    PrometheusMetrics(registry).observe(app)
    async with app.running():
        await app.broker.publish(ROW_LOCKED, Work("ack", 40))
        await virtual_clock.advance(30 * SECOND)
        found = scrape(registry, "row-locked")
        assert found["inboxkit_due_rows", ""] == 1  # with the one in work
        for name in ("in_work_rows", "expired_rows", "dead_rows"):
            assert (f"inboxkit_{name}", "") not in found
        assert ("inboxkit_oldest_expired_lease_age_seconds", "") not in found
        await virtual_clock.advance(30 * SECOND)
        assert scrape(registry, "row-locked")["inboxkit_due_rows", ""] == 0


async def test_gauges_are_absent_while_the_database_does_not_answer(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    app = serve(inbox_database)
    PrometheusMetrics(registry).observe(app)
    async with app.running():
        await virtual_clock.settle()
        assert ("inboxkit_due_rows", "") in scrape(registry)
        refused = _observed(inbox_database).faults.refuse("stats", times=10_000)
        await virtual_clock.advance(MINUTE)
        found = scrape(registry)
        assert not [key for key in found if key[0] in GAUGES or "_age_" in key[0]]
        assert scrape(registry, None)["inboxkit_looks_total", "failed"] >= 3
        told = [r for r in caplog.records if "could not be counted" in r.getMessage()]
        assert len(told) == 1
        _observed(inbox_database).faults.clear()
        assert refused is not None
        await virtual_clock.advance(20 * SECOND)
        assert scrape(registry)["inboxkit_due_rows", ""] == 0


async def test_a_look_is_one_statement_a_queue_and_interval(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    app = serve(inbox_database)
    PrometheusMetrics(CollectorRegistry()).observe(app, interval=30 * SECOND)
    async with app.running():
        await virtual_clock.settle()
        recording = _observed(inbox_database).recording
        recording.clear()
        await virtual_clock.advance(10 * MINUTE)
        names = [one.name for one in recording.transactions() if one.name not in ("claim", "clock")]
    looks = names.count("stats")
    assert 20 <= looks <= 23  # jitter shortens the waits by a tenth at most
    others = {name for name in names if name != "stats"}
    assert others == ({"snapshots"} if inbox_database.dialect == "postgres" else set())
    assert names.count("snapshots") == (looks if others else 0)


async def test_a_lost_lease_and_a_cancelled_handler(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    app = serve(inbox_database, workers=2)
    PrometheusMetrics(registry).observe(app)
    async with app.running() as handle:
        taken = await app.broker.publish(JOBS, Work("ack", 1000))
        await virtual_clock.settle()
        await inbox_database.execute(
            f"UPDATE traced_jobs SET locked_until = NULL, name = 'x' WHERE id = {taken}"
        )
        await virtual_clock.advance(20 * SECOND)
        found = scrape(registry)
        assert found["inboxkit_leases_lost_total", ""] == 1
        assert found["inboxkit_handler_seconds_count", "lost"] == 1
        await app.broker.publish(JOBS, Work("ack", 1000))
        await virtual_clock.settle()
        handle.cancel()
    found = scrape(registry)
    assert found["inboxkit_handler_seconds_count", "stopped"] == 1
    assert found["inboxkit_settlements_total", "release"] == 1


async def test_batches(inbox_database: Database, virtual_clock: VirtualClock) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()

    async def store(deliveries: list[Delivery[Job, Work]]) -> None:
        await virtual_clock.sleep(3)

    app = serve(inbox_database, JOBS, store, batch=10)
    PrometheusMetrics(registry).observe(app)
    async with inbox_database.transaction() as tx:
        await insert_rows(tx, *(Job.of(Work(), name="jobs") for _ in range(10)))
    async with app.running():
        await virtual_clock.advance(5 * SECOND)
    found = scrape(registry)
    assert found["inboxkit_settlements_total", "ack"] == 10
    assert found["inboxkit_handler_seconds_count", "returned"] == 1
    assert found["inboxkit_handler_seconds_sum", "returned"] == 3


async def test_one_object_for_several_services_of_a_process(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry, buckets=(1, 10))
    one, two = serve(inbox_database), serve(inbox_database, DEAD)
    two.name = "other"
    metrics.observe(one)
    metrics.observe(two)
    async with one.running(), two.running():
        await virtual_clock.settle()
        families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    (due,) = [family for family in families if family.name == "inboxkit_due_rows"]
    assert {(sample.labels["service"], sample.labels["queue"]) for sample in due.samples} == {
        ("worker", "jobs"),
        ("other", "jobs.dead"),
    }
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)


def test_names_have_units_and_help() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        if family.name.endswith("_created"):
            continue
        assert family.name.startswith("inboxkit_")
        assert family.documentation.endswith(".")
        if family.type == "gauge":
            assert family.name.endswith(("_rows", "_seconds"))


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1), 15])
def test_an_interval_that_is_none(interval: Any) -> None:
    app = serve(Database("sqlite:///:memory:"))
    with pytest.raises(DeclarationError, match="interval must be a positive timedelta"):
        PrometheusMetrics(CollectorRegistry()).observe(app, interval=interval)
    with pytest.raises(DeclarationError, match="snapshot_limit"):
        PrometheusMetrics(CollectorRegistry()).observe(app, snapshot_limit=interval)


@pytest.mark.parametrize("inbox_db", ["postgres"])
async def test_a_held_snapshot_is_shown_and_warned_of(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its age is of the server's clock, which is real; tests beside this one have short transactions there."""
    await create(inbox_database, Job)
    registry = CollectorRegistry()
    app = serve(inbox_database)
    PrometheusMetrics(registry).observe(app, snapshot_limit=timedelta(seconds=0.3))
    name = ("inboxkit_oldest_snapshot_age_seconds", "")
    async with app.running():
        await virtual_clock.settle()
        assert scrape(registry, None)[name] < 1
        url = _observed(inbox_database).observed.server_url
        assert url is not None
        with psycopg.connect(url, application_name="a dump") as holder:
            holder.execute("SELECT pg_current_xact_id(), pg_sleep(0.4)")
            await virtual_clock.advance(40 * SECOND)
            assert scrape(registry, None)[name] > 0.3
            told = [r.getMessage() for r in caplog.records if "has been open" in r.getMessage()]
            assert len(told) == 1
            assert f"backend {holder.info.backend_pid} of user" in told[0]
            assert "'a dump', idle in transaction" in told[0]
        await virtual_clock.advance(20 * SECOND)
        assert scrape(registry, None)[name] < 1


PROGRAM = """
import sys
from datetime import timedelta
import anyio
from prometheus_client import CollectorRegistry
sys.path.insert(0, {folder!r})
from telemetry_kit import JOBS, Job, Work, create, serve
from inboxkit import Database
from inboxkit.contrib.prometheus import PrometheusMetrics

async def main():
    async with Database("sqlite:///jobs.db", pool_size=2) as db:
        if sys.argv[1] == "1":
            await create(db, Job)
        app = serve(db)
        PrometheusMetrics().observe(app, interval=timedelta(seconds=0.2))
        done = anyio.Event()

        @app.on_event
        def listen(event):
            if type(event).__name__ == "Finished":
                done.set()

        async with app.running():
            await app.broker.publish(JOBS, Work())
            await done.wait()

anyio.run(main)
"""


def test_the_multiprocess_mode(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    program = PROGRAM.format(folder=str(Path(__file__).parent))
    for number in ("1", "2"):
        command = [sys.executable, "-W", "error", "-c", program, number]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
    read = (
        "import json; from prometheus_client import CollectorRegistry, multiprocess\n"
        "registry = CollectorRegistry(); multiprocess.MultiProcessCollector(registry)\n"
        "print(json.dumps([[s.name, s.labels, s.value] for f in registry.collect() for s in f.samples]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", read], env=environment, check=True, capture_output=True, text=True
    )
    samples = json.loads(done.stdout)
    values = {
        (name, labels.get("outcome") or labels.get("result")): value
        for name, labels, value in samples
        if "le" not in labels
    }
    assert values["inboxkit_settlements_total", "ack"] == 2
    assert values["inboxkit_handler_seconds_count", "returned"] == 2
    # Nobody knows any more how the queue stands.
    assert str(values["inboxkit_due_rows", None]) == "nan"
