"""SQLite as a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.convert import Converter
from inboxkit._sql.ddl import Index
from inboxkit._sql.dialect import DialectName
from inboxkit._sql.info import ColumnInfo, TableInfo
from inboxkit._sql.insert import by_returning
from inboxkit._sql.statement import Script, Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table
from inboxkit.errors import DialectError

from . import ddl, describe, names, values
from .advisory import SqliteAdvisory
from .lease import SqliteLease

__all__ = ["Sqlite"]

_MOST_PARAMETERS = 32766
"""SQLITE_MAX_VARIABLE_NUMBER since 3.32."""


class Sqlite:
    """SQL for SQLite."""

    name: DialectName = "sqlite"
    lone_write: Transaction = "write"
    bytes_at_once: int | None = None

    lock_rows = ""
    keep_ids = ""
    by_indexes: Statement | None = None

    def by_id(self, table: Table) -> str:  # noqa: ARG002
        """None is needed."""
        return ""

    def unsorted(self, table: Table, wanted: str, where: str) -> str:
        """LIMIT keeps the order out of it."""
        return f"SELECT {wanted} FROM (SELECT {wanted} FROM {table.sql} AS q{where} LIMIT -1) AS q"

    def quote(self, name: str) -> str:
        """Quote an identifier."""
        return names.quote(name)

    def table(self, table: str, schema: str | None) -> str:
        """Quote a table's name."""
        return names.table(table, schema)

    def converter(self, role: Role, column: Column, info: ColumnInfo | None) -> Converter:
        """How a column's values travel."""
        return values.converter(role, column, info)

    def instant(self, value: datetime) -> Any:
        """Encode an instant as text."""
        return values.instant(value)

    def describe(self, spec: InboxSpec) -> Script[TableInfo]:
        """Ask about a table."""
        return describe.describe(spec)

    def lease(self, table: Table, *, group: str | None, cap: int | None) -> SqliteLease:
        """Statements of the lease form."""
        return SqliteLease(table, group=group, cap=cap)

    def advisory(self, table: Table, *, group: str | None, cap: int | None) -> SqliteAdvisory:
        """Statements of the advisory lock form."""
        return SqliteAdvisory(table, group=group, cap=cap)

    def row_lock(self, table: Table, *, group: str | None) -> NoReturn:  # noqa: ARG002
        """There are none."""
        raise DialectError(
            f"table {table.spec.name!r} asks for the row lock form, and SQLite locks no rows; describe "
            "a locked_until column (a nullable TEXT), which asks for the lease form"
        )

    def insert(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Statement:
        """Write rows as one VALUES list; they come back in its order."""
        width = len(columns)
        if width:
            lines = ", ".join(
                f"({', '.join(f'${start + n + 1}' for n in range(width))})"
                for start in range(0, width * len(rows), width)
            )
            given = f"({', '.join(column.sql for column in columns)}) VALUES {lines}"
        else:
            given = "DEFAULT VALUES"
        # OR IGNORE would also pass over a NOT NULL that is broken, and DEFAULT VALUES takes no
        # ON CONFLICT: a row without any value has nothing to conflict by but what the table makes.
        skip = " ON CONFLICT DO NOTHING" if ignore and width else ""
        return Statement(
            "insert",
            f"INSERT INTO {table.sql} {given}{skip} RETURNING {table.id.sql}",
            tuple(value for row in rows for value in row),
        )

    def inserted(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Steps[list[Any]]:
        """Write rows and learn their ids."""
        return by_returning(table, columns, rows, ignore=ignore)

    def rows_at_once(self, table: Table, columns: Sequence[BoundColumn], *, ignore: bool) -> int:
        """As many as there may be parameters."""
        if not columns or (ignore and table.id not in columns):
            return 1  # from several rows, nothing in the answer would tell which were ignored
        return _MOST_PARAMETERS // len(columns)

    def create_table(self, spec: InboxSpec) -> list[str]:
        """DDL for a table."""
        return ddl.create_table(spec)

    def indexes(self, spec: InboxSpec) -> list[Index]:
        """DDL for its indexes."""
        return ddl.indexes(spec)

    def finished_index(self, spec: InboxSpec) -> Index:
        """DDL for the index of finished rows."""
        return ddl.finished_index(spec)
