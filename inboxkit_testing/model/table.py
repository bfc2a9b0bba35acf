"""Rows in memory, and what holds them in work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from inboxkit._core.spec import InboxSpec, Role
from inboxkit.abc import Clock, Fence

__all__ = ["Hold", "ModelDatabase", "ModelRow", "ModelTable"]


@dataclass(eq=False)
class ModelRow:
    """A line of a table, by roles. A value that is a DecodeError stands for one that cannot be read."""

    id: Any
    group: Any = None
    priority: Any = None
    partition_key: Any = None
    retry_after: Any = None
    attempt: Any = None
    processed_at: Any = None
    locked_until: Any = None
    headers: Any = None
    payload: Any = None
    data: dict[str, Any] = field(default_factory=dict)
    """The service's own columns, by name."""

    @property
    def order(self) -> tuple[Any, ...]:
        """The claim order; NULL is first."""
        return *((key is not None, key) for key in (self.priority, self.retry_after)), self.id

    @property
    def number(self) -> int:
        """The attempt as it reads."""
        return self.attempt if isinstance(self.attempt, int) else 1

    @property
    def is_finished(self) -> bool:
        """It stays, and is nobody's work any more."""
        return self.processed_at is not None

    def is_due(self, now: datetime) -> bool:
        """Its time has come."""
        return self.retry_after is None or bool(self.retry_after <= now)

    def is_leased(self, now: datetime) -> bool:
        """A lease is in force, whoever wrote it."""
        return self.locked_until is not None and bool(self.locked_until > now)


class ModelTable:
    """A table's rows, in the order of their insertion."""

    def __init__(self, spec: InboxSpec) -> None:
        self.spec = spec
        self.rows: list[ModelRow] = []
        self._last_id = 0

    def insert(self, **columns: Any) -> Any:
        """Write a row, by column names, and return its id: given, or the next number."""
        self._last_id += 1
        row = ModelRow(self._last_id)
        self.write(row, **columns)
        self.rows.append(row)
        return row.id

    def write(self, row: ModelRow, **columns: Any) -> None:
        """Change a row as somebody else would."""
        for role, name in self._columns():
            if name not in columns:
                continue
            if role is Role.DATA:
                row.data[name] = columns[name]
            else:
                setattr(row, role.value, columns[name])

    def find(self, id: Any) -> ModelRow | None:
        """The row with this id."""
        return next((row for row in self.rows if row.id == id), None)

    def values(self, row: ModelRow) -> dict[str, Any]:
        """A row by the names of its columns."""
        return {
            name: row.data.get(name) if role is Role.DATA else getattr(row, role.value)
            for role, name in self._columns()
        }

    def _columns(self) -> Iterator[tuple[Role, str]]:
        return ((role, column.name) for role, column in self.spec.roles())


@dataclass(frozen=True)
class Hold:
    """A session that has a row locked (row lock), or its key (advisory lock)."""

    row: ModelRow
    key: str | None = None


class ModelDatabase:
    """Tables, and the sessions that hold rows.

    Args:
        clock: Read once by each verb.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tables: dict[str, ModelTable] = {}
        self.holds: dict[int, Hold] = {}
        self._last_hold = 0

    def create_table(self, spec: InboxSpec, name: str | None = None) -> ModelTable:
        """Make an empty table; with another name, one that dead letters go to."""
        made = self.tables[name or spec.name] = ModelTable(spec)
        return made

    def table(self, name: str) -> ModelTable:
        """A table that was made."""
        return self.tables[name]

    def hold(self, hold: Hold) -> int:
        """Give a row, or a key, to a session; returns the session's number."""
        self._last_hold += 1
        self.holds[self._last_hold] = hold
        return self._last_hold

    def crash(self, fence: Fence) -> None:
        """End the process that holds a row: its session's lock is free at once; a lease stays."""
        if fence.hold is not None:
            self.holds.pop(fence.hold, None)
