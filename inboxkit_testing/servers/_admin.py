"""A few statements outside any event loop, by whichever driver is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from typing import Any, Protocol

from inboxkit_testing.servers._errors import ServerUnavailableError

__all__ = ["Admin", "open_admin"]


class Admin(Protocol):
    """Runs statements that answer nothing, each in its own transaction."""

    def execute(self, statement: str) -> None:
        """Run one statement."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


def open_admin(url: str) -> Admin:
    """Connect to the maintenance database.

    Raises:
        ServerUnavailableError: No driver is installed, or nothing answers at `url`.
    """
    for driver, admin in (("psycopg", _PsycopgAdmin), ("asyncpg", _AsyncpgAdmin)):
        if importlib.util.find_spec(driver) is not None:
            try:
                return admin(url)
            except Exception as error:
                raise ServerUnavailableError(
                    f"the Postgres for tests does not answer: {error}"
                ) from error
    raise ServerUnavailableError(
        "no driver for Postgres is installed: pip install 'inboxkit[postgres]'"
    )


class _PsycopgAdmin:
    """One synchronous connection, kept."""

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        self._connection: psycopg.Connection[Any] = psycopg.connect(
            url, autocommit=True, connect_timeout=10
        )

    def execute(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def close(self) -> None:
        self._connection.close()


class _AsyncpgAdmin:
    """A connection for each statement, on a loop in a thread: the caller may be inside a loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.execute("SELECT 1")

    def execute(self, statement: str) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(self._execute(statement))
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    async def _execute(self, statement: str) -> None:
        import asyncpg  # noqa: PLC0415 - an extra

        connection = await asyncpg.connect(self._url, timeout=10)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def close(self) -> None:
        return
