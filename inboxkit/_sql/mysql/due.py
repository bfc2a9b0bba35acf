"""Due rows of one queue in claim order, read without locking any: where a claim then tries to get them.

A locking read locks what it reads before it sorts, and at the end of a range also the first row behind it,
which may be another queue's: whoever looks there at that moment passes over it. So a claim reads a list
of due rows, and then locks rows of it by their ids.
"""

from __future__ import annotations

from typing import Final

from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, together
from inboxkit._sql.table import Table

from .claim import order, waiting
from .hints import Hints

__all__ = ["KEY", "all_of", "due_rows", "is_due", "lock_of"]

KEY: Final = "inboxkit_key"
"""What `due_rows` calls what is selected besides."""
_KEYS: Final = (Role.PRIORITY, Role.RETRY_AFTER, Role.ID)


def due_rows(
    table: Table,
    *,
    now: str,
    group: str,
    limit: int,
    also: str = "",
    key: str = "",
    hints: Hints | None = None,
) -> str:
    """A SELECT of the ids of due rows.

    Args:
        table: The queue's.
        now: The clock's reading, as a placeholder.
        group: Likewise the group.
        limit: Most rows.
        also: A further condition on row `q`; empty for none.
        key: What to select for each row besides.
        hints: The indexes to go by; None: what the optimizer takes.
    """
    id_, named = f"q.{table.id.sql}", f", {key} AS {KEY}" if key else ""
    base = (*waiting(table, group), also)
    parts = list(branches(table, now, now))
    by = ["" if hints is None else hints.waiting(part) for part in parts]
    if len(parts) == 1:
        where = all_of(*base, parts[0].condition)
        return (
            f"SELECT {id_}{named} FROM {table.sql} AS q{by[0]}{where} "
            f"ORDER BY {order(table, 'q')} LIMIT {limit}"
        )
    keys = [f"q.{column.sql}" for role in _KEYS if (column := table.find(role)) is not None]
    union = " UNION ALL ".join(
        f"(SELECT {', '.join(keys)}{named} FROM {table.sql} AS q{hint}{all_of(*base, part.condition)} "
        f"ORDER BY {order(table, 'q', has_due=not part.has_no_due)} LIMIT {limit})"
        for part, hint in zip(parts, by, strict=True)
    )
    return (
        f"SELECT {id_}{f', q.{KEY}' if key else ''} FROM ({union}) AS q "
        f"ORDER BY {order(table, 'q')} LIMIT {limit}"
    )


def is_due(table: Table, *, now: str, group: str) -> tuple[str, ...]:
    """The conditions on a due row `q` of the queue."""
    return (*waiting(table, group), together(table, now, now))


def lock_of(table: Table, due: str, hints: Hints, *, now: str, group: str, limit: int) -> str:
    """Lock rows of a list, each by its id and as far as it still fits, until enough are had; and read them.

    READ COMMITTED lets go of one that has changed meanwhile. The join keeps the order: it goes through
    the list as it was made.

    Args:
        table: The queue's.
        due: The list; its LIMIT keeps it one, made before anything is locked.
        hints: The table's indexes.
        now: The clock's reading, as a placeholder.
        group: Likewise the group.
        limit: How many are enough.
    """
    id_ = table.id.sql
    return (
        f"SELECT {', '.join(f'q.{column.sql}' for column in table.columns)} "
        f"FROM ({due}) AS due STRAIGHT_JOIN {table.sql} AS q{hints.by_id} "
        f"ON q.{id_} = due.{id_}{all_of(*is_due(table, now=now, group=group))} "
        f"LIMIT {int(limit)} FOR UPDATE SKIP LOCKED"
    )


def all_of(*conditions: str) -> str:
    """A WHERE of these; of none, nothing."""
    kept = [condition for condition in conditions if condition]
    return f" WHERE {' AND '.join(kept)}" if kept else ""
