"""Loops written by hand on MariaDB and MySQL: asyncmy on asyncio, PyMySQL in threads on trio."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.to_thread

from .measuring import Meter, Sample, drain, in_loop
from .on_mysql import connection_settings
from .places import Place, remake
from .tables import NAME, RAW, raw_ddl

__all__ = ["MysqlSession", "connect_mysql", "drain_by_workers"]

_NEXT: Final = (
    f"SELECT id, payload FROM {RAW} WHERE name = '{NAME}' AND retry_after <= utc_timestamp(6) "
    "AND (locked_until IS NULL OR locked_until < utc_timestamp(6)) "
    "ORDER BY retry_after, id LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_LEASE: Final = f"UPDATE {RAW} SET locked_until = %s, attempt = attempt + 1 WHERE id = %s"
_SETTLE: Final = f"DELETE FROM {RAW} WHERE id = %s AND locked_until = %s"
_DELETE: Final = f"DELETE FROM {RAW} WHERE id = %s"
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_LEASE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """One connection."""

    query: Callable[..., Awaitable[Sequence[Any]]]
    """Runs a statement with arguments, and returns its rows."""
    many: Callable[[str, Sequence[Any]], Awaitable[None]]
    """Runs an INSERT for many rows, which the driver makes one statement of."""
    close: Callable[[], Awaitable[None]]


async def connect_mysql(url: str, backend: str) -> MysqlSession:
    """Connect; each statement commits by itself unless it comes after BEGIN."""
    settings = {**connection_settings(url), "autocommit": True}
    session = await (_asyncmy(settings) if backend == "asyncio" else _pymysql(settings))
    await session.query(_ISOLATION)
    return session


async def _asyncmy(settings: dict[str, Any]) -> MysqlSession:
    import asyncmy  # noqa: PLC0415 - of one backend alone

    connection: Any = await asyncmy.connect(**settings)

    async def query(text: str, *arguments: Any) -> Sequence[Any]:
        async with connection.cursor() as cursor:
            await cursor.execute(text, arguments or None)
            rows: Sequence[Any] = await cursor.fetchall() if cursor.description else ()
            return rows

    async def many(text: str, rows: Sequence[Any]) -> None:
        async with connection.cursor() as cursor:
            await cursor.executemany(text, rows)

    return MysqlSession(query, many, connection.ensure_closed)


async def _pymysql(settings: dict[str, Any]) -> MysqlSession:
    import pymysql  # noqa: PLC0415 - of one backend alone

    in_thread = anyio.to_thread.run_sync
    limiter = anyio.CapacityLimiter(1)
    connection: Any = await in_thread(lambda: pymysql.connect(**settings), limiter=limiter)

    def query_here(text: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
        with connection.cursor() as cursor:
            cursor.execute(text, arguments or None)
            rows: Sequence[Any] = cursor.fetchall() if cursor.description else ()
            return rows

    def many_here(text: str, rows: Sequence[Any]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(text, rows)

    async def query(text: str, *arguments: Any) -> Sequence[Any]:
        return await in_thread(query_here, text, arguments, limiter=limiter)

    async def many(text: str, rows: Sequence[Any]) -> None:
        await in_thread(many_here, text, rows, limiter=limiter)

    async def close() -> None:
        await in_thread(connection.close, limiter=limiter)

    return MysqlSession(query, many, close)


async def _row_lock(session: MysqlSession, meter: Meter) -> None:
    while meter.count < meter.jobs:
        await session.query("BEGIN")
        for id, _payload in await session.query(_NEXT):
            meter.hit()
            await session.query(_DELETE, id)
        await session.query("COMMIT")


async def _lease(session: MysqlSession, meter: Meter) -> None:
    while meter.count < meter.jobs:
        await session.query("BEGIN")
        rows = await session.query(_NEXT)
        token = _token()
        for id, _payload in rows:
            await session.query(_LEASE, token, id)
        await session.query("COMMIT")
        for id, _payload in rows:
            meter.hit()
            await session.query(_SETTLE, id, token)


def _token() -> str:
    end = time.time() + _LEASE_SECONDS
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(end))
    return f"{stamp}.{int(end % 1 * 1e6):06}"


_WORKERS: Final = {"row lock": _row_lock, "lease": _lease}


def drain_by_workers(place: Place, backend: str, form: str, *, jobs: int, workers: int) -> Sample:
    """Measure workers that each take one row at a time on a connection of their own."""
    work = _WORKERS[form]

    async def loop(meter: Meter) -> None:
        async with AsyncExitStack() as opened:
            sessions: list[MysqlSession] = []
            for _ in range(workers):
                sessions.append(await connect_mysql(place.url, backend))
                opened.push_async_callback(sessions[-1].close)
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(work, session, meter)
            meter.stop()

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, in_loop(backend, loop))
