"""SQLite through aiosqlite, on asyncio: ``sqlite+aiosqlite://``.

aiosqlite keeps the thread; the work that it is given there is a whole session call, so a script is
one hop here too.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Final

import aiosqlite

from inboxkit._db.shield import LAST_WORD, outlast
from inboxkit._db.sqlite import SqliteDriver
from inboxkit._db.sqlite_session import MEMORY, SqliteSession
from inboxkit._db.tasks import finished, stopped
from inboxkit._db.turnstile import Turnstile
from inboxkit.abc import Clock
from inboxkit.errors import ConnectError

__all__ = ["AiosqliteWorker", "sqlite_through_aiosqlite"]

_OPENING: Final = 30.0
"""Seconds that opening a file may take."""


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection, with its way of running a function in its thread made callable."""

    async def call(self, work: Callable[[], None]) -> None:
        await self._execute(work)  # type: ignore[no-untyped-call]


class AiosqliteWorker:
    """aiosqlite's thread, running one session's work."""

    def __init__(self, session: SqliteSession) -> None:
        self._session = session
        self._connection = _Connection(self._connect, iter_chunk_size=64)
        self._error: ConnectError | None = None
        self._is_open = False
        self._ended: asyncio.Future[object] | None = None

    async def open(self) -> None:
        """Start the thread and open the session in it."""
        # In a task of its own: aiosqlite ends a thread whose opening was cancelled, or failed, and
        # does not wait for that, so that the thread may meet a closed event loop.
        task, interruption = await finished(self._start(), seconds=_OPENING)
        if not task.done():
            self._session.close()
            await stopped(task)
            raise interruption or ConnectError(f"no SQLite file was opened in {_OPENING:g} s")
        task.result()
        self._is_open = True
        if (error := interruption or self._error) is not None:
            self.stop()
            await outlast(self.ended, lambda: self.has_ended, seconds=LAST_WORD)
            raise error

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

    async def _start(self) -> None:
        await self._connection

    def _connect(self) -> sqlite3.Connection:
        try:
            return self._session.open()
        except ConnectError as error:
            # Raised by open(), once the thread has ended.
            self._error = error
            return sqlite3.connect(MEMORY, check_same_thread=False)


def sqlite_through_aiosqlite(
    path: str, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
) -> SqliteDriver:
    """The driver ``sqlite+aiosqlite``."""
    return SqliteDriver(
        "aiosqlite", path, worker=AiosqliteWorker, clock=clock, timeout=timeout, turnstile=turnstile
    )
