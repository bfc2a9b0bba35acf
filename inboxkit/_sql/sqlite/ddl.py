"""Recommended tables on SQLite."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.ddl import claim_keys, not_null

from . import names

__all__ = ["create_table"]

_NOW: Final = "(strftime('%Y-%m-%dT%H:%M:%f+00:00'))"
_TYPES: Final[dict[Any, str]] = {
    int: "INTEGER",
    str: "TEXT",
    UUID: "TEXT",
    bytes: "BLOB",
    datetime: "TEXT",
    bool: "BOOLEAN",
    float: "REAL",
    Decimal: "TEXT",
    dict: "TEXT",
}


def create_table(spec: InboxSpec) -> list[str]:
    """The table, and the indexes that its claims walk."""
    table = names.table(spec.table, spec.schema)
    lines = ",\n    ".join(_column(role, column) for role, column in spec.roles())
    return [f"CREATE TABLE {table} (\n    {lines}\n)", *_indexes(spec)]


def _column(role: Role, column: Column) -> str:
    python = python_type(role, column)
    kind = _TYPES.get(getattr(python, "__origin__", python))
    if kind is None:
        kind = {Role.ID: "INTEGER", Role.PAYLOAD: "BLOB"}.get(role, "TEXT")
    parts = [names.quote(column.name), kind]
    if not_null(role, column):
        parts.append("NOT NULL")
    if role is Role.ID:
        # AUTOINCREMENT: without it the id of a deleted last row is given out again.
        parts.append("PRIMARY KEY AUTOINCREMENT" if column.generated else "PRIMARY KEY")
    elif role is Role.ATTEMPT:
        parts.append("DEFAULT 1")
    elif role is Role.RETRY_AFTER and column.generated:
        parts.append(f"DEFAULT {_NOW}")
    return " ".join(parts)


def _indexes(spec: InboxSpec) -> list[str]:
    keys = [names.quote(column.name) for _role, column in claim_keys(spec)]
    found = []
    if len(keys) > 1:
        where = f" WHERE {names.quote(spec.processed_at.name)} IS NULL" if spec.processed_at else ""
        found.append(_index(spec, "queue", ", ".join(keys), where))
    if spec.fifo and spec.group is not None and spec.locked_until is not None:
        # Is any row of the group in work? Asked at every claim and renewal.
        lease = names.quote(spec.locked_until.name)
        columns = f"{names.quote(spec.group.name)}, {lease}"
        found.append(_index(spec, "lease", columns, f" WHERE {lease} IS NOT NULL"))
    return found


def _index(spec: InboxSpec, suffix: str, columns: str, where: str) -> str:
    name = names.table(f"{spec.table}_{suffix}", spec.schema)
    return f"CREATE INDEX {name} ON {names.quote(spec.table)} ({columns}){where}"
