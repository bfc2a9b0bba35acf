"""PostgreSQL as a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.convert import Converter
from inboxkit._sql.ddl import Index
from inboxkit._sql.dialect import DialectName
from inboxkit._sql.info import ColumnInfo, TableInfo
from inboxkit._sql.insert import by_returning
from inboxkit._sql.statement import Script, Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table

from . import ddl, describe, names, values
from .advisory import PostgresAdvisory
from .lease import PostgresLease
from .row_lock import PostgresRowLock

__all__ = ["Postgres"]

_MOST_PARAMETERS = 32767
"""What asyncpg counts to; the protocol has twice as many."""
_MOST_ROWS = 10_000
"""In one unnest: no limit asks for it, but the server holds a statement's arrays in memory."""


class Postgres:
    """SQL for PostgreSQL."""

    name: DialectName = "postgres"
    lone_write: Transaction = "none"
    bytes_at_once: int | None = None
    lock_rows = " FOR UPDATE OF q SKIP LOCKED"
    keep_ids = "OVERRIDING SYSTEM VALUE "
    by_indexes: Statement | None = Statement(
        # The planner has it that groups and due times are independent: it would read the whole table.
        # And a plan that does not know the group takes it for one of many, or for all.
        "by indexes",
        "SELECT set_config('enable_seqscan', 'off', true), "
        "set_config('enable_bitmapscan', 'off', true), "
        "set_config('plan_cache_mode', 'force_custom_plan', true)",
    )

    def by_id(self, table: Table) -> str:  # noqa: ARG002
        """None is needed."""
        return ""

    def unsorted(self, table: Table, wanted: str, where: str) -> str:
        """OFFSET 0 keeps the order out of it."""
        return f"SELECT {wanted} FROM (SELECT {wanted} FROM {table.sql} AS q{where} OFFSET 0) AS q"

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

    def lease(self, table: Table, *, group: str | None, cap: int | None) -> PostgresLease:
        """Statements of the lease form."""
        return PostgresLease(table, group=group, cap=cap)

    def advisory(self, table: Table, *, group: str | None, cap: int | None) -> PostgresAdvisory:
        """Statements of the advisory lock form."""
        return PostgresAdvisory(table, group=group, cap=cap)

    def row_lock(self, table: Table, *, group: str | None) -> PostgresRowLock:
        """Statements of the row lock form."""
        return PostgresRowLock(table, group=group)

    def insert(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Statement:
        """Write rows: an array for each column, or a VALUES list where that cannot be."""
        text = f"INSERT INTO {table.sql} "
        given: tuple[Any, ...]
        if not columns:
            text, given = f"{text}DEFAULT VALUES", ()
        else:
            text += f"({', '.join(column.sql for column in columns)}) "
            if len(rows) > 1 and _fits_arrays(columns):
                arrays = ", ".join(f"${n}::{one.info.cast}[]" for n, one in enumerate(columns, 1))
                # The rows are inserted, and answered, in the arrays' order.
                text += f"SELECT * FROM unnest({arrays})"
                given = tuple(map(list, zip(*rows, strict=True)))
            else:
                text += f"VALUES {_lines(columns, len(rows))}"
                given = tuple(value for row in rows for value in row)
        skip = " ON CONFLICT DO NOTHING" if ignore else ""
        return Statement("insert", f"{text}{skip} RETURNING {table.id.sql}", given)

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
        """As many as memory and parameters allow."""
        if not columns or (ignore and table.id not in columns):
            return 1  # from several rows, nothing in the answer would tell which were ignored
        return _MOST_ROWS if _fits_arrays(columns) else _MOST_PARAMETERS // len(columns)

    def create_table(self, spec: InboxSpec) -> list[str]:
        """DDL for a table."""
        return ddl.create_table(spec)

    def indexes(self, spec: InboxSpec) -> list[Index]:
        """DDL for its indexes."""
        return ddl.indexes(spec)

    def finished_index(self, spec: InboxSpec) -> Index:
        """DDL for the index of finished rows."""
        return ddl.finished_index(spec)


def _fits_arrays(columns: Sequence[BoundColumn]) -> bool:
    """Whether every type is known, and none is an array, which unnest would take apart."""
    return all(column.info.cast and not column.info.cast.endswith("[]") for column in columns)


def _lines(columns: Sequence[BoundColumn], count: int) -> str:
    casts = [f"::{column.info.cast}" if column.info.cast else "" for column in columns]
    width = len(columns)
    return ", ".join(
        f"({', '.join(f'${start + n + 1}{cast}' for n, cast in enumerate(casts))})"
        for start in range(0, width * count, width)
    )
