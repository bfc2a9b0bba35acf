"""Sessions of PostgreSQL for the loops written by hand: asyncpg's on asyncio, psycopg's on trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import trio
from psycopg import generators, waiting
from psycopg.abc import RV, PQGen
from psycopg.rows import tuple_row

__all__ = ["PostgresSession", "connect_postgres"]

_STATEMENTS = 1000
"""How many prepared statements a session keeps."""


@dataclass(frozen=True, slots=True)
class PostgresSession:
    """The driver's own functions, with nothing between."""

    rows: Callable[..., Awaitable[Sequence[Sequence[Any]]]]
    """Runs a statement with arguments, prepared, and returns its rows."""
    run: Callable[..., Awaitable[object]]
    """Runs a statement that returns none."""
    listen: Callable[[str, Callable[[], None]], Coroutine[Any, Any, None]]
    """Calls a function at each notification on a channel; on trio it goes on doing so until it is cancelled."""
    close: Callable[[], Awaitable[None]]


async def connect_postgres(url: str, backend: str) -> PostgresSession:
    """Connect; each statement commits by itself unless it comes after BEGIN."""
    return await (_asyncpg(url) if backend == "asyncio" else _psycopg(url))


async def _asyncpg(url: str) -> PostgresSession:
    import asyncpg  # noqa: PLC0415 - of one backend alone

    connection: Any = await asyncpg.connect(url, statement_cache_size=_STATEMENTS)

    async def listen(channel: str, heard: Callable[[], None]) -> None:
        await connection.add_listener(channel, lambda *_: heard())

    return PostgresSession(connection.fetch, connection.execute, listen, connection.close)


async def _psycopg(url: str) -> PostgresSession:
    made = waiting.wait_conn(generators.connect(url))  # before anything is measured
    connection = _OnTrio(made)
    await connection.set_autocommit(True)

    async def run(text: str, *arguments: Any) -> None:
        await connection.execute(text.encode(), arguments or None)

    async def rows(text: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return await (await connection.execute(text.encode(), arguments)).fetchall()

    async def listen(channel: str, heard: Callable[[], None]) -> None:
        connection.pgconn.notify_handler = lambda _: heard()
        await run(f"LISTEN {channel}")
        while True:  # until its task is cancelled
            await trio.lowlevel.wait_readable(connection.pgconn.socket)
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                heard()

    async def close() -> None:
        connection.pgconn.finish()

    return PostgresSession(rows, run, listen, close)


class _OnTrio(psycopg.AsyncConnection[tuple[Any, ...]]):
    """psycopg's connection, whose waits are trio's; one task at a time."""

    def __init__(self, pgconn: Any) -> None:
        super().__init__(pgconn, tuple_row)
        self.lock = cast("Any", nullcontext())
        self.cursor_factory = psycopg.AsyncRawCursor
        self.prepared_max = _STATEMENTS

    async def wait(self, gen: PQGen[RV], interval: float = 0.0, timeout: float | None = None) -> RV:
        try:
            wanted = next(gen)
            while True:
                if wanted == waiting.Wait.R:
                    await trio.lowlevel.wait_readable(self.pgconn.socket)
                    wanted = gen.send(waiting.Ready.R)
                else:  # to write, perhaps also to read: a statement of a few kilobytes can be written
                    await trio.lowlevel.wait_writable(self.pgconn.socket)
                    wanted = gen.send(waiting.Ready.W)
        except StopIteration as end:
            return cast("RV", end.value)
