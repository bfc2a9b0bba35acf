"""A server's sessions: who they are, and waiting until the server has let go of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from inboxkit._sql.statement import Statement
from inboxkit.abc import DialectName, Driver, DriverConnection
from inboxkit.errors import DatabaseError

from .errors import ClockStalledError

if TYPE_CHECKING:
    from .kept import KeptSessions

__all__ = ["end_sessions", "session_of"]

_POLLS = 5000
"""Of a millisecond each, on the server: this loop's time stands."""


async def session_of(connection: DriverConnection, dialect: DialectName) -> int | None:
    """The server's number of a session; None: there is no server."""
    if dialect == "sqlite":
        return None
    number = "pg_backend_pid()" if dialect == "postgres" else "CONNECTION_ID()"
    answer = await connection.execute(Statement("session", f"SELECT {number}"))
    return int(answer.rows[0][0])


async def end_sessions(
    driver: Driver,
    sessions: Sequence[int],
    dialect: DialectName,
    *,
    kept: KeptSessions | None = None,
) -> None:
    """Return when the server no longer lists these sessions.

    A cut socket is not enough: the server keeps a session's locks until it looks at the socket, and
    while a statement waits for a lock it does not.

    Args:
        driver: Connects to the server.
        sessions: Their numbers.
        dialect: Which SQL the server speaks.
        kept: Where a session to ask by is to be had, and is given back to.

    Raises:
        ClockStalledError: Some are still there after five seconds.
    """
    numbers = ", ".join(str(int(session)) for session in sessions)
    if dialect == "postgres":
        listed = f"SELECT pid FROM pg_stat_activity WHERE pid IN ({numbers})"
        wait = "SELECT pg_sleep(0.001)"
    else:
        listed = f"SELECT id FROM information_schema.processlist WHERE id IN ({numbers})"
        wait = "DO SLEEP(0.001)"
    number: int | None = None
    if kept is None:
        connection = await driver.connect()
    else:
        connection, number = await kept.connect(driver)
    try:
        answer = await connection.execute(Statement("sessions", listed))
        for (session,) in answer.rows:
            await _end(connection, int(session), dialect)
        for _ in range(_POLLS):
            if not (await connection.execute(Statement("sessions", listed))).rows:
                return
            await connection.execute(Statement("wait", wait))
    finally:
        if kept is not None and number is not None:
            await kept.keep(connection, number)
        else:
            await connection.close()
    raise ClockStalledError(f"the server still lists the sessions {numbers} of a crashed instance")


async def _end(connection: DriverConnection, session: int, dialect: DialectName) -> None:
    if dialect == "postgres":
        await connection.execute(
            Statement("end session", f"SELECT pg_terminate_backend({session})")
        )
        return
    with suppress(DatabaseError):  # it has ended by itself meanwhile
        await connection.execute(Statement("end session", f"KILL {session}", returns_rows=False))
