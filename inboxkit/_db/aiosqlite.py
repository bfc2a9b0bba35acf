"""SQLite through aiosqlite, on asyncio: ``sqlite+aiosqlite://``.

aiosqlite keeps the thread; the work that it is given there is a whole session call, so a script is
one hop here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiosqlite

from inboxkit._db.sqlite import SqliteDriver
from inboxkit._db.sqlite_session import SqliteSession
from inboxkit._db.turnstile import Turnstile
from inboxkit.abc import Clock

__all__ = ["AiosqliteWorker", "sqlite_through_aiosqlite"]


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection, with its way of running a function in its thread made callable."""

    async def call(self, work: Callable[[], None]) -> None:
        await self._execute(work)  # type: ignore[no-untyped-call]


class AiosqliteWorker:
    """aiosqlite's thread, running one session's work."""

    def __init__(self, session: SqliteSession) -> None:
        self._session = session
        self._connection = _Connection(session.open, iter_chunk_size=64)
        self._is_open = False
        self._ended: asyncio.Future[object] | None = None

    async def open(self) -> None:
        """Start the thread and open the session in it."""
        try:
            await self._connection
        except BaseException:
            self._session.close()  # a cancelled opening goes on in the thread; aiosqlite ends that
            raise
        self._is_open = True

    async def call(self, work: Callable[[], None]) -> None:
        """Run `work`, which may not raise, and return when it has ended."""
        await self._connection.call(work)

    def stop(self) -> None:
        """After the work at hand, close the session and end the thread."""
        if self._is_open and self._ended is None:
            self._ended = self._connection.stop()

    async def ended(self) -> None:
        """Wait until a thread that was told to stop has ended."""
        if self._ended is not None:
            await asyncio.wait([self._ended])

    @property
    def has_ended(self) -> bool:
        """True once the thread has ended, or never began."""
        return not self._is_open or (self._ended is not None and self._ended.done())


def sqlite_through_aiosqlite(
    path: str, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
) -> SqliteDriver:
    """The driver ``sqlite+aiosqlite``."""
    return SqliteDriver(
        "aiosqlite", path, worker=AiosqliteWorker, clock=clock, timeout=timeout, turnstile=turnstile
    )
