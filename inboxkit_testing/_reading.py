"""Rows of a table as a test wants to see them."""

from __future__ import annotations

from typing import Any

from inboxkit import Database, Inbox, InboxSpec
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit._sql.table import bind
from inboxkit.table import row_from

__all__ = ["read_rows"]


async def read_rows(database: Database, table: type[Inbox] | InboxSpec) -> list[Any]:
    """All rows of a table, decoded, in the order of their ids.

    Returns:
        Instances of the class; for a description made by hand, mappings.
    """
    spec = table if isinstance(table, InboxSpec) else table.spec
    bound = bind(get_dialect(database.dialect), spec, await database.describe(spec))
    names = ", ".join(column.sql for column in bound.columns)
    text = f"SELECT {names} FROM {bound.sql} ORDER BY {bound.id.sql}"

    def steps(_reading: Reading) -> Steps[list[tuple[Any, ...]]]:
        return list((yield Statement("read rows", text)).rows)

    rows = await database.run(Script("read rows", steps, "none"))
    return [
        row_from(
            table,
            {c.name: c.decode(value) for c, value in zip(bound.columns, row, strict=True)},
        )
        for row in rows
    ]
