"""Which driver serves a URL under the running backend."""

from __future__ import annotations

import sqlite3

from inboxkit._db.backend import BackendName, running_backend
from inboxkit._db.mysql_url import read_target
from inboxkit._db.turnstile import Turnstile
from inboxkit._db.url import DatabaseUrl
from inboxkit._db.versions import check_sqlite
from inboxkit.abc import Clock, Driver
from inboxkit.errors import MissingExtraError, StartupError

__all__ = ["choose_driver", "make_driver"]

_DEFAULTS = {
    ("sqlite", "asyncio"): "aiosqlite",
    ("sqlite", "trio"): "thread",
    ("mysql", "asyncio"): "asyncmy",
    ("mysql", "trio"): "pymysql",
    ("postgres", "asyncio"): "asyncpg",
    ("postgres", "trio"): "psycopg",
}
_ASYNCIO_ONLY = {
    "aiosqlite": "sqlite+thread://",
    "asyncmy": "mysql+pymysql://",
    "asyncpg": "postgresql+psycopg://",
}
"""And what to write under trio instead."""


def choose_driver(url: DatabaseUrl, backend: BackendName) -> str:
    """The name of the driver for a backend.

    Raises:
        StartupError: The URL names a driver that does not run there.
    """
    name = url.driver or _DEFAULTS[url.dialect, backend]
    if backend == "trio" and name in _ASYNCIO_ONLY:
        raise StartupError(
            f"{name} runs on asyncio only; under trio write {_ASYNCIO_ONLY[name]}…, or leave the "
            "driver's name out of the URL"
        )
    return name


def make_driver(
    url: DatabaseUrl, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
) -> Driver:
    """A driver for the running backend; nothing connects.

    Args:
        url: The database.
        clock: What every statement is bracketed by.
        timeout: Seconds that a statement may take.
        turnstile: What the writers of one SQLite file pass one by one; None: a new one. Servers
            need none.

    Raises:
        StartupError: The URL names a driver that does not run on this backend.
        MissingExtraError: The driver is not installed.
        ServerTooOldError: The SQLite library lacks what the lease form needs.
    """
    if url.dialect == "sqlite":
        check_sqlite(sqlite3.sqlite_version_info)
    # The drivers' libraries are imported here alone, when they are needed.
    match name := choose_driver(url, running_backend()):
        case "thread":
            from inboxkit._db.thread import sqlite_in_a_thread  # noqa: PLC0415

            return sqlite_in_a_thread(
                url.location, clock=clock, timeout=timeout, turnstile=turnstile
            )
        case "aiosqlite":
            from inboxkit._db.aiosqlite import sqlite_through_aiosqlite  # noqa: PLC0415

            return sqlite_through_aiosqlite(
                url.location, clock=clock, timeout=timeout, turnstile=turnstile
            )
        case "asyncmy" | "pymysql":
            return _mysql_driver(name, url.location, clock=clock, timeout=timeout)
        case _:
            return _postgres_driver(name, url.location, clock=clock, timeout=timeout)


def _postgres_driver(name: str, location: str, *, clock: Clock, timeout: float) -> Driver:
    try:
        if name == "asyncpg":
            from inboxkit._db.asyncpg import AsyncpgDriver  # noqa: PLC0415

            return AsyncpgDriver(location, clock=clock, timeout=timeout)
        from inboxkit._db.psycopg import PsycopgDriver  # noqa: PLC0415

        return PsycopgDriver(location, clock=clock, timeout=timeout)
    except ImportError as error:
        raise MissingExtraError(
            f"PostgreSQL needs {name}, which is not installed: pip install 'inboxkit[postgres]'"
        ) from error


def _mysql_driver(name: str, location: str, *, clock: Clock, timeout: float) -> Driver:
    target = read_target(location)
    try:
        if name == "asyncmy":
            from inboxkit._db.asyncmy import AsyncmyDriver  # noqa: PLC0415

            return AsyncmyDriver(target, clock=clock, timeout=timeout)
        from inboxkit._db.pymysql import PymysqlDriver  # noqa: PLC0415

        return PymysqlDriver(target, clock=clock, timeout=timeout)
    except ImportError as error:
        raise MissingExtraError(
            f"MariaDB and MySQL need {name}, which is not installed: pip install 'inboxkit[mysql]'"
        ) from error
