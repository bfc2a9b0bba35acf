"""Where fresh databases come from, one for each test."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from inboxkit_testing.servers import PostgresServer

__all__ = ["Databases"]


class Databases:
    """The servers of one pytest process, started when a test first asks."""

    def __init__(self) -> None:
        self._postgres: PostgresServer | None = None

    def prepare(self, name: str) -> None:
        """See that databases of this kind can be made; else skip the test.

        Where `INBOXKIT_REQUIRE` lists the server, its absence is a failure.
        """
        if name != "postgres" or self._postgres is not None:
            return
        from inboxkit_testing.servers import (  # noqa: PLC0415 - only where Postgres is chosen
            ServerUnavailableError,
            postgres_server,
            required_servers,
        )

        try:
            self._postgres = postgres_server()
        except ServerUnavailableError as error:
            if name in required_servers():
                pytest.fail(f"INBOXKIT_REQUIRE lists {name}: {error}", pytrace=False)
            pytest.skip(str(error))

    def fresh(self, name: str) -> AbstractContextManager[str]:
        """The URL of a database of its own, for the time of a block."""
        if name == "sqlite":
            return _sqlite_file()
        if name == "sqlite-memory":
            return contextlib.nullcontext("sqlite:///:memory:")
        self.prepare(name)
        assert self._postgres is not None
        return self._postgres.database()

    def close(self) -> None:
        """Let go of the servers; a throw-away one ends with its last user."""
        server, self._postgres = self._postgres, None
        if server is not None:
            server.close()


@contextlib.contextmanager
def _sqlite_file() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="inboxkit-"))
    try:
        yield f"sqlite:///{folder / 'inbox.db'}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
