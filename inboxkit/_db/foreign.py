"""Connections that the service opened itself: by asyncpg, aiosqlite, psycopg, asyncmy or SQLAlchemy.

Statements run on them as they are: in whatever transaction is open, unshielded, errors as the driver
raises them. Nothing is imported that the caller has not imported already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock, DialectName
from inboxkit.errors import ConstraintError

from .foreign_asyncmy import UTC_ZONE, ZONE_BACK, through_asyncmy
from .foreign_sqlalchemy import connection_of, is_sqlalchemy, through_sqlalchemy
from .placeholders import parse
from .scripts import step_through

__all__ = ["Foreign", "foreign_of"]

T = TypeVar("T")
Execute: TypeAlias = Callable[[Any, Statement], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Foreign:
    """One such connection, known."""

    dialect: DialectName
    """Which SQL it speaks."""
    execute: Callable[[Statement], Awaitable[Answer]]

    async def run(self, script: Script[T], clock: Clock) -> T:
        """Run a script's statements in the transaction that is open there, if any."""
        if self.dialect != "mysql":
            return await step_through(script, clock, self.execute)
        await self.execute(UTC_ZONE)
        try:
            return await step_through(script, clock, self.execute)
        except ConstraintError as error:
            raise error.__cause__ or error from None
        finally:
            await self.execute(ZONE_BACK)


async def foreign_of(connection: Any) -> Foreign:
    """Know a foreign connection.

    Raises:
        TypeError: It is none that is known.
    """
    if not is_sqlalchemy(connection):
        dialect, execute = _find(connection)
        return Foreign(dialect, partial(execute, connection))
    outer, driver = await connection_of(connection)
    dialect, execute = _find(driver)
    if execute is _asyncpg:
        # SQLAlchemy begins asyncpg's transaction with the first statement that goes through it.
        return Foreign(dialect, partial(through_sqlalchemy, outer))
    return Foreign(dialect, partial(execute, driver))


async def _asyncpg(connection: Any, statement: Statement) -> Answer:
    text = statement.text
    if any(isinstance(value, str) for value in statement.parameters):
        text = _with_json_as_text(text, (await connection.prepare(text)).get_parameters())
    rows = await connection.fetch(text, *statement.parameters)
    return Answer(rows=[tuple(row) for row in rows], rowcount=len(rows))


def _with_json_as_text(text: str, kinds: Sequence[Any]) -> str:
    """The service may have set a codec for JSON, which would take our text for a value of its own."""
    casts = {
        number: f"::text::{kind.name}"
        for number, kind in enumerate(kinds, 1)
        if kind.name in ("json", "jsonb") and kind.schema == "pg_catalog"
    }
    if not casts:
        return text
    parsed = parse(text, "postgres")
    written = (
        f"${number}{casts.get(number, '')}{piece}"
        for number, piece in zip(parsed.numbers, parsed.pieces[1:], strict=True)
    )
    return parsed.pieces[0] + "".join(written)


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


_KNOWN: dict[tuple[str, str], tuple[DialectName, Execute]] = {
    ("asyncpg", "Connection"): ("postgres", _asyncpg),
    ("asyncpg", "PoolConnectionProxy"): ("postgres", _asyncpg),
    ("aiosqlite", "Connection"): ("sqlite", _aiosqlite),
    ("psycopg", "AsyncConnection"): ("postgres", _psycopg),
    ("asyncmy", "Connection"): ("mysql", through_asyncmy),
}
"""By package and class. A pool is none of them: it would insert on a connection of its own choice,
outside of the caller's transaction."""


def _find(connection: Any) -> tuple[DialectName, Execute]:
    for kind in type(connection).__mro__:
        found = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found
    raise TypeError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is no connection that rows can be "
        "inserted on: give inboxkit's Connection or Transaction, one of asyncpg, aiosqlite, asyncmy or "
        "psycopg (async), or SQLAlchemy's AsyncConnection or AsyncSession; for other drivers run the statements "
        "of insert_statements()"
    )
