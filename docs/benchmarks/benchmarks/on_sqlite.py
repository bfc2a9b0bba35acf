"""A SQLite file to measure on, under one setting of ``synchronous``."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from inboxkit.abc import DialectName

from .places import Counts
from .tables import NAME

__all__ = ["SqlitePlace", "Synchronous"]

Synchronous = Literal["normal", "full"]

_connect = sqlite3.connect


class SqlitePlace:
    """A file with a write-ahead log in a folder of its own, below the temporary directory.

    `Database` leaves ``synchronous`` as SQLite has it: FULL. For NORMAL it is set on each
    connection as it opens, whoever opens it.

    Args:
        synchronous: What each connection is set to.
    """

    dialect: DialectName = "sqlite"

    def __init__(self, synchronous: Synchronous) -> None:
        self.name = f"sqlite-{synchronous}"
        self._synchronous = synchronous
        self.folder = Path(tempfile.mkdtemp(prefix="inboxkit-bench-"))
        self.path = self.folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.script("PRAGMA journal_mode = WAL")

    def connect(self, *arguments: Any, **settings: Any) -> sqlite3.Connection:
        """As `sqlite3.connect`, and set it."""
        connection: sqlite3.Connection = _connect(*arguments, **settings)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return connection

    def script(self, *statements: str) -> None:
        with closing(_connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement).fetchall()

    def value(self, query: str) -> Any:
        with closing(_connect(self.path)) as connection:
            return connection.execute(query).fetchone()[0]

    def drop(self, table: str) -> None:
        self.script(f"DROP TABLE IF EXISTS {table}")

    def fill(self, table: str, count: int) -> None:
        self.script(
            f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers "
            f"WHERE n < {count - 1}) INSERT INTO {table} (name, payload) "
            f"SELECT '{NAME}', CAST('{{\"n\":' || n || '}}' AS BLOB) FROM numbers"
        )

    def tidy(self, table: str) -> None:
        self.script(f"ANALYZE {table}", "PRAGMA wal_checkpoint(TRUNCATE)")

    def counts(self) -> Counts:
        return Counts()

    def measuring(self) -> AbstractContextManager[object]:
        return patch.object(sqlite3, "connect", self.connect)

    def unflushed(self) -> AbstractContextManager[bool]:
        return nullcontext(False)

    def settings(self) -> Mapping[str, str]:
        with closing(self.connect(self.path)) as connection:
            shown = {
                name: str(connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "page_size", "wal_autocheckpoint")
            }
        return {"version": sqlite3.sqlite_version, **shown, "folder": str(self.folder)}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
