"""Connections that the service opened itself, by asyncpg, aiosqlite or psycopg.

Statements run on them as they are: in whatever transaction is open, unshielded, errors as the driver
raises them. Nothing is imported that the caller has not imported already.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeVar

from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock

from .placeholders import parse
from .scripts import step_through

__all__ = ["dialect_of_foreign", "run_on_foreign"]

T = TypeVar("T")

_KNOWN: dict[tuple[str, str], tuple[str, Literal["postgres", "sqlite"]]] = {
    ("asyncpg", "Connection"): ("asyncpg", "postgres"),
    ("asyncpg", "PoolConnectionProxy"): ("asyncpg", "postgres"),
    ("aiosqlite", "Connection"): ("aiosqlite", "sqlite"),
    ("psycopg", "AsyncConnection"): ("psycopg", "postgres"),
}
"""By package and class. A pool is none of them: it would insert on a connection of its own choice,
outside of the caller's transaction."""


def _find(connection: Any) -> tuple[str, Literal["postgres", "sqlite"]]:
    for kind in type(connection).__mro__:
        found = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found
    raise TypeError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is no connection that rows can be "
        "inserted on: give inboxkit's Connection or Transaction, or one of asyncpg, aiosqlite or psycopg "
        "(async); for other drivers run the statements of insert_statements()"
    )


def dialect_of_foreign(connection: Any) -> Literal["postgres", "sqlite"]:
    """Which SQL a foreign connection speaks.

    Raises:
        TypeError: It is none that is known.
    """
    return _find(connection)[1]


async def run_on_foreign(connection: Any, script: Script[T], clock: Clock) -> T:
    """Run a script's statements on a foreign connection, in the transaction that is open there, if any."""
    driver, _ = _find(connection)
    execute = {"asyncpg": _asyncpg, "aiosqlite": _aiosqlite, "psycopg": _psycopg}[driver]
    return await step_through(script, clock, partial(execute, connection))


async def _asyncpg(connection: Any, statement: Statement) -> Answer:
    rows = await connection.fetch(statement.text, *statement.parameters)
    return Answer(rows=[tuple(row) for row in rows], rowcount=len(rows))


async def _aiosqlite(connection: Any, statement: Statement) -> Answer:
    async with connection.execute(
        parse(statement.text, "sqlite").text, statement.parameters
    ) as cursor:
        rows = await cursor.fetchall()
    # The service may have set a row_factory of its own: sqlite3.Row, or a dict.
    plain = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]
    return Answer(rows=plain, rowcount=len(plain))


async def _psycopg(connection: Any, statement: Statement) -> Answer:
    from psycopg import AsyncRawCursor  # noqa: PLC0415 - installed, since the connection is of it
    from psycopg.rows import tuple_row  # noqa: PLC0415

    async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement.text.encode(), statement.parameters)
        rows = await cursor.fetchall() if cursor.description else []
    return Answer(rows=rows, rowcount=cursor.rowcount)
