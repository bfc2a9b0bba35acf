"""Recommended tables on MariaDB and MySQL."""

from __future__ import annotations

import datetime as dt
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

_EXACT: Final = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
"""The servers' own choice takes 'A' for 'a'."""
_TYPES: Final[dict[Any, str]] = {
    int: "bigint",
    str: f"longtext {_EXACT}",
    UUID: "char(36) CHARACTER SET ascii COLLATE ascii_bin",
    bytes: "longblob",
    datetime: "datetime(6)",
    bool: "boolean",
    float: "double",
    Decimal: "decimal(65,30)",
    dict: "json",
    list: "json",
    dt.date: "date",
    dt.time: "time(6)",
    dt.timedelta: "time(6)",
}
_KEY: Final = f"varchar(255) {_EXACT}"
"""A text that an index may hold whole."""
_KEYS: Final = frozenset({Role.ID, Role.GROUP, Role.PARTITION_KEY})


def create_table(spec: InboxSpec) -> list[str]:
    """The table, and the indexes that its claims walk."""
    table = names.table(spec.table, spec.schema)
    lines = ",\n    ".join(_column(role, column) for role, column in spec.roles())
    made = f"CREATE TABLE {table} (\n    {lines}\n) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4"
    return [made, *(index.text for index in indexes(spec))]


def _column(role: Role, column: Column) -> str:
    python = python_type(role, column)
    kind = _TYPES.get(getattr(python, "__origin__", python))
    if role in (Role.ATTEMPT, Role.PRIORITY):
        kind = "int"
    if role in _KEYS and python is not None and issubclass(python, str):
        kind = _KEY
    elif role is Role.PARTITION_KEY and python in (None, bytes):
        kind = _KEY if python is None else "varbinary(255)"
    if kind is None:
        kind = {Role.ID: "bigint", Role.PAYLOAD: "longblob"}.get(role, f"longtext {_EXACT}")
    parts = [names.quote(column.name), kind, "NOT NULL" if not_null(role, column) else "NULL"]
    if role is Role.ID:
        if column.generated:
            parts.append("DEFAULT (uuid())" if python is UUID else "AUTO_INCREMENT")
        parts.append("PRIMARY KEY")
    elif role is Role.ATTEMPT:
        parts.append("DEFAULT 1")
    elif role is Role.RETRY_AFTER and column.generated:
        parts.append("DEFAULT (utc_timestamp(6))")
    return " ".join(parts)


def indexes(spec: InboxSpec) -> list[Index]:
    """Rows that wait, in claim order, apart from those in work and the finished ones, which have a
    value where these have NULL; and rows in work by the end of their leases."""
    keys = [column.name for _role, column in claim_keys(spec)]
    group = [spec.group.name] if spec.group is not None else []
    order = keys[len(group) :]
    if spec.processed_at is not None:
        group.append(spec.processed_at.name)
    if spec.locked_until is None:
        return [_index(spec, "_queue", group + order)]
    lease = [spec.locked_until.name]
    if not spec.fifo:
        return [_index(spec, "_queue", group + lease + order)]
    # A FIFO head is the head also while it is in work.
    return [
        _index(spec, "_queue", group + order),
        _index(spec, "_lease", group + lease),
    ]


def finished_index(spec: InboxSpec) -> Index:
    """Finished rows by the time when they were, for those who delete them."""
    return _index(spec, "_finished", finished_keys(spec))


def _index(spec: InboxSpec, suffix: str, keys: list[str]) -> Index:
    name = names.quote(names.shortened(spec.table, suffix))
    table, columns = names.table(spec.table, spec.schema), ", ".join(map(names.quote, keys))
    purpose = _purpose(spec, suffix)
    text = f"CREATE INDEX {name} ON {table} ({columns})"
    return Index(purpose, tuple(keys), text, f"INDEX {name} ({columns})")


def _purpose(spec: InboxSpec, suffix: str) -> str:
    if suffix == "_finished":
        return finished_purpose()
    return lease_purpose() if suffix == "_lease" else claim_purpose(spec)
