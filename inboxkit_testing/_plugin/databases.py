"""Where fresh databases come from, one for each test."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from inboxkit.database import Database
    from inboxkit_testing import VirtualClock
    from inboxkit_testing.servers import MysqlServer, PostgresServer

__all__ = ["Databases", "make_database"]

SERVERS = ("postgres", "mariadb", "mysql")


class Databases:
    """The servers of one pytest process, started when a test first asks."""

    def __init__(self) -> None:
        self._servers: dict[str, PostgresServer | MysqlServer] = {}

    def prepare(self, name: str) -> None:
        """See that databases of this kind can be made, before a loop runs; else as `server`."""
        if name in SERVERS:
            self.server(name)

    def server(self, name: str) -> PostgresServer | MysqlServer:
        """The server. Without one the test is skipped, or fails where `INBOXKIT_REQUIRE` lists it."""
        if name in self._servers:
            return self._servers[name]
        from inboxkit_testing import servers  # noqa: PLC0415 - only where a server is chosen

        make = getattr(servers, f"{name}_server")
        try:
            self._servers[name] = make()
        except servers.ServerUnavailableError as error:
            if name in servers.required_servers():
                pytest.fail(f"INBOXKIT_REQUIRE lists {name}: {error}", pytrace=False)
            pytest.skip(str(error))
        return self._servers[name]

    def fresh(self, name: str) -> AbstractContextManager[str]:
        """The URL of a database of its own, for the time of a block."""
        if name == "sqlite":
            return _sqlite_file("sqlite")
        if name == "sqlite-inloop":
            return _sqlite_file("sqlite+inloop")
        if name == "sqlite-memory":
            return contextlib.nullcontext("sqlite:///:memory:")
        return self.server(name).database()

    def close(self) -> None:
        """Let go of the servers; a throw-away one ends with its last user."""
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()


def make_database(url: str, clock: VirtualClock | None) -> Database:
    """A database that is not open yet, in virtual time or (None) in real time."""
    if clock is not None:
        from inboxkit_testing.databases import open_test_database  # noqa: PLC0415 - when a test runs

        return open_test_database(url, clock=clock)
    if url.startswith("sqlite+inloop:"):
        pytest.skip("sqlite-inloop is for virtual time: name virtual_clock or frozen_clock")
    from inboxkit.database import Database  # noqa: PLC0415 - when a test runs

    return Database(url)


_MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it


@contextlib.contextmanager
def _sqlite_file(scheme: str) -> Iterator[str]:
    # In memory where that can be: a COMMIT waits for a disk twenty times as long as it takes.
    parent = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="inboxkit-", dir=parent))
    try:
        yield f"{scheme}:///{folder / 'inbox.db'}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
