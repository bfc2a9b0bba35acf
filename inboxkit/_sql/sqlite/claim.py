"""The claim of the lease form on SQLite: read due rows, then lease them by id.

Not one UPDATE … RETURNING: that answers in no order, and only what stands in a row after the count,
which does not tell a row at its cap from one past it. Both run under the write lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, together
from inboxkit._sql.lease import Row
from inboxkit._sql.table import Table

__all__ = ["claim_select", "claim_update", "counted", "fifo", "keys", "leased", "unfinished"]


def claim_select(table: Table, limit: int, *, has_group: bool, aside: int = 0) -> str:
    """Read due rows, in claim order. ``$1``: now, ``$2``: the group; of a FIFO table then the ids of
    `aside` rows that its groups go on without."""
    select = f"SELECT {', '.join(f'q.{column.sql}' for column in table.columns)}"
    source = f"{select} FROM {table.sql} AS q WHERE"
    order = f"ORDER BY {', '.join(f'q.{name}' for name in keys(table))} LIMIT {limit}"
    if table.spec.fifo:
        ids = [f"${n + 3}" for n in range(aside)]
        return f"{source} {' AND '.join(fifo(table, '$2', aside=ids))} {order}"
    base = "".join(f"{condition} AND " for condition in _waiting(table, has_group=has_group))
    parts = [f"{source} {base}{part.condition} {order}" for part in branches(table, "$1", "$1")]
    if len(parts) == 1:
        return parts[0]
    # Each part in parentheses of its own: SQLite takes no ORDER BY before a UNION.
    union = " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts)
    return f"{select} FROM ({union}) AS q {order}"


def keys(table: Table) -> Iterator[str]:
    """The claim order; NULL sorts first on SQLite by itself."""
    for role in (Role.PRIORITY, Role.RETRY_AFTER, Role.ID):
        column = table.find(role)
        if column is not None:
            yield column.sql


def _waiting(table: Table, *, has_group: bool) -> Iterator[str]:
    if has_group:
        yield f"q.{table.get(Role.GROUP).sql} = $2"
    yield from unfinished(table)


def unfinished(table: Table) -> Iterator[str]:
    """What row `q` has to be, to be written by its id."""
    if (processed := table.find(Role.PROCESSED_AT)) is not None:
        yield f"q.{processed.sql} IS NULL"
    if table.id.info.nullable:
        # No write could find it again by its id, and it would stand first for ever.
        yield f"q.{table.id.sql} IS NOT NULL"


def fifo(table: Table, group_name: str, *, aside: Sequence[str] = ()) -> Iterator[str]:
    """The group's head or nothing: also where the head is not due, or any row of it is in work.

    Args:
        table: A FIFO table.
        group_name: The placeholder of the group's name.
        aside: The placeholders of the ids of rows that the group goes on without.
    """
    group, lease = table.get(Role.GROUP).sql, table.get(Role.LOCKED_UNTIL).sql
    conditions = [*unfinished(table)]
    if aside:
        conditions.append(f"q.{table.id.sql} NOT IN ({', '.join(aside)})")
    waiting = "".join(f" AND {condition}" for condition in conditions)
    order = ", ".join(f"q.{name}" for name in keys(table))
    yield (
        f"q.{table.id.sql} = (SELECT q.{table.id.sql} FROM {table.sql} AS q "
        f"WHERE q.{group} = {group_name}{waiting} ORDER BY {order} LIMIT 1)"
    )
    yield together(table, "$1", "$1")
    yield (
        f"NOT EXISTS (SELECT 1 FROM {table.sql} AS q WHERE q.{group} = {group_name} "
        f"AND q.{lease} > $1{waiting})"
    )


def claim_update(table: Table, count: int, *, threshold: int) -> str:
    """Lease rows by id. ``$1``: the expiry, then `count` ids.

    Args:
        table: The queue's.
        count: How many rows.
        threshold: Above this attempt the claim does not count.
    """
    sets = [f"{table.get(Role.LOCKED_UNTIL).sql} = $1"]
    attempt = table.find(Role.ATTEMPT)
    if attempt is not None:
        sets.append(f"{attempt.sql} = {counted(attempt.sql, threshold)}")
    ids = ", ".join(f"${n + 2}" for n in range(count))
    return f"UPDATE {table.sql} SET {', '.join(sets)} WHERE {table.id.sql} IN ({ids})"


def leased(table: Table, rows: Sequence[Row]) -> tuple[Any, ...]:
    """The ids of those of the rows read that are to be leased: all but FIFO heads that cannot be read,
    which hold nothing."""
    is_fifo = table.spec.fifo
    return tuple(row[0] for row in rows if not is_fifo or table.is_readable(row))


def counted(attempt: str, threshold: int) -> str:
    """The attempt that a claim writes."""
    # Text in the column would count as more than any number and so as past every cap.
    return (
        f"CASE WHEN typeof({attempt}) <> 'integer' THEN 2 WHEN {attempt} > {threshold} "
        f"THEN {attempt} ELSE {attempt} + 1 END"
    )
