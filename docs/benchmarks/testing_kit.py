"""How fast the testing kit is: virtual days of an idle service, and examples of `CrashAndResume`.

CPU seconds of this process, which other load on the machine hardly changes, and the best of several
runs. A server's own CPU is not in them; what an example waits for a server is shown beside, as wall time.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TypeAlias, get_args

from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import reports

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, TestApp, VirtualClock, run, traffic
from inboxkit_testing._plugin.databases import Databases
from inboxkit_testing.backends import BackendName
from inboxkit_testing.databases import open_test_database
from inboxkit_testing.stateful.cells import Cell
from inboxkit_testing.stateful.running import fitted, in_cell, open_cell

Fresh: TypeAlias = Callable[[str], AbstractContextManager[str]]
"""The URL of a database of that kind, for the time of a block."""

BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
DAY = timedelta(days=1)
PACKAGES = ("inboxkit", "anyio", "trio", "hypothesis", "asyncpg", "psycopg")
POLL = timedelta(seconds=15)


class Reports(CrashAndResume):
    """The first example service: jobs of ten milliseconds or three seconds."""

    traffic = (traffic(reports.REPORTS, lambda n: reports.Report(n, 1 + n % 2 * 299)),)

    def service(self, database: Database) -> Service:
        return reports.service(database, POLL)

    async def check(self, world: object) -> None:
        """The kit's own rules are enough here."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What something took."""

    cpu: float
    wall: float


def best_of(runs: int, measured: Callable[[], object]) -> Cost:
    """The least CPU time of so many runs, and that run's wall time."""
    costs: list[Cost] = []
    for _ in range(runs):
        cpu, wall = time.process_time(), time.perf_counter()
        measured()
        costs.append(Cost(time.process_time() - cpu, time.perf_counter() - wall))
    return min(costs, key=lambda cost: cost.cpu)


def idle_day(backend: BackendName, url: str) -> int:
    """A service that has nothing to do and looks once a second; returns how often it looked."""
    clock = VirtualClock()

    async def main() -> int:
        database = open_test_database(url, clock=clock, random=Random(1))
        async with TestApp(reports.service(database)):
            await clock.advance(DAY)
        return len(database.recording.transactions("claim"))

    return run(main, backend=backend, clock=clock)


def examples(count: int) -> None:
    """So many examples in the cell that is open, always the same ones; nothing fails."""
    chosen = settings(max_examples=count, database=None, phases=[Phase.generate])
    run_state_machine_as_test(seed(1)(Reports), settings=fitted(chosen))


def starts(cell: Cell, count: int) -> None:
    """Instances started and stopped in order, one after the other, in one world."""
    world = cell.begin(Reports().service)
    for _ in range(count):
        cell.call(world.start, "a")
        cell.call(world.stop, "a")
    cell.end(world)


def machine_line() -> str:
    """Where this was measured, and with which versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {packages}"
    )


def measure_day(fresh: Fresh, database: str, backend: BackendName, runs: int) -> Cost:
    """The idle day on a fresh database."""
    with fresh(database) as url:
        polls = 0

        def day() -> None:
            nonlocal polls
            polls = idle_day(backend, url)

        cost = best_of(runs, day)
    tell(
        database,
        backend,
        f"idle day of {polls} polls",
        cost,
        f"{cost.cpu / polls * 1e6:.0f} µs a poll",
    )
    return cost


def measure_machine(
    fresh: Fresh, database: str, backend: BackendName, runs: int, count: int
) -> Cost:
    """Starts and stops, and examples, in one cell kept open as a test keeps it."""
    with fresh(database) as url:
        cell = open_cell(Reports, url, backend)
        with in_cell(cell):
            examples(5)  # imports, caches, connections
            cost = best_of(runs, lambda: starts(cell, count))
            tell(database, backend, "start and stop", cost, f"{cost.cpu / count * 1e3:.2f} ms each")
            cost = best_of(runs, lambda: examples(count))
    rates = f"{count / cost.cpu:.1f}/s CPU, {count / cost.wall:.1f}/s wall"
    tell(database, backend, f"{count} examples", cost, rates)
    return cost


def tell(database: str, backend: str, what: str, cost: Cost, rate: str) -> None:
    """One line of the result."""
    print(
        f"{database:<14} {backend:<8} {what:<26} {cost.cpu:7.2f} s CPU {cost.wall:7.2f} s wall   {rate}",
        flush=True,
    )


def tell_ratios(what: str, costs: dict[tuple[str, BackendName], Cost]) -> None:
    """All costs against the first."""
    first = next(iter(costs.values()))
    ratios = (f"{'/'.join(where)} {cost.cpu / first.cpu:.2f}" for where, cost in costs.items())
    print(f"{what}, CPU against the first: {', '.join(ratios)}")


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--databases", nargs="+", default=["sqlite-inloop"], help="named as for --inbox-db"
    )
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--only", choices=("day", "machine"))
    chosen = parser.parse_args()
    logging.getLogger("inboxkit").propagate = reports.log.propagate = False
    reports.log.addHandler(logging.NullHandler())
    print(machine_line(), flush=True)
    places: list[tuple[str, BackendName]] = [
        (database, backend) for database in chosen.databases for backend in chosen.backends
    ]
    with closing(Databases()) as servers:
        fresh, runs, count = servers.fresh, chosen.runs, chosen.examples
        if chosen.only != "machine":
            tell_ratios("idle day", {(d, b): measure_day(fresh, d, b, runs) for d, b in places})
        if chosen.only != "day":
            tell_ratios(
                "examples", {(d, b): measure_machine(fresh, d, b, runs, count) for d, b in places}
            )


if __name__ == "__main__":
    main()
