"""Tables for the code of the documentation's pages, where the page itself makes none."""

from __future__ import annotations

from inboxkit import Database, Inbox
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect


async def create(database: Database, *rows: type[Inbox]) -> None:
    """Create the tables that ``inboxkit ddl`` prints for these classes."""
    for row in rows:
        for statement in create_table(get_dialect(database.dialect), row.spec):
            await database.execute(statement)
