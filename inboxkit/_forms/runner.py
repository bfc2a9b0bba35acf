"""What claim forms ask of a `Database`."""

from __future__ import annotations

from typing import Protocol, TypeVar

from inboxkit._sql.statement import Script
from inboxkit.abc import DriverConnection

__all__ = ["Connections", "Lender", "Runner"]

T = TypeVar("T")


class Runner(Protocol):
    """Runs scripts; a `Database` is one."""

    async def run(self, script: Script[T], /) -> T:
        """Run a script on a connection of its own, as `DriverConnection.run` says."""
        ...


class Lender(Protocol):
    """Lends sessions for as long as a row is in work; a `Database` is one."""

    async def acquire(self, *, wait: bool = True) -> DriverConnection:
        """Take a session of the pool, which must be given to `release` again.

        Args:
            wait: Whether to wait until one is free.

        Raises:
            PoolTimeoutError: None became free within 30 seconds, or was free.
            DatabaseBusyError: A new one was needed, and the database could not be reached.
            ClosedError: The database is not open.
        """
        ...

    async def begin(self) -> DriverConnection:
        """Take a session, and begin a transaction that holds a row: `DriverConnection.begin` with `hold`.

        An idle session that turns out to have ended is replaced.

        Raises:
            DatabaseError: As `acquire` does; or nothing was begun.
        """
        ...

    async def release(self, connection: DriverConnection, /) -> None:
        """Take a session back; one inside a transaction is rolled back first, a closed one forgotten."""
        ...


class Connections(Runner, Lender, Protocol):
    """Both, which a `Database` is."""
