"""From the call of `publish` to the handler's first line, at a low rate."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Any, Final, Literal

import anyio

from inboxkit import Broker, Database, InboxQueue, Service, subscriber

from .bell import Bell
from .measuring import Sample, percentile, run_in
from .places import Place, remake
from .postgres_sessions import connect_postgres
from .raw_postgres import CLAIM, SETTLE_MANY
from .tables import NAME, RAW, Job, LeaseRow, ddl, raw_ddl

__all__ = ["Wake", "by_inboxkit", "by_notify"]

Wake = Literal["in process", "notify", "poll"]

_GAP: Final = 0.05
"""Seconds from one job to the next."""
_PATIENCE: Final = 30.0


class _Stopwatch:
    """Times of so many jobs."""

    def __init__(self, jobs: int) -> None:
        self._began = [0.0] * jobs
        self.seconds: list[float] = []
        self.all_seen = anyio.Event()

    def start(self, n: int) -> None:
        self._began[n] = time.perf_counter()

    def stop(self, n: int) -> None:
        self.seconds.append(time.perf_counter() - self._began[n])
        if len(self.seconds) == len(self._began):
            self.all_seen.set()

    def sample(self) -> Sample:
        return {
            "p50 ms": percentile(self.seconds, 0.5) * 1e3,
            "p99 ms": percentile(self.seconds, 0.99) * 1e3,
        }


def by_inboxkit(place: Place, backend: str, wake: Wake, *, jobs: int) -> Sample:
    """Measure a service of one worker.

    Args:
        place: Where.
        backend: ``"asyncio"`` or ``"trio"``.
        wake: How it hears of a job: from the broker in its own process, by NOTIFY from another
            one's connection, or at its next poll.
        jobs: How many.
    """
    sample: Sample = {}

    async def main() -> None:
        watch = _Stopwatch(jobs)

        @subscriber(InboxQueue(LeaseRow, NAME, Job))
        async def handle(job: Job) -> None:
            watch.stop(job.n)

        app = Service("bench", Broker(Database(place.url), listen_notify=wake == "notify"))
        app.include(handle)
        # The publisher that is not the service's own knows of no subscription, as in another process.
        apart = Broker(Database(place.url), listen_notify=wake == "notify")
        async with apart, app.running():
            for n in range(jobs):
                watch.start(n)
                broker = app.broker if wake == "in process" else apart
                await broker.publish(handle.queue, Job(n))
                await anyio.sleep(_GAP)
            with anyio.fail_after(_PATIENCE):
                await watch.all_seen.wait()
        sample.update(watch.sample())

    remake(place, LeaseRow.spec.table, ddl(place.dialect, LeaseRow.spec), 0)
    with place.measuring():
        run_in(backend, main)
    return sample


def by_notify(place: Place, backend: str, *, jobs: int) -> Sample:
    """Measure a loop by hand on PostgreSQL: an INSERT with NOTIFY, a session that listens, a claim."""
    sample: Sample = {}
    insert = (
        f"WITH job AS (INSERT INTO {RAW} (name, payload) VALUES ($1, $2)) "
        "SELECT pg_notify('raw_jobs', '')"
    )

    async def main() -> None:
        watch, bell = _Stopwatch(jobs), Bell()
        async with AsyncExitStack() as opened:
            sessions = []
            for _ in range(3):
                sessions.append(await connect_postgres(place.url, backend))
                opened.push_async_callback(sessions[-1].close)
            publishing, listening, working = sessions

            async def work() -> None:
                while True:
                    await bell.wait()
                    while rows := await working.rows(CLAIM, 1):
                        for _id, payload, _token in rows:
                            watch.stop(int(bytes(payload)))
                        await working.run(SETTLE_MANY, *_held(rows))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                tasks.start_soon(listening.listen, "raw_jobs", bell.ring)
                await anyio.sleep(_GAP)
                for n in range(jobs):
                    watch.start(n)
                    await publishing.rows(insert, NAME, str(n).encode())
                    await anyio.sleep(_GAP)
                with anyio.fail_after(_PATIENCE):
                    await watch.all_seen.wait()
                tasks.cancel_scope.cancel()
        sample.update(watch.sample())

    remake(place, RAW, raw_ddl(place.dialect), 0)
    run_in(backend, main)
    return sample


def _held(rows: Any) -> tuple[list[Any], list[Any]]:
    return [row[0] for row in rows], [row[2] for row in rows]
