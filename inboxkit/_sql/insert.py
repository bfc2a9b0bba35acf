"""New rows: few statements, ids in the order of the rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from inboxkit._core.rows import NewRow
from inboxkit._core.spec import InboxSpec, Role
from inboxkit.errors import EncodeError

from .convert import MisfitError
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
        if self.table.id.converter.decode is None:
            return ids
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
    table = _bound(dialect, spec, info)
    encoder = _Encoder(table, now)
    inserts: list[Insert] = []
    # Neighbours with the same columns share a statement. Rows further apart do not: the database
    # gives ids in the order of the statements, and the ids are the order of the claims.
    for names, values in encoder.runs(rows):
        columns = [column for column in table.columns if column.name in names]
        ignore = on_conflict == "ignore"
        size = dialect.rows_at_once(table, columns, ignore=ignore)
        for chunk in _chunks(values, size, dialect.bytes_at_once):
            inserts.append(Insert(table, columns, chunk, ignore))
    return inserts


_MOST_BOUND: Final = 256
_tables: Final[dict[tuple[str, int, int], Table]] = {}
"""Tables by dialect, description and what the database said, each by identity; they keep both alive."""


def _bound(dialect: Dialect, spec: InboxSpec, info: TableInfo | None) -> Table:
    """What `bind` makes, made once."""
    key = (dialect.name, id(spec), id(info))
    table = _tables.get(key)
    if table is None:
        if len(_tables) >= _MOST_BOUND:
            _tables.clear()
        table = _tables[key] = bind(dialect, spec, info)
    return table


def _chunks(
    rows: Sequence[Sequence[Any]], size: int, most: int | None
) -> Iterator[Sequence[Sequence[Any]]]:
    if most is None:
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
        return
    chunk: list[Sequence[Any]] = []
    total = 0
    for row in rows:
        length = sum(len(v) for v in row if isinstance(v, str | bytes))
        if chunk and (len(chunk) == size or total + length > most):
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += length
    if chunk:
        yield chunk


_Run: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Names of columns, in the description's order, and rows of their driver values."""


class _Encoder:
    """Encodes rows of one table."""

    def __init__(self, table: Table, now: datetime | None) -> None:
        self._table = table
        self._columns = {column.name: column for column in table.columns}
        due = table.find(Role.RETRY_AFTER)
        self._due = due if due is not None and not due.column.generated else None
        self._now = None if self._due is None or now is None else self._due.encode(now)

    def runs(self, rows: Sequence[NewRow]) -> Iterator[_Run]:
        """Neighbours with the same columns together, encoded.

        Raises:
            EncodeError: Of the first row with a value that does not fit.
        """
        given = rows[0].values.keys() if rows else ()
        if rows and all(row.values.keys() == given for row in rows):
            run = self._by_columns(rows)
            if run is not None:
                yield run
                return
        encoded = [self.encode(row) for row in rows]
        for names, run_of in itertools.groupby(encoded, key=tuple):
            yield names, [tuple(row.values()) for row in run_of]

    def _by_columns(self, rows: Sequence[NewRow]) -> _Run | None:
        """Rows of the same columns, column by column; None where each has to be looked at."""
        given, due = rows[0].values.keys(), self._due
        if not given <= self._columns.keys():
            return None
        names: list[str] = []
        columns: list[list[Any]] = []
        for name, column in self._columns.items():
            if name in given:
                encode = column.converter.encode
                values = [row.values[name] for row in rows]
                try:
                    values = [None if value is None else encode(value) for value in values]
                except MisfitError:
                    return None  # which is said of the first such row
            elif column is due and self._now is not None:
                values = [None] * len(rows)
            else:
                continue
            if due is not None and column is due and None in values:
                if self._now is None and not due.info.nullable and due.info.has_default:
                    return None
                values = [self._now if value is None else value for value in values]
            names.append(name)
            columns.append(values)
        return names, list(zip(*columns, strict=True)) if columns else [()] * len(rows)

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
            encoded = {name: encoded[name] for name in self._columns if name in encoded}
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
