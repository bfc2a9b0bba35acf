"""Recommended tables on SQLite."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.ddl import (
    Index,
    claim_keys,
    claim_purpose,
    finished_keys,
    finished_purpose,
    lease_purpose,
    not_null,
)

from . import names

__all__ = ["create_table", "finished_index", "indexes"]

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
    return [f"CREATE TABLE {table} (\n    {lines}\n)", *(index.text for index in indexes(spec))]


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


def indexes(spec: InboxSpec) -> list[Index]:
    """Rows that wait, in claim order; and rows in work by the end of their leases, so that no claim
    walks over them."""
    keys = [column.name for _role, column in claim_keys(spec)]
    processed = spec.processed_at
    unfinished = f"{names.quote(processed.name)} IS NULL" if processed is not None else ""
    if spec.locked_until is None:
        return [_index(spec, "_queue", keys, unfinished)]
    lease = spec.locked_until.name
    # A FIFO head is the head also while it is in work: its index has the leased rows too.
    free = "" if spec.fifo else f"{names.quote(lease)} IS NULL"
    group = [spec.group.name] if spec.group is not None else []
    where = " AND ".join(condition for condition in (unfinished, free) if condition)
    return [
        _index(spec, "_queue", keys, where),
        _index(spec, "_lease", [*group, lease], f"{names.quote(lease)} IS NOT NULL"),
    ]


def finished_index(spec: InboxSpec) -> Index:
    """Finished rows by the time when they were, for those who delete them."""
    keys = finished_keys(spec)
    return _index(spec, "_finished", keys, f"{names.quote(keys[0])} IS NOT NULL")


def _index(spec: InboxSpec, suffix: str, keys: list[str], where: str) -> Index:
    name = names.table(spec.table + suffix, spec.schema)
    columns = ", ".join(map(names.quote, keys))
    text = f"CREATE INDEX {name} ON {names.quote(spec.table)} ({columns})"
    purpose = _purpose(spec, suffix)
    return Index(purpose, tuple(keys), f"{text} WHERE {where}" if where else text)


def _purpose(spec: InboxSpec, suffix: str) -> str:
    if suffix == "_finished":
        return finished_purpose()
    return lease_purpose() if suffix == "_lease" else claim_purpose(spec)
