"""A test's own look at its database, by a driver of its own and no code of inboxkit's runtime."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pymysql

__all__ = ["LOST", "Outside", "dialect_of"]

LOST = (psycopg.Error, pymysql.Error, sqlite3.OperationalError, OSError)
"""What a statement may raise while a server is away."""


def dialect_of(url: str) -> str:
    """Whose SQL the database of a URL speaks."""
    name = url.partition(":")[0].partition("+")[0]
    return {"mariadb": "mysql", "postgresql": "postgres"}.get(name, name)


class Outside:
    """One synchronous connection; statements are written with ``?``, each its own transaction.

    Args:
        url: As inboxkit has it.
    """

    def __init__(self, url: str) -> None:
        self.dialect = dialect_of(url)
        self._connection: Any = _CONNECT[self.dialect](url)

    def run(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        return self.run_native(_PLACEHOLDERS[self.dialect](text), values)

    def run_native(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The same with the placeholders of the database's driver."""
        cursor = self._connection.cursor()
        try:
            if values:
                cursor.execute(text, tuple(values))
            else:
                cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def value(self, text: str, *values: Any) -> Any:
        """The only value of the only row."""
        ((value,),) = self.run(text, *values)
        return value

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements together; an error rolls them back, or leaves open what became of them."""
        self.run("BEGIN IMMEDIATE" if self.dialect == "sqlite" else "BEGIN")
        try:
            yield
        except BaseException:
            self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _numbered(text: str) -> str:
    first, *others = text.split("?")
    return first + "".join(f"${place}{piece}" for place, piece in enumerate(others, 1))


_PLACEHOLDERS: dict[str, Callable[[str], str]] = {
    "sqlite": lambda text: text,
    "mysql": lambda text: text.replace("?", "%s"),
    "postgres": _numbered,
}


def _postgres(url: str) -> Any:
    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=5, cursor_factory=psycopg.RawCursor
    )
    # Whatever the administrator thinks: a test's own look is not what it tests.
    connection.execute(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', "
        "'lock_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout', "
        "'transaction_timeout')"
    )
    return connection


def _mysql(url: str) -> Any:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.lstrip("/") or None,
        unix_socket=options.get("unix_socket"),
        autocommit=True,
        connect_timeout=5,
        ssl_disabled=True,
        charset="utf8mb4",
        init_command="SET SESSION wait_timeout = 28800",
    )


def _sqlite(url: str) -> Any:
    path = url.removeprefix("sqlite:///")
    return sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)


_CONNECT = {"postgres": _postgres, "mysql": _mysql, "sqlite": _sqlite}
