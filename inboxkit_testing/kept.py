"""Sessions of PostgreSQL, and of SQLite in the loop, that outlive the process which opened them: for the
next example.

To connect is most of what the start of an instance costs on a server. What a session remembers is undone
before another instance gets it; one that was dropped, or is in doubt, is never handed on.
"""

from __future__ import annotations

from typing import Final

import anyio

from inboxkit._db.postgres import session_timeouts
from inboxkit._sql.statement import Statement
from inboxkit.abc import Driver, DriverConnection
from inboxkit.errors import DatabaseError

from .inloop import InLoopConnection, InLoopDriver
from .sessions import session_of

__all__ = ["KeptSessions"]

_BOUND: Final = 5.0
"""Seconds for undoing what a session remembers."""
_MOST: Final = 8
"""Sessions that are kept at once."""
_UNDO: Final = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; "
    "SELECT pg_catalog.pg_advisory_unlock_all(); "
    "DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, but for the statements that the driver has prepared, and still knows."""


class KeptSessions:
    """Sessions that nobody uses, of one server and one driver, or of one file.

    Args:
        timeout: The statement timeout that each was opened with, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        undo = f"{_UNDO}; {session_timeouts(timeout)}"
        self._undo = Statement("reset", undo, returns_rows=False)
        self._free: list[tuple[DriverConnection, int | None]] = []

    async def connect(self, driver: Driver) -> tuple[DriverConnection, int | None]:
        """A session as good as new, and the server's number of it.

        Raises:
            ConnectError: There was none, and the server cannot be reached.
        """
        while self._free:
            connection, number = self._free.pop()
            if connection.is_closed:
                continue
            if isinstance(driver, InLoopDriver) and isinstance(connection, InLoopConnection):
                driver.adopt(connection)
            return connection, number
        connection = await driver.connect()
        try:
            return connection, await session_of(connection, driver.dialect)
        except BaseException:
            connection.terminate()
            raise

    async def keep(self, connection: DriverConnection, number: int | None) -> None:
        """Take over a session that its instance is done with; it is closed if it cannot be kept.

        Cancellation:
            Shielded for five seconds.
        """
        if connection.is_closed or connection.in_transaction or len(self._free) >= _MOST:
            await connection.close()
            return
        is_undone = number is None
        try:
            with anyio.move_on_after(_BOUND, shield=True):
                if number is not None:
                    await connection.execute(self._undo)
                    is_undone = True
        except DatabaseError:
            is_undone = False
        finally:
            if not is_undone:
                connection.terminate()
        if is_undone:
            self._free.append((connection, number))

    def hand_on(self, connection: DriverConnection) -> bool:
        """Take over a session of SQLite in the loop that is dropped; whether it was.

        A server has to notice first that a connection of it was dropped; here nothing is in flight.
        """
        if not isinstance(connection, InLoopConnection) or len(self._free) >= _MOST:
            return False
        taken = connection.hand_on()
        if taken is not None:
            self._free.append((taken, None))
        return True

    async def aclose(self) -> None:
        """Close them all."""
        free, self._free = self._free, []
        for connection, _ in free:
            await connection.close()
