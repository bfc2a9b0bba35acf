"""Stops: a service ends in order, and within its bounds also where nothing else is in order."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from chaos_counting import wait_until
from chaos_proxy import WELL, Proxy, Weather, proxied
from chaos_publishing import make_tables, publish_plain
from chaos_sql import Outside
from chaos_workers import Workers

from inboxkit._runtime.watchdog import EXIT_STUCK

Staged: TypeAlias = Callable[..., AbstractContextManager["Stage"]]
SILENT = Weather(requests=False, answers=False, accepts=False)
AWAY = Weather(refuses=True)
SLACK = 3.0
"""Seconds, for a busy machine."""
JOBS = 2


@dataclass
class Stage:
    """Workers, what they work on, and the network between them."""

    workers: Workers
    outside: Outside
    proxy: Proxy
    drain: float
    phase: float
    report: Path | None
    about: dict[str, Any]

    @property
    def longest(self) -> float:
        """Seconds from the signal to the end, at most, where handlers do not end."""
        return self.in_order + 2 * self.phase / 5

    @property
    def in_order(self) -> float:
        """Seconds from the signal to the end, at most, where they do."""
        return self.drain + 2 * self.phase

    def start(self, *, begun: int = JOBS) -> int:
        """A worker that has begun so many jobs."""
        (worker,) = self.workers.start()
        self.workers.wait_for(worker, "' started")
        self.wait_for_begun(begun)
        return worker

    def wait_for_begun(self, count: int) -> None:
        wait_until(lambda: self.count("begun") >= count, 30, f"{count} jobs begun")

    def stop(self, worker: int, bound: float) -> int:
        """Send SIGTERM; returns the exit status, which must come within the bound."""
        self.workers.tell(worker, signal.SIGTERM)
        return self.end(worker, bound)

    def end(self, worker: int, bound: float) -> int:
        """Its exit status, within the bound."""
        status, took = self.workers.end_of(worker, bound + SLACK)
        self.tell(status=status, bound=round(bound, 1), took=round(took, 2))
        return status

    def tell(self, **figures: Any) -> None:
        found = {**self.about, **figures}
        print(json.dumps(found))
        if self.report is not None:
            with self.report.open("a") as lines:
                lines.write(json.dumps(found) + "\n")

    def count(self, table: str) -> int:
        found: int = self.outside.value(f"SELECT count(*) FROM {table}")
        return found

    def attempts(self) -> list[int]:
        """Of the rows that are left, as they will be handed out next, or were the last time."""
        return [attempt for (attempt,) in self.outside.run("SELECT attempt FROM jobs ORDER BY id")]

    def leased(self) -> int:
        """Rows under a lease."""
        found: int = self.outside.value("SELECT count(*) FROM jobs WHERE locked_until IS NOT NULL")
        return found


@pytest.fixture
def phases(is_whole: bool) -> tuple[float, float]:
    """Seconds of the drain, and of each phase after it."""
    return (2.0, 5.0) if is_whole else (0.1, 0.3)


def cells(*small: tuple[str, str, str]) -> pytest.MarkDecorator:
    """All databases, forms and backends; the run without options has these few."""
    return pytest.mark.parametrize(
        ("inbox_db", "form", "backend"),
        [
            pytest.param(
                *(kind, form, backend),
                id=f"{kind}-{form}-{backend}",
                marks=() if (kind, form, backend) in small else pytest.mark.whole_chaos,
            )
            for kind in ("postgres", "mariadb")
            for form in ("lease", "row lock", "advisory lock")
            for backend in ("asyncio", "trio")
        ],
    )


ONE, OTHER = ("postgres", "lease", "trio"), ("mariadb", "row lock", "asyncio")


@pytest.fixture
def staged(
    request: pytest.FixtureRequest,
    own_url: str,
    inbox_db: str,
    form: str,
    backend: str,
    phases: tuple[float, float],
    report: Path | None,
    tmp_path: Path,
) -> Staged:
    """Makes a database with jobs in it, and workers that will do them in some way."""
    drain_seconds, phase = phases
    make_tables(own_url, form)

    @contextmanager
    def make(
        handler: str, *, lease: float = 30.0, drain: float = drain_seconds, seconds: float = 0.0
    ) -> Iterator[Stage]:
        variables = {
            "CHAOS_FORM": form,
            "CHAOS_LEASE": str(lease),
            "CHAOS_HANDLER": handler,
            "CHAOS_DRAIN": str(drain),
            "CHAOS_PHASES": str(phase),
        }
        about = {
            "kind": f"stop: {request.function.__name__}",
            "database": inbox_db,
            "form": form,
            "backend": backend,
            "handler": handler,
        }
        with (
            Outside(own_url) as outside,
            proxied(own_url, seed=1) as (proxy, url),
            Workers(url, tmp_path, variables, module="chaos_stops", backends=(backend,)) as workers,
        ):
            publish_plain(outside, form, JOBS, seconds=seconds)
            yield Stage(workers, outside, proxy, drain, phase, report, about)

    return make


@cells(ONE)
def test_a_signal_drains_and_leases_are_kept_until_the_last_handler_ends(
    staged: Staged,
) -> None:
    with staged("sleeps", lease=1.0, drain=60.0, seconds=1.6) as stage:
        first = stage.start()
        stage.workers.tell(first, signal.SIGTERM)
        stage.workers.wait_for(first, "no new claims")
        second = stage.start()  # it would take what is let go
        assert stage.end(first, 60.0) == 0
        assert stage.count("begun") == stage.count("effects") == JOBS
        assert stage.count("jobs") == 0
        assert stage.stop(second, 1.0) == 0


@cells(OTHER)
def test_a_handler_that_never_returns_is_cancelled_after_the_drain(
    staged: Staged, form: str
) -> None:
    with staged("never_returns") as stage:
        worker = stage.start()
        assert stage.stop(worker, stage.drain + stage.phase) == 0
        assert_given_back(stage, form)


@cells(ONE)
def test_a_second_signal_waits_for_nothing(staged: Staged, form: str) -> None:
    with staged("never_returns", drain=600.0) as stage:
        worker = stage.start()
        stage.workers.tell(worker, signal.SIGTERM)
        stage.workers.wait_for(worker, "no new claims")
        assert stage.stop(worker, stage.phase) == 0
        assert_given_back(stage, form)


@pytest.mark.parametrize(
    "handler",
    [
        "shields",
        *(
            pytest.param(name, marks=pytest.mark.whole_chaos)
            for name in ("blocks", "blocks_in_a_thread")
        ),
    ],
)
@cells(ONE)
def test_a_handler_that_cannot_be_cancelled_ends_the_process(staged: Staged, handler: str) -> None:
    with staged(handler) as stage:
        worker = stage.start(begun=1 if handler == "blocks" else JOBS)
        assert stage.stop(worker, stage.longest) == EXIT_STUCK, stage.workers.log(worker)
        assert_named(stage, worker, begun_alone=handler == "blocks")
        # Of the blocked ones one may be handed out as new: its claim's answer was never read.
        assert stage.count("jobs") == JOBS


@cells(OTHER)
def test_a_statement_that_is_never_answered_keeps_no_process(
    staged: Staged,
) -> None:
    with staged("asks") as stage:
        worker = stage.start()
        stage.proxy.change(SILENT)
        assert stage.stop(worker, stage.longest) in (0, EXIT_STUCK)
        assert_named(stage, worker)
        assert stage.count("jobs") == JOBS
        assert stage.count("effects") == 0


@pytest.mark.parametrize("weather", [SILENT, AWAY], ids=["silent", "away"])
@cells(ONE)
def test_a_stop_in_an_outage_ends_in_time(staged: Staged, weather: Weather) -> None:
    with staged("sleeps", seconds=0.3) as stage:
        worker = stage.start()
        stage.proxy.change(weather)
        if weather is AWAY:
            stage.proxy.cut()
        assert stage.stop(worker, stage.in_order) == 0
        assert_named(stage, worker)
        assert stage.count("jobs") == JOBS
        stage.proxy.change(WELL)


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(SILENT, id="silent"),
        pytest.param(Weather(answers=False), id="one way", marks=pytest.mark.whole_chaos),
    ],
)
@cells(OTHER)
def test_a_stop_in_a_start_up_that_hangs_ends_at_once(staged: Staged, weather: Weather) -> None:
    with staged("sleeps", drain=10.0) as stage:
        stage.proxy.change(weather)
        (worker,) = stage.workers.start()
        wait_until(lambda: stage.proxy.lines() > 0, 30, "a connection is asked for")
        assert stage.stop(worker, 2.0) == 0, stage.workers.log(worker)
        assert stage.count("jobs") == JOBS


def assert_given_back(stage: Stage, form: str) -> None:
    """The rows are there, as if they had not been handed out."""
    assert stage.attempts() == [1] * JOBS
    if form == "lease":
        assert stage.leased() == 0


def assert_named(stage: Stage, worker: int, *, begun_alone: bool = False) -> None:
    """The log names each row that is left, or those alone whose handlers had begun."""
    log = stage.workers.whole_log(worker)
    rows = [row for (row,) in stage.outside.run("SELECT id FROM jobs ORDER BY id")]
    named = [row for row in rows if re.search(rf" [A-Z]+ +inboxkit: .*\brow {row}\b", log)]
    assert named if begun_alone else named == rows, log
