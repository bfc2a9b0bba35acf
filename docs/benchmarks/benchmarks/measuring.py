"""One drain of a filled table, measured from the first job handled to the last one settled."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import anyio

from .places import Place

__all__ = ["Loop", "Meter", "Sample", "drain", "in_loop", "percentile", "run_in"]

Sample: TypeAlias = dict[str, float]
"""Figures of one run by their names."""


class Meter:
    """Counts jobs as they are handled; the clock starts with the first.

    Args:
        jobs: How many there are.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.count = 0
        self.on_last: Callable[[], object] = _nothing
        self._wall = self._cpu = 0.0
        self.seconds = self.cpu_seconds = 0.0

    def hit(self) -> None:
        """A job is handled."""
        if not self.count:
            self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.count += 1
        if self.count == self.jobs:
            self.on_last()

    def stop(self) -> None:
        """All is settled."""
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


def _nothing() -> None:
    pass


Loop: TypeAlias = Callable[[Meter], Awaitable[None]]
"""Handles and settles all jobs, and then stops the meter."""


def run_in(backend: str, function: Callable[[], Awaitable[None]]) -> None:
    """Run an async function on the stock loop of asyncio, or on trio."""
    gc.collect()
    anyio.run(function, backend=backend)


def drain(place: Place, table: str, jobs: int, run: Callable[[Meter], None]) -> Sample:
    """Measure one drain of a table that holds so many due jobs.

    Args:
        place: Where it is.
        table: It; empty in the end.
        jobs: How many rows it has.
        run: Handles and settles them all, and has closed its connections when it returns.

    Raises:
        AssertionError: The server tells of rows that are left, or a job was handled twice.
    """
    assert place.value(f"SELECT count(*) FROM {table}") == jobs
    before, meter = place.counts(), Meter(jobs)
    with place.measuring():
        run(meter)
    counted = place.counts().since(before)
    left = place.value(f"SELECT count(*) FROM {table}")
    assert (left, meter.count) == (0, jobs), f"{left} of {jobs} left, {meter.count} handled"
    sample = {"jobs/s": jobs / meter.seconds, "cpu µs": meter.cpu_seconds / jobs * 1e6}
    if counted.statements is not None:
        sample["statements"] = counted.statements / jobs
    if counted.commits is not None:
        sample["commits"] = counted.commits / jobs
    return sample


def in_loop(backend: str, loop: Loop) -> Callable[[Meter], None]:
    """An async loop as `drain` takes one."""
    return lambda meter: run_in(backend, partial(loop, meter))


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
