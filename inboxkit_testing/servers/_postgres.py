"""A Postgres for tests, and fresh databases on it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from inboxkit_testing.servers import _binaries
from inboxkit_testing.servers._admin import Admin, open_admin
from inboxkit_testing.servers._errors import ServerUnavailableError
from inboxkit_testing.servers._starting import join_or_start, run_key

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "POSTGRES_URL_VARIABLE",
    "PostgresServer",
    "postgres_server",
]

POSTGRES_URL_VARIABLE = "INBOXKIT_TEST_POSTGRES_URL"
"""Names a server to use in place of a throw-away one: ``postgresql://user@host:port/database``."""

_END_SESSIONS = """
DO $$ BEGIN
    FOR look IN 1..200 LOOP
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = '{name}' AND backend_type = 'client backend';
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
    END LOOP;
END $$
"""
"""DROP DATABASE looks only each 100 ms whether a session has ended, even one that its client has closed."""

_SYNTAX_ERROR = "42601"


class PostgresServer:
    """A server on which tests make databases. Made by `postgres_server`; a context manager.

    Attributes:
        url: Of the maintenance database, with a role that may create databases.
        folder: Where a throw-away server lives (``data``, ``socket``, ``log``); None: not ours.
    """

    def __init__(
        self, url: str, *, folder: Path | None = None, users: IO[bytes] | None = None
    ) -> None:
        self.url = url
        self.folder = folder
        self._users = users
        self._admin: Admin | None = None
        self._can_force = True
        """PostgreSQL 12 does not know it."""

    def create_database(self, *, template: str | None = None) -> str:
        """Make a database, called by a new uuid.

        Args:
            template: URL of a database of this server to copy, to which nobody is connected.

        Returns:
            The new database's URL.

        Raises:
            ServerUnavailableError: The server has ended.
        """
        name = f"inboxkit_{uuid.uuid4().hex}"
        source = _name_of(template) if template else "template0"
        # Without fsync two checkpoints cost less (20 ms) than every page through the log (31 ms).
        strategy = "" if self.folder is None else " STRATEGY file_copy"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"{strategy}')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, ending sessions that are left in it."""
        name = _name_of(url)
        self._execute(_END_SESSIONS.format(name=name))
        drop = f'DROP DATABASE IF EXISTS "{name}"'
        if self._can_force:
            try:
                self._execute(f"{drop} WITH (FORCE)")
            except Exception as error:
                if getattr(error, "sqlstate", None) != _SYNTAX_ERROR:
                    raise
                self._can_force = False
            else:
                return
        self._execute(drop)

    @contextmanager
    def database(self, *, template: str | None = None) -> Iterator[str]:
        """A database for the time of a block: its URL."""
        url = self.create_database(template=template)
        try:
            yield url
        finally:
            self.drop_database(url)

    def socket_url(self, url: str) -> str:
        """The same database of a throw-away server through its Unix socket (``?host=/folder``)."""
        if self.folder is None or not list((self.folder / "socket").iterdir()):
            raise ServerUnavailableError("this server's Unix socket is not known")
        parts = urlsplit(url)
        location = parts.netloc.rpartition("@")[0] + f"@:{parts.port}"
        return urlunsplit(
            parts._replace(netloc=location, query=f"host={quote(str(self.folder / 'socket'))}")
        )

    def close(self) -> None:
        """Stop using the server; a throw-away one ends with its last user."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        users, self._users = self._users, None
        if users is not None:
            users.close()

    def _execute(self, statement: str) -> None:
        if self._admin is None:
            self._admin = open_admin(self.url)
        self._admin.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = urlsplit(self.url)
        return f"PostgresServer({parts.hostname}:{parts.port})"


def postgres_server(run: str | None = None, *, durable: bool = False) -> PostgresServer:
    """The Postgres of this run: the one that the variable names, else a throw-away one, started at need.

    Args:
        run: Processes that name the same run share a server. None: the run of pytest-xdist, so that
            its workers share one; outside of it a server for this call alone.
        durable: Start one that keeps what it commits, with PostgreSQL's own defaults and data on the disk
            of the temporary directory, for measurements. Else it is quick and forgets all in a crash.
            A server that the variable names is as it is.

    Raises:
        ServerUnavailableError: Neither can be had.
    """
    url = os.environ.get(POSTGRES_URL_VARIABLE)
    if url:
        return PostgresServer(url)
    return _running(
        *join_or_start(run_key(run), _settings, variable=POSTGRES_URL_VARIABLE, durable=durable)
    )


def _settings(folder: Path, user: int | None) -> dict[str, Any]:
    installation = _binaries.installed()
    if user is not None:
        installation = _binaries.copy_installation(installation, folder / "programs")
    return {"kind": "postgres", "title": "Postgres", "installation": str(installation)}


def _running(folder: Path, users: IO[bytes]) -> PostgresServer:
    port = json.loads((folder / "server.json").read_text())["port"]
    password = json.loads((folder / "settings.json").read_text())["password"]
    url = f"postgresql://inboxkit:{password}@127.0.0.1:{port}/postgres"
    return PostgresServer(url, folder=folder, users=users)


def _name_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
