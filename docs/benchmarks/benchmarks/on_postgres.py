"""A PostgreSQL to measure on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final

import psycopg

from inboxkit.abc import DialectName
from inboxkit_testing.servers import PostgresServer, postgres_server

from .places import Counts
from .tables import NAME

__all__ = ["PostgresPlace"]

_SHOWN: Final = (
    *("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method"),
    *("shared_buffers", "max_wal_size", "autovacuum", "shared_preload_libraries"),
)
_DURABLE: Final = ("fsync", "synchronous_commit", "full_page_writes")
_PATIENCE: Final = 5.0


class PostgresPlace:
    """A database of its own on a server that keeps what it commits.

    Args:
        url: A server's, with a role that may create databases; None: a throw-away one is started.

    Raises:
        SystemExit: The server may lose what it commits.
    """

    name = "postgres"
    dialect: DialectName = "postgres"

    def __init__(self, url: str | None) -> None:
        with ExitStack() as opened:
            server = postgres_server(durable=True) if url is None else PostgresServer(url)
            opened.callback(server.close)
            self.url = opened.enter_context(server.database())
            self._admin: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
                self.url, autocommit=True
            )
            opened.callback(self._admin.close)
            for name in _DURABLE:
                if self.value(f"SHOW {name}") != "on":
                    raise SystemExit(
                        f"{name} is off on this PostgreSQL: its figures would be of no use"
                    )
            self._has_statements = self._count_statements()
            self._opened = opened.pop_all()

    def _count_statements(self) -> bool:
        try:
            self.script("CREATE EXTENSION pg_stat_statements")
            self.value("SELECT count(*) FROM pg_stat_statements")
        except psycopg.Error:
            return False
        return True

    def script(self, *statements: str) -> None:
        for statement in statements:
            self._admin.execute(statement.encode())

    def value(self, query: str) -> Any:
        row = self._admin.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def drop(self, table: str) -> None:
        self.script(f"DROP TABLE IF EXISTS {table}")

    def fill(self, table: str, count: int) -> None:
        payload = "convert_to('{\"n\":' || n || '}', 'UTF8')"
        self.script(
            f"INSERT INTO {table} (name, payload) "
            f"SELECT '{NAME}', {payload} FROM generate_series(0, {count - 1}) AS n"
        )

    def tidy(self, table: str) -> None:
        self.script(f"VACUUM ANALYZE {table}", "CHECKPOINT")

    def counts(self) -> Counts:
        self._wait_until_alone()
        commits = self.value(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
        if not self._has_statements:
            return Counts(commits=commits)
        statements = self.value(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements "
            "WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return Counts(statements, commits)

    def _wait_until_alone(self) -> None:
        """A session counts what it committed when it ends, at the latest."""
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + _PATIENCE
        while self.value(others) and time.monotonic() < deadline:
            self.script("SELECT pg_sleep(0.005)")

    def measuring(self) -> AbstractContextManager[object]:
        return nullcontext()

    @contextmanager
    def unflushed(self) -> Iterator[bool]:
        change = f"ALTER DATABASE {self.value('SELECT quote_ident(current_database())')}"
        self.script(f"{change} SET synchronous_commit = off")
        try:
            yield True
        finally:
            self.script(f"{change} RESET synchronous_commit")

    def settings(self) -> Mapping[str, str]:
        return {name: str(self.value(f"SHOW {name}")) for name in _SHOWN}

    def close(self) -> None:
        self._opened.close()
