"""A server's sessions: who they are, and waiting until the server has let go of them."""

from __future__ import annotations

from collections.abc import Sequence

from inboxkit._sql.statement import Statement
from inboxkit.abc import DialectName, Driver, DriverConnection

from .errors import ClockStalledError

__all__ = ["end_sessions", "session_of"]

_POLLS = 5000
"""Of a millisecond each, on the server: this loop's time stands."""


async def session_of(connection: DriverConnection, dialect: DialectName) -> int | None:
    """The server's number of a session; None: there is no server."""
    if dialect != "postgres":
        return None
    answer = await connection.execute(Statement("session", "SELECT pg_backend_pid()"))
    return int(answer.rows[0][0])


async def end_sessions(driver: Driver, sessions: Sequence[int]) -> None:
    """Return when the server no longer lists these sessions.

    A cut socket is not enough: the server keeps a session's locks until it looks at the socket, and
    while a statement waits for a lock it does not.

    Raises:
        ClockStalledError: Some are still there after five seconds.
    """
    numbers = ", ".join(str(int(session)) for session in sessions)
    listed = f"SELECT pid FROM pg_stat_activity WHERE pid IN ({numbers})"
    connection = await driver.connect()
    try:
        await connection.execute(
            Statement("end sessions", f"SELECT pg_terminate_backend(pid) FROM ({listed}) AS gone")
        )
        for _ in range(_POLLS):
            if not (await connection.execute(Statement("sessions", listed))).rows:
                return
            await connection.execute(Statement("wait", "SELECT pg_sleep(0.001)"))
    finally:
        await connection.close()
    raise ClockStalledError(f"the server still lists the sessions {numbers} of a crashed instance")
