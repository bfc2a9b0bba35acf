"""Which rows of a table a question of an operator is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.spec import Role

from .every_group import Others
from .statement import Answer, Statement, Steps
from .table import BoundColumn, Table

__all__ = ["Scope", "Values", "asked", "by_lease", "free", "unfinished"]


class Values:
    """A statement's values, given their placeholders, cast to their columns' types, as its text is
    made."""

    def __init__(self) -> None:
        self._given: list[Any] = []

    @property
    def given(self) -> tuple[Any, ...]:
        """All of them, in order."""
        return tuple(self._given)

    def add(self, value: Any, column: BoundColumn) -> str:
        """Give one more, a driver value; returns its placeholder."""
        self._given.append(value)
        cast = column.info.cast
        return f"${len(self._given)}" + (f"::{cast}" if cast else "")

    def add_all(self, values: Sequence[Any], column: BoundColumn) -> str:
        """Give more; returns their placeholders, separated by commas."""
        return ", ".join(self.add(value, column) for value in values)


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows of one queue, or of one dead letter; of neither field: of the whole table."""

    group: str | None = None
    """Of this group alone."""
    shape: GroupShape | None = None
    """Of every group that is called so."""
    others: Others | None = None
    """Of every group but these."""

    def conditions(self, table: Table, values: Values) -> Iterator[str]:
        """What a row `q` has to be. Databases compare text loosely: `holds` has the last word."""
        if self.group is not None:
            group = table.get(Role.GROUP)
            yield f"q.{group.sql} = {values.add(group.encode(self.group), group)}"
        if self.shape is not None:
            yield _has_shape(table, self.shape, values)
        if self.others is not None:
            group = table.get(Role.GROUP)
            yield f"q.{group.sql} IS NOT NULL"
            if self.others.groups:
                names = [group.encode(name) for name in self.others.groups]
                yield f"q.{group.sql} NOT IN ({values.add_all(names, group)})"
            if self.others.shape is not None:
                yield f"NOT {_has_shape(table, self.others.shape, values)}"

    def holds(self, group: str | None) -> bool:
        """Whether a row of this group, as Python reads it, is of the scope."""
        if self.group is not None:
            return group == self.group
        if self.shape is not None:
            return group is not None and self.shape.fits(group)
        return True


def _has_shape(table: Table, shape: GroupShape, values: Values) -> str:
    group = table.get(Role.GROUP)
    name = f"q.{group.sql}"
    length = "length" if table.dialect.name == "sqlite" else "char_length"
    conditions = [f"{length}({name}) >= {len(shape.prefix) + len(shape.suffix)}"]
    if shape.prefix:
        start = f"substr({name}, 1, {len(shape.prefix)})"
        conditions.append(f"{start} = {values.add(group.encode(shape.prefix), group)}")
    if shape.suffix:
        end = f"substr({name}, {length}({name}) - {len(shape.suffix) - 1})"
        conditions.append(f"{end} = {values.add(group.encode(shape.suffix), group)}")
    return f"({' AND '.join(conditions)})"


def unfinished(table: Table) -> Iterator[str]:
    """That row `q` is not done with."""
    processed = table.find(Role.PROCESSED_AT)
    if processed is not None:
        yield f"q.{processed.sql} IS NULL"


def asked(table: Table, question: Statement) -> Steps[Answer]:
    """Send a question about a table that may be long; once in a transaction."""
    if table.dialect.by_indexes is not None:
        yield table.dialect.by_indexes
    return (yield question)


def by_lease(table: Table) -> list[str]:
    """All rows `q`, in parts: the recommended indexes have rows with and without a lease apart, so that
    none serves for both."""
    lease = table.find(Role.LOCKED_UNTIL)
    return [""] if lease is None else [f"q.{lease.sql} IS {kind}" for kind in ("NULL", "NOT NULL")]


def free(table: Table, now: Any, values: Values) -> Iterator[str]:
    """That no lease in force is on row `q`."""
    lease = table.find(Role.LOCKED_UNTIL)
    if lease is not None:
        yield f"(q.{lease.sql} IS NULL OR q.{lease.sql} <= {values.add(now, lease)})"
