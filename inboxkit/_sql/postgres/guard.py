"""The guard of a FIFO group on PostgreSQL: one claim looks at a group at a time."""

from __future__ import annotations

from typing import Final

from inboxkit._sql.statement import Statement
from inboxkit._sql.table import Table

from . import names

__all__ = ["guard", "lock_name"]

_TEXT: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0))"


def guard(table: Table, group: str) -> Statement:
    """Try the group's lock, which lasts as long as the transaction; answers whether it was had.

    It is a statement of its own, before the claim: the claim's snapshot has to be younger than the
    last holder's COMMIT.
    """
    return Statement("claim guard", _TEXT, (lock_name(table, group),))


def lock_name(table: Table, group: str) -> str:
    """What the guard of a FIFO group locks: a name that all its claims agree on, those of other
    services too, which may spell the table differently."""
    return f"{names.table(table.info.table, table.info.schema)}:{group}"
