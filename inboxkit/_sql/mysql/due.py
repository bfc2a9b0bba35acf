"""Due rows of one queue in claim order, read without locking any: where a claim then tries to get them.

For claims that hold what they lock while a handler runs: whatever indexes there are, they must not lock
rows that they only read.
"""

from __future__ import annotations

from typing import Final

from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, together
from inboxkit._sql.table import Table

from .claim import order, waiting

__all__ = ["all_of", "due_rows", "is_due"]

_KEY: Final = "inboxkit_key"
_KEYS: Final = (Role.PRIORITY, Role.RETRY_AFTER, Role.ID)


def due_rows(table: Table, *, now: str, group: str, limit: int, also: str, key: str = "") -> str:
    """A SELECT of the ids of due rows.

    Args:
        table: The queue's, without leases.
        now: The clock's reading, as a placeholder.
        group: Likewise the group.
        limit: Most rows.
        also: A further condition on row `q`; empty for none.
        key: What to select for each row besides.
    """
    id_, named = f"q.{table.id.sql}", f", {key} AS {_KEY}" if key else ""
    base = (*waiting(table, group), also)
    parts = list(branches(table, now, ""))
    if len(parts) == 1:
        where = all_of(*base, parts[0].condition)
        return (
            f"SELECT {id_}{named} FROM {table.sql} AS q{where} "
            f"ORDER BY {order(table, 'q')} LIMIT {limit}"
        )
    keys = [f"q.{column.sql}" for role in _KEYS if (column := table.find(role)) is not None]
    union = " UNION ALL ".join(
        f"(SELECT {', '.join(keys)}{named} FROM {table.sql} AS q{all_of(*base, part.condition)} "
        f"ORDER BY {order(table, 'q', has_due=not part.has_no_due)} LIMIT {limit})"
        for part in parts
    )
    return (
        f"SELECT {id_}{f', q.{_KEY}' if key else ''} FROM ({union}) AS q "
        f"ORDER BY {order(table, 'q')} LIMIT {limit}"
    )


def is_due(table: Table, *, now: str, group: str) -> tuple[str, ...]:
    """The conditions on a due row `q` of the queue."""
    return (*waiting(table, group), together(table, now, ""))


def all_of(*conditions: str) -> str:
    """A WHERE of these; of none, nothing."""
    kept = [condition for condition in conditions if condition]
    return f" WHERE {' AND '.join(kept)}" if kept else ""
