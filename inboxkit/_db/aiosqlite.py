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
import anyio

from inboxkit._db.sqlite import SqliteDriver
from inboxkit._db.sqlite_session import MEMORY, SqliteSession
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
        try:
            # Shielded: aiosqlite ends a thread whose opening was cancelled, and does not wait for it.
            with anyio.move_on_after(_OPENING, shield=True):
                await self._connection
                self._is_open = True
        finally:
            if not self._is_open:
                self._session.close()
        if self._error is not None:
            self.stop()
            await self.ended()
            raise self._error
        if not self._is_open:
            raise ConnectError(f"the SQLite file could not be opened within {_OPENING:g} s")

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

    def _connect(self) -> sqlite3.Connection:
        try:
            return self._session.open()
        except ConnectError as error:
            # Raised in open(), when the thread has ended: aiosqlite would not wait for that either.
            self._error = error
            return sqlite3.connect(MEMORY, check_same_thread=False)


def sqlite_through_aiosqlite(
    path: str, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
) -> SqliteDriver:
    """The driver ``sqlite+aiosqlite``."""
    return SqliteDriver(
        "aiosqlite", path, worker=AiosqliteWorker, clock=clock, timeout=timeout, turnstile=turnstile
    )
