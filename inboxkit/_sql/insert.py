"""New rows: few statements, ids in the order of the rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from inboxkit._core.rows import NewRow
from inboxkit._core.spec import InboxSpec, Role
from inboxkit.errors import EncodeError

from .dialect import Dialect
from .info import TableInfo
from .statement import Reading, Script, Statement, Steps
from .table import BoundColumn, Table, bind

__all__ = ["Insert", "OnConflict", "by_returning", "insert", "insert_statements"]

OnConflict: TypeAlias = Literal["error", "ignore"]


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows that go into one statement."""

    table: Table
    columns: Sequence[BoundColumn]
    rows: Sequence[Sequence[Any]]
    """Driver values."""
    ignore: bool
    """Leave out rows that are there."""

    @property
    def count(self) -> int:
        """How many rows it writes."""
        return len(self.rows)

    @property
    def statement(self) -> Statement:
        """The statement."""
        return self.table.dialect.insert(self.table, self.columns, self.rows, ignore=self.ignore)

    def steps(self) -> Steps[list[Any]]:
        """Write them; returns the ids in the order of the rows, None for one that was ignored."""
        dialect = self.table.dialect
        ids = yield from dialect.inserted(self.table, self.columns, self.rows, ignore=self.ignore)
        return [None if id is None else self.table.id.decode(id) for id in ids]


def by_returning(
    table: Table, columns: Sequence[BoundColumn], rows: Sequence[Sequence[Any]], *, ignore: bool
) -> Steps[list[Any]]:
    """`Dialect.inserted` where a statement answers the ids of the rows that it wrote, in order."""
    answer = yield table.dialect.insert(table, columns, rows, ignore=ignore)
    found = [row[0] for row in answer.rows]
    if not ignore or table.id not in columns:
        return _padded(found, len(rows))
    at = columns.index(table.id)
    return _told_by_id([row[at] for row in rows], found)


def _padded(found: list[Any], count: int) -> list[Any]:
    """One row was sent, or none may be ignored: what is missing is the one that was."""
    return [*found, *[None] * (count - len(found))]


def _told_by_id(given: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """The first row of an id is the one that was written, where the caller gave it twice."""
    left = set(found)
    ids: list[Any] = []
    for id in given:
        ids.append(id if id in left else None)
        left.discard(id)
    return ids


def insert(
    dialect: Dialect,
    spec: InboxSpec,
    info: TableInfo | None,
    rows: Sequence[NewRow],
    *,
    on_conflict: OnConflict,
    now: datetime | None,
) -> Script[list[Any]]:
    """The script that writes rows and returns their ids, in order; None for an ignored one.

    Args:
        dialect: The database's.
        spec: The rows' table.
        info: What the database says of it, or None.
        rows: All of this table.
        on_conflict: ``"ignore"``: skip rows that a constraint refuses.
        now: What an absent due time becomes; None: NULL.

    Raises:
        EncodeError: A value does not fit its column; nothing was sent.
    """
    inserts = insert_statements(dialect, spec, info, rows, on_conflict=on_conflict, now=now)

    def steps(_reading: Reading) -> Steps[list[Any]]:
        ids: list[Any] = []
        for one in inserts:
            ids += yield from one.steps()
        return ids

    return Script("insert", steps, dialect.lone_write if len(inserts) == 1 else "write")


def insert_statements(
    dialect: Dialect,
    spec: InboxSpec,
    info: TableInfo | None,
    rows: Sequence[NewRow],
    *,
    on_conflict: OnConflict,
    now: datetime | None,
) -> list[Insert]:
    """The statements that write rows; see `insert`."""
    table = bind(dialect, spec, info)
    encoder = _Encoder(table, now)
    encoded = [encoder.encode(row) for row in rows]
    inserts: list[Insert] = []
    # Neighbours with the same columns share a statement. Rows further apart do not: the database
    # gives ids in the order of the statements, and the ids are the order of the claims.
    for names, run in itertools.groupby(encoded, key=tuple):
        columns = [column for column in table.columns if column.name in names]
        values = [[row[column.name] for column in columns] for row in run]
        ignore = on_conflict == "ignore"
        size = dialect.rows_at_once(table, columns, ignore=ignore)
        for chunk in _chunks(values, size, dialect.bytes_at_once):
            inserts.append(Insert(table, columns, chunk, ignore))
    return inserts


def _chunks(rows: list[list[Any]], size: int, most: int | None) -> Iterator[list[list[Any]]]:
    chunk: list[list[Any]] = []
    total = 0
    for row in rows:
        length = 0 if most is None else sum(len(v) for v in row if isinstance(v, str | bytes))
        if chunk and (len(chunk) == size or (most is not None and total + length > most)):
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += length
    if chunk:
        yield chunk


class _Encoder:
    """Encodes rows of one table."""

    def __init__(self, table: Table, now: datetime | None) -> None:
        self._table = table
        self._columns = {column.name: column for column in table.columns}
        due = table.find(Role.RETRY_AFTER)
        self._due = due if due is not None and not due.column.generated else None
        self._now = None if self._due is None or now is None else self._due.encode(now)

    def encode(self, row: NewRow) -> dict[str, Any]:
        """A row's driver values by column name, in the description's order."""
        values = row.values
        if not values.keys() <= self._columns.keys():
            raise self._not_described(values)
        try:
            encoded = {
                name: column.encode(values[name])
                for name, column in self._columns.items()
                if name in values
            }
        except EncodeError as error:
            error.queue, error.id = self._place(values)
            raise
        if self._due is not None and encoded.get(self._due.name) is None:
            return self._with_due(encoded, self._due)
        return encoded

    def _place(self, values: Mapping[str, Any]) -> tuple[str, Any]:
        """Group and id, as far as they are given."""
        spec = self._table.spec
        group = None if spec.group is None else values.get(spec.group.name)
        return group if isinstance(group, str) else "", values.get(spec.id.name)

    def _with_due(self, encoded: dict[str, Any], due: BoundColumn) -> dict[str, Any]:
        """Due now: by our clock; else as NULL, else by the column's own default."""
        if self._now is not None:
            encoded[due.name] = self._now
        elif not due.info.nullable and due.info.has_default:
            encoded.pop(due.name, None)
        return encoded

    def _not_described(self, values: Mapping[str, Any]) -> EncodeError:
        name = next(name for name in values if name not in self._columns)
        table = self._table.spec.name
        return EncodeError(
            f"table {table!r} describes no column {name!r}; it has {sorted(self._columns)}",
            table=table,
            where=name,
        )
