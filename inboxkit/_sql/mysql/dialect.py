"""MariaDB and MySQL as a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.convert import Converter
from inboxkit._sql.ddl import Index
from inboxkit._sql.dialect import DialectName
from inboxkit._sql.info import ColumnInfo, TableInfo
from inboxkit._sql.statement import Script, Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table

from . import ddl, describe, insert, names, values
from .advisory import MysqlAdvisory
from .hints import Hints
from .lease import MysqlLease
from .row_lock import MysqlRowLock

__all__ = ["Mysql"]

_MOST_VALUES = 10_000
"""In one statement: no limit asks for it, but the server parses and keeps it whole."""


class Mysql:
    """SQL for MariaDB and MySQL."""

    name: DialectName = "mysql"
    # Every write is two statements or more, or asks afterwards what it did.
    lone_write: Transaction = "write"
    bytes_at_once: int | None = 4_000_000
    """Of the 16 MB that max_allowed_packet is on older servers; escaped, a value may be twice as long."""

    lock_rows = " FOR UPDATE SKIP LOCKED"
    keep_ids = ""
    by_indexes: Statement | None = None

    def by_id(self, table: Table) -> str:
        """Else a small table is read, and locked, whole."""
        return Hints(table).by_id

    def unsorted(self, table: Table, wanted: str, where: str) -> str:
        """By a hint against the id's index."""
        hint = self.by_id(table).replace(" FORCE INDEX ", " IGNORE INDEX FOR ORDER BY ")
        return f"SELECT {wanted} FROM {table.sql} AS q{hint}{where}"

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
        """Encode an instant."""
        return values.instant(value)

    def describe(self, spec: InboxSpec) -> Script[TableInfo]:
        """Ask about a table."""
        return describe.describe(spec)

    def lease(self, table: Table, *, group: str | None, cap: int | None) -> MysqlLease:
        """Statements of the lease form."""
        return MysqlLease(table, group=group, cap=cap)

    def advisory(self, table: Table, *, group: str | None, cap: int | None) -> MysqlAdvisory:
        """Statements of the advisory lock form."""
        return MysqlAdvisory(table, group=group, cap=cap)

    def row_lock(self, table: Table, *, group: str | None) -> MysqlRowLock:
        """Statements of the row lock form."""
        return MysqlRowLock(table, group=group)

    def insert(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Statement:
        """Write rows as one VALUES list."""
        return insert.insert(table, columns, rows, ignore=ignore)

    def inserted(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Steps[list[Any]]:
        """Write rows and learn their ids."""
        return insert.inserted(table, columns, rows, ignore=ignore)

    def rows_at_once(
        self,
        table: Table,  # noqa: ARG002
        columns: Sequence[BoundColumn],
        *,
        ignore: bool,  # noqa: ARG002
    ) -> int:
        """So many that a statement stays of a size to be sent."""
        return max(_MOST_VALUES // max(len(columns), 1), 1)

    def create_table(self, spec: InboxSpec) -> list[str]:
        """DDL for a table."""
        return ddl.create_table(spec)

    def indexes(self, spec: InboxSpec) -> list[Index]:
        """DDL for its indexes."""
        return ddl.indexes(spec)

    def finished_index(self, spec: InboxSpec) -> Index:
        """DDL for the index of finished rows."""
        return ddl.finished_index(spec)
