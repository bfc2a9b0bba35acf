"""Rows written by the service itself, on its own connection and inside its own transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ._core.rows import NewRow
from ._core.spec import InboxSpec
from ._db.blocks import Block
from ._db.foreign import foreign_of
from ._db.placeholders import parse
from ._db.scripts import READ_CLOCK
from ._notifying import tell
from ._sql.dialect import get_dialect
from ._sql.insert import insert
from ._sql.insert import insert_statements as _insert_statements
from ._sql.postgres.notify import channel_of
from ._sql.statement import Statement
from .abc import DialectName, ServerClock
from .clock import SystemClock
from .database import Connection, Database, Transaction
from .table import Inbox, new_row

__all__ = ["Connectable", "OnConflict", "insert_rows", "insert_statements"]

OnConflict: TypeAlias = Literal["error", "ignore"]
Connectable: TypeAlias = Any
"""inboxkit's `Connection` or `Transaction`; a connection of asyncpg, aiosqlite, asyncmy or psycopg
(async); or SQLAlchemy's `AsyncConnection` or `AsyncSession`."""


async def insert_rows(
    connection: Connectable, /, *rows: Inbox | NewRow, on_conflict: OnConflict = "error"
) -> list[Any]:
    """Write rows, many in one statement, on the caller's own connection inside the caller's transaction.

    On inboxkit's own connections the queues' subscriptions in this process are woken after the commit,
    a `retry_after` of None is the clock's now, and every value is checked against its column before
    anything is sent. On foreign connections nothing is woken (the rows are found by the next poll)
    and a `retry_after` of None is written as NULL, which is due now.

    Args:
        connection: inboxkit's `Connection` or `Transaction`, one of asyncpg, aiosqlite, asyncmy or
            psycopg, or SQLAlchemy's `AsyncConnection` or `AsyncSession` (its default bind's).
        rows: Made by `Row.of(message, …)`, `Row(…)` or `InboxSpec.of(message, …)`; of any tables.
        on_conflict: ``"ignore"`` leaves out rows that a constraint refuses.

    Returns:
        The rows' ids, in order; None for a row that was left out.

    Raises:
        EncodeError: A value does not fit its column; nothing was sent.
        SchemaError: The table or a column is missing, or its type cannot hold its role.
        ConstraintError: A constraint refused a row; nothing was written.
        TypeError: `connection` is none that this knows, or a row is none.
    """
    if on_conflict not in ("error", "ignore"):
        raise TypeError(f"on_conflict must be 'error' or 'ignore', not {on_conflict!r}")
    if isinstance(connection, Database):
        raise TypeError(
            "insert_rows() takes a connection or transaction of the Database: "
            "async with db.transaction() as tx: await insert_rows(tx, …)"
        )
    if isinstance(connection, Block):
        raise TypeError(f"insert_rows() takes what {connection!r} gives inside; {connection.cure}")
    new = [new_row(row) for row in rows]
    ids: list[Any] = []
    for spec, run in _runs(new):
        if isinstance(connection, Connection):
            ids += await _insert_on_own(connection, spec, run, on_conflict)
        else:
            foreign = await foreign_of(connection)
            dialect = get_dialect(foreign.dialect)
            script = insert(dialect, spec, None, run, on_conflict=on_conflict, now=None)
            written: list[Any] = await foreign.run(script, SystemClock())
            ids += written
    return ids


def insert_statements(
    dialect: DialectName, *rows: Inbox | NewRow, on_conflict: OnConflict = "error"
) -> list[Statement]:
    """The statements of `insert_rows` as text and parameters, for any other driver, sync ones too.

    Args:
        dialect: Whose SQL.
        rows: As for `insert_rows`.
        on_conflict: As for `insert_rows`.

    Returns:
        Statements in order, with the database's own placeholders, ``$1`` on PostgreSQL (psycopg:
        RawCursor) and ``?1`` on SQLite; each answers the ids of its rows. On MariaDB and MySQL ``%s``,
        and a cursor's ``lastrowid`` is the first of the ids where the table numbers its rows.
    """
    statements: list[Statement] = []
    for spec, run in _runs([new_row(row) for row in rows]):
        made = _insert_statements(
            get_dialect(dialect), spec, None, run, on_conflict=on_conflict, now=None
        )
        statements += [one.statement for one in made]
    return [replace(one, text=_native(one.text, dialect)) for one in statements]


def _native(text: str, dialect: DialectName) -> str:
    """With the placeholders that the database's drivers take."""
    parsed = parse(text, dialect)
    if dialect != "mysql":
        return parsed.text
    return "%s".join(piece.replace("%", "%%") for piece in parsed.pieces)


def _runs(rows: list[NewRow]) -> Iterable[tuple[InboxSpec, list[NewRow]]]:
    """Neighbours of one table together: rows get their ids in the order in which they were given."""
    for _, run in itertools.groupby(rows, key=lambda row: id(row.spec)):
        group = list(run)
        yield group[0].spec, group


async def _insert_on_own(
    connection: Connection, spec: InboxSpec, rows: list[NewRow], on_conflict: OnConflict
) -> list[Any]:
    database = connection.database
    info = await database.describe(spec, connection=connection)
    channel = channel_of(info) if database.notifies else None
    script = insert(
        get_dialect(database.dialect),
        spec,
        info,
        rows,
        on_conflict=on_conflict,
        now=await _now(connection, spec, rows),
    )
    ids: list[Any] = await connection.run(script)
    places = _places(spec, rows)
    if channel is not None:
        await tell(connection, channel, [group for group, _ in places])

    def wake() -> None:
        for group, due in places:
            database.wakes.notify(spec.name, group, due)

    if isinstance(connection, Transaction):
        connection.after_commit(wake)
    else:
        wake()
    return ids


async def _now(connection: Connection, spec: InboxSpec, rows: list[NewRow]) -> datetime:
    due = spec.retry_after
    has_absent = due is not None and any(row.values.get(due.name) is None for row in rows)
    if has_absent and isinstance(connection.clock, ServerClock):
        # By what the host makes of it, a row might be due a moment after the claim that it wakes.
        return (await connection.run(READ_CLOCK)).now
    return connection.clock.now()


def _places(spec: InboxSpec, rows: list[NewRow]) -> Iterable[tuple[str | None, datetime | None]]:
    """Each group and due time that rows were given, once, in order."""
    group = "" if spec.group is None else spec.group.name
    due = "" if spec.retry_after is None else spec.retry_after.name
    return dict.fromkeys((row.values.get(group), row.values.get(due)) for row in rows)
