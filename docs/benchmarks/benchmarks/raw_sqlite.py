"""Loops written by hand on SQLite: in one thread, through aiosqlite, and by one call into a thread for
each transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Final, TypeAlias

from .measuring import Meter, Sample, drain, in_loop
from .on_sqlite import SqlitePlace
from .places import remake
from .tables import NAME, RAW, raw_ddl

__all__ = ["drain_by_aiosqlite", "drain_by_hops", "drain_in_one_thread"]

Rows: TypeAlias = tuple[tuple[Any, ...], ...] | list[tuple[Any, ...]]

_NEXT: Final = (
    f"SELECT id FROM {RAW} WHERE name = '{NAME}' AND retry_after <= ?1 "
    "AND (locked_until IS NULL OR locked_until < ?1) ORDER BY retry_after, id LIMIT ?3"
)
_CLAIM: Final = (
    f"UPDATE {RAW} SET locked_until = ?2, attempt = attempt + 1 WHERE id IN ({_NEXT}) "
    "RETURNING id, payload, locked_until"
)
_SETTLE: Final = f"DELETE FROM {RAW} WHERE id = ? AND locked_until = ?"
_LEASE_SECONDS: Final = 60.0


class _Tokens:
    """Lease ends, none of them twice."""

    def __init__(self) -> None:
        self._last = 0.0

    def claim(self, limit: int) -> tuple[float, float, int]:
        now = time.time()
        self._last = max(self._last + 1e-3, now + _LEASE_SECONDS)
        return now, self._last, limit


def _held(rows: Rows) -> list[tuple[Any, Any]]:
    return [(id, token) for id, _payload, token in rows]


def _apart(connection: Any, tokens: _Tokens, done: Rows, limit: int) -> Rows:
    """Settle, then claim, each committed by itself."""
    if len(done) == 1:
        connection.execute(_SETTLE, _held(done)[0])
    elif done:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_SETTLE, _held(done))
        connection.execute("COMMIT")
    rows: Rows = connection.execute(_CLAIM, tokens.claim(limit)).fetchall()
    return rows


def _joined(connection: Any, tokens: _Tokens, done: Rows, limit: int) -> Rows:
    """Settle and claim in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    if done:
        connection.executemany(_SETTLE, _held(done))
    rows: Rows = connection.execute(_CLAIM, tokens.claim(limit)).fetchall()
    connection.execute("COMMIT")
    return rows


def drain_in_one_thread(place: SqlitePlace, *, jobs: int, batch: int) -> Sample:
    """Measure plain `sqlite3` without an event loop: claim and settlement each committed."""

    def run(meter: Meter) -> None:
        tokens = _Tokens()
        rows: Rows = ()
        with closing(_open(place)) as connection:
            while rows := _apart(connection, tokens, rows, batch):
                for _ in rows:
                    meter.hit()
            meter.stop()

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, run)


def drain_by_aiosqlite(place: SqlitePlace, *, jobs: int, batch: int) -> Sample:
    """Measure aiosqlite as it is meant: a call for each statement; on asyncio."""
    import aiosqlite  # noqa: PLC0415 - of one backend alone

    async def loop(meter: Meter) -> None:
        tokens = _Tokens()
        async with aiosqlite.connect(
            place.path, isolation_level=None, check_same_thread=False
        ) as connection:
            while True:
                rows: Any = await connection.execute_fetchall(_CLAIM, tokens.claim(batch))
                for _ in rows:
                    meter.hit()
                if not rows:
                    break
                if batch == 1:
                    await connection.execute(_SETTLE, _held(rows)[0])
                else:
                    await connection.execute("BEGIN IMMEDIATE")
                    await connection.executemany(_SETTLE, _held(rows))
                    await connection.execute("COMMIT")
            meter.stop()

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, in_loop("asyncio", loop))


def drain_by_hops(place: SqlitePlace, backend: str, *, jobs: int, batch: int) -> Sample:
    """Measure one call into a thread for each settlement joined with the next claim."""

    async def loop(meter: Meter) -> None:
        tokens = _Tokens()
        rows: Rows = ()
        with ThreadPoolExecutor(1) as thread:
            hop = _hop(backend, thread)
            connection = await hop(partial(_open, place))
            while True:
                rows = await hop(partial(_joined, connection, tokens, rows, batch))
                if not rows:
                    break
                for _ in rows:
                    meter.hit()
            meter.stop()
            await hop(connection.close)

    remake(place, RAW, raw_ddl(place.dialect), jobs)
    return drain(place, RAW, jobs, in_loop(backend, loop))


def _open(place: SqlitePlace) -> Any:
    return place.connect(place.path, isolation_level=None, check_same_thread=False)


def _hop(backend: str, thread: ThreadPoolExecutor) -> Callable[[Callable[[], Any]], Awaitable[Any]]:
    """Runs a function in a thread: the backend's own cheapest way."""
    if backend == "trio":
        import trio  # noqa: PLC0415 - of one backend alone

        return trio.to_thread.run_sync
    import asyncio  # noqa: PLC0415 - of one backend alone

    loop = asyncio.get_running_loop()
    return lambda function: loop.run_in_executor(thread, function)
