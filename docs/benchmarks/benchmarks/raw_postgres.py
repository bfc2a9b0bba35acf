"""Loops written by hand on PostgreSQL: what the same statements cost without a library around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import anyio

from .bell import Bell
from .measuring import Meter, Sample, drain, in_loop
from .places import Place, remake
from .postgres_sessions import PostgresSession, connect_postgres
from .tables import NAME, RAW, raw_ddl

__all__ = ["CLAIM", "SETTLE_MANY", "drain_by_workers", "drain_pipelined"]

_DUE: Final = (
    f"name = '{NAME}' AND retry_after <= now() AND (locked_until IS NULL OR locked_until < now())"
)
_NEXT: Final = f"FROM {RAW} WHERE {_DUE} ORDER BY retry_after, id LIMIT"
_LOCK: Final = "FOR UPDATE SKIP LOCKED"
_LEASED: Final = (
    f"UPDATE {RAW} SET locked_until = clock_timestamp() + interval '60 s', attempt = attempt + 1 "
    f"WHERE id = ANY(ARRAY(SELECT id {_NEXT} %s {_LOCK})) RETURNING id, payload, locked_until"
)
CLAIM: Final = _LEASED % "$1"
"""Leases ``$1`` rows."""
_CLAIM_ONE: Final = _LEASED % "1"
SETTLE_MANY: Final = (
    f"DELETE FROM {RAW} AS job USING unnest($1::bigint[], $2::timestamptz[]) AS held(id, token) "
    "WHERE job.id = held.id AND job.locked_until = held.token"
)
"""Deletes rows by ids and leases."""
_SETTLE_ONE: Final = f"DELETE FROM {RAW} WHERE id = $1 AND locked_until = $2"
_ROW_LOCK: Final = f"SELECT id, payload {_NEXT} 1 {_LOCK}"
_DELETE: Final = f"DELETE FROM {RAW} WHERE id = $1"
_ADVISORY: Final = (
    # The lock is tried above the page, so that only rows that LIMIT asks for are locked.
    f"WITH page AS MATERIALIZED (SELECT id {_NEXT} $1) SELECT id FROM page "
    "WHERE pg_try_advisory_lock(hashtextextended('jobs-' || id, 0)) LIMIT 1"
)
_READ: Final = f"SELECT payload FROM {RAW} WHERE id = $1"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('jobs-' || $1::bigint, 0))"

Worker: TypeAlias = Callable[[PostgresSession, Meter, int], Coroutine[Any, Any, None]]
"""One connection's share of the work; also told how many share it."""


async def _handle(meter: Meter, payload: Any) -> None:
    meter.hit()


async def _lease(session: PostgresSession, meter: Meter, workers: int) -> None:
    while rows := await session.rows(_CLAIM_ONE):
        ((id, payload, token),) = rows
        await _handle(meter, payload)
        await session.run(_SETTLE_ONE, id, token)


async def _row_lock(session: PostgresSession, meter: Meter, workers: int) -> None:
    while True:
        await session.run("BEGIN")
        rows = await session.rows(_ROW_LOCK)
        for id, payload in rows:
            await _handle(meter, payload)
            await session.run(_DELETE, id)
        await session.run("COMMIT")
        if not rows:
            return


async def _advisory(session: PostgresSession, meter: Meter, workers: int) -> None:
    while meter.count < meter.jobs:
        for (id,) in await session.rows(_ADVISORY, 4 * workers):
            # Read after the lock was won: the page may be older.
            for (payload,) in await session.rows(_READ, id):
                await _handle(meter, payload)
                await session.run(_DELETE, id)
            await session.rows(_UNLOCK, id)


_WORKERS: Final[dict[str, Worker]] = {
    "lease": _lease,
    "row lock": _row_lock,
    "advisory lock": _advisory,
}


def drain_by_workers(place: Place, backend: str, form: str, *, jobs: int, workers: int) -> Sample:
    """Measure workers that each take one row at a time on a connection of their own."""
    work = _WORKERS[form]

    async def loop(meter: Meter) -> None:
        async with AsyncExitStack() as opened:
            sessions = [await _session(opened, place.url, backend) for _ in range(workers)]
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(work, session, meter, workers)
            meter.stop()

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, in_loop(backend, loop))


def drain_pipelined(
    place: Place, backend: str, *, jobs: int, workers: int, ahead: int = 0
) -> Sample:
    """Measure one claimer that takes as many rows as workers are free, and one settler that takes
    all that has piled up.

    Args:
        place: Where.
        backend: ``"asyncio"`` or ``"trio"``.
        jobs: How many.
        workers: Tasks that handle.
        ahead: Rows claimed beyond the free workers.
    """

    async def loop(meter: Meter) -> None:
        async with AsyncExitStack() as opened:
            claiming = await _session(opened, place.url, backend)
            settling = await _session(opened, place.url, backend)
            await _Pipeline(meter, claiming, settling).run(workers, ahead)
            meter.stop()

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, in_loop(backend, loop))


async def _session(opened: AsyncExitStack, url: str, backend: str) -> PostgresSession:
    session = await connect_postgres(url, backend)
    opened.push_async_callback(session.close)
    return session


class _Pipeline:
    """A claimer, workers and a settler, each waiting for what the one before has."""

    def __init__(self, meter: Meter, claiming: PostgresSession, settling: PostgresSession) -> None:
        self._meter = meter
        self._claiming, self._settling = claiming, settling
        self._todo: deque[Any] = deque()
        self._done: list[tuple[Any, Any]] = []
        self._free = 0
        self._has_room, self._has_done = Bell(), Bell()
        self._idle: list[Bell] = []

    async def run(self, workers: int, ahead: int) -> None:
        self._free = workers + ahead
        async with anyio.create_task_group() as tasks:
            for _ in range(workers):
                tasks.start_soon(self._work)
            tasks.start_soon(self._claim)
            await self._settle()
            tasks.cancel_scope.cancel()

    async def _claim(self) -> None:
        claimed = 0
        while claimed < self._meter.jobs:
            if not self._free:
                await self._has_room.wait()
                continue
            rows = await self._claiming.rows(CLAIM, self._free)
            claimed += len(rows)
            self._free -= len(rows)
            self._todo.extend(rows)
            for _ in range(min(len(rows), len(self._idle))):
                self._idle.pop().ring()

    async def _work(self) -> None:
        bell = Bell()
        while True:
            while self._todo:
                id, payload, token = self._todo.popleft()
                await _handle(self._meter, payload)
                self._done.append((id, token))
                self._free += 1
                self._has_room.ring()
                self._has_done.ring()
            self._idle.append(bell)
            await bell.wait()

    async def _settle(self) -> None:
        settled = 0
        while settled < self._meter.jobs:
            if not self._done:
                await self._has_done.wait()
                continue
            part, self._done = self._done, []
            ids, tokens = map(list, zip(*part, strict=True))
            await self._settling.run(SETTLE_MANY, ids, tokens)
            settled += len(part)
