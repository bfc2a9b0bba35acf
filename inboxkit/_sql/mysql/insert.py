"""New rows on MariaDB and MySQL: where nothing answers the ids, they are told by the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import BoundColumn, Table
from inboxkit.errors import DatabaseError, DialectError, EncodeError

from .errors import DUPLICATE, TOO_LONG, is_numbered

__all__ = ["insert", "inserted"]


def insert(
    table: Table, columns: Sequence[BoundColumn], rows: Sequence[Sequence[Any]], *, ignore: bool
) -> Statement:
    """Write rows as one VALUES list.

    Args:
        table: Where to.
        columns: Those that are given.
        rows: Their values.
        ignore: Pass over duplicates. Not by INSERT IGNORE, which also passes over broken foreign keys
            and cuts what does not fit.
    """
    width = len(columns)
    lines = ", ".join(
        f"({', '.join(f'${start + n + 1}' for n in range(width))})"
        for start in range(0, max(width, 1) * len(rows), max(width, 1))
    )
    text = f"INSERT INTO {table.sql} ({', '.join(column.sql for column in columns)}) VALUES {lines}"
    if ignore:
        text += f" ON DUPLICATE KEY UPDATE {table.id.sql} = {table.id.sql}"
    answers = table.info.server == "mariadb" and not ignore
    if answers:
        text += f" RETURNING {table.id.sql}"
    given = tuple(value for row in rows for value in row)
    return Statement("insert", text, given, returns_rows=answers)


def inserted(
    table: Table, columns: Sequence[BoundColumn], rows: Sequence[Sequence[Any]], *, ignore: bool
) -> Steps[list[Any]]:
    """Write rows; returns their ids in order, None for a duplicate that was passed over."""
    try:
        return (yield from _together(table, columns, rows))
    except DatabaseError as error:
        if is_numbered(error, TOO_LONG):
            if len(rows) == 1:
                raise _too_long(table, columns, rows[0], error) from error
        elif not ignore or not is_numbered(error, DUPLICATE):
            raise
        elif len(rows) == 1:
            return [None]
    # A statement that fails is undone as a whole, and the transaction goes on.
    ids: list[Any] = []
    for row in rows:
        ids += yield from inserted(table, columns, [row], ignore=ignore)
    return ids


def _together(
    table: Table, columns: Sequence[BoundColumn], rows: Sequence[Sequence[Any]]
) -> Steps[list[Any]]:
    answer = yield insert(table, columns, rows, ignore=False)
    if table.info.server == "mariadb":
        return [row[0] for row in answer.rows]
    if table.id in columns:
        at = columns.index(table.id)
        return [row[at] for row in rows]
    # The server gives the rows of one VALUES list numbers side by side, whatever its lock mode.
    last = yield Statement("insert ids", "SELECT LAST_INSERT_ID(), @@auto_increment_increment")
    first, step = map(int, last.rows[0])
    if not first:
        raise DialectError(
            f"table {table.spec.name!r}: the database fills the id column {table.id.name!r} by other "
            "means than AUTO_INCREMENT, and MySQL does not tell what it filled in; give the ids, or "
            "make the column AUTO_INCREMENT; nothing was inserted"
        )
    return [first + n * step for n in range(len(rows))]


def _too_long(
    table: Table, columns: Sequence[BoundColumn], row: Sequence[Any], error: DatabaseError
) -> EncodeError:
    """A row that no statement can write, told by its longest value."""
    lengths = [len(value) if isinstance(value, str | bytes) else 0 for value in row]
    column = columns[max(range(len(row)), key=lengths.__getitem__)]
    return EncodeError(
        f"table {table.spec.name!r}, column {column.name!r}: a value of length {max(lengths)} makes the row "
        f"too long to be sent: {error}; make it smaller, or raise the server's max_allowed_packet",
        table=table.spec.name,
        where=column.name,
    )
