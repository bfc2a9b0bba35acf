"""The claim of the lease form on PostgreSQL: one statement, which waits for no row.

    WITH due AS (SELECT … ORDER BY … LIMIT n FOR UPDATE SKIP LOCKED),
         taken AS (UPDATE … WHERE id = ANY(ARRAY(SELECT id FROM due)))
    SELECT … FROM due ORDER BY …

It answers from `due`: rows as they stood before the count, in the database's own order (Python
would sort text otherwise than a collation). `ANY(ARRAY(…))` always takes the id's index, where a
join is one misjudged plan away from a hash over the whole table. The limit is a literal: with a
parameter there, PostgreSQL guesses a tenth of the table and plans anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator

from inboxkit._core.spec import Role
from inboxkit._sql.branches import Part, branches, is_apart, together
from inboxkit._sql.table import Table

__all__ = [
    "alone_in_group",
    "claim_text",
    "head",
    "in_group",
    "keys",
    "nothing_in_force",
    "now",
    "sets",
    "unfinished",
    "walked",
]


def claim_text(table: Table, *, threshold: int, limit: int) -> str:
    """The claim's statement. ``$1``: now, ``$2``: the expiry, ``$3``: the group.

    Args:
        table: The queue's.
        threshold: Above this attempt the claim does not count.
        limit: Most rows.
    """
    names = [column.sql for column in table.columns]
    order = ", ".join(keys(table, "due."))
    taken = (
        f"UPDATE {table.sql} AS q SET {sets(table, threshold)} "
        f"WHERE q.{table.id.sql} = ANY(ARRAY(SELECT due.{table.id.sql} FROM due))"
    )
    return (
        f"WITH {_candidates(table, limit)}, taken AS ({taken}) "
        f"SELECT {', '.join(f'due.{name}' for name in names)} FROM due ORDER BY {order}"
    )


def _candidates(table: Table, limit: int) -> str:
    select = f"SELECT {', '.join(f'q.{column.sql}' for column in table.columns)}"
    lock = "FOR UPDATE OF q SKIP LOCKED"
    if table.spec.fifo:
        where = " AND ".join(_fifo(table, _named(table)))
        return f"due AS ({select} FROM {table.sql} AS q WHERE {where} {lock})"
    base = "".join(f"{condition} AND " for condition in _waiting(table))
    parts = [
        f"{select} FROM {table.sql} AS q WHERE {base}{part.condition} "
        f"ORDER BY {', '.join(walked(table, 'q.', part))} LIMIT {limit} {lock}"
        for part in branches(table, *now(table))
    ]
    if len(parts) == 1:
        return f"due AS ({parts[0]})"
    # Rows that are locked in one part and not taken stay locked until the statement ends, no longer.
    ctes = ", ".join(f"part{n} AS ({part})" for n, part in enumerate(parts, 1))
    union = " UNION ALL ".join(f"SELECT * FROM part{n}" for n in range(1, len(parts) + 1))
    order = ", ".join(keys(table, "parts."))
    return f"{ctes}, due AS (SELECT * FROM ({union}) AS parts ORDER BY {order} LIMIT {limit})"


def now(table: Table) -> tuple[str, str]:
    """The clock's reading, cast to the type of due times and of leases."""
    due, lease = table.find(Role.RETRY_AFTER), table.find(Role.LOCKED_UNTIL)
    casts = [column.info.cast for column in (due, lease) if column is not None]
    return (f"$1::{casts[0]}", f"$1::{casts[-1]}") if casts else ("", "")


def keys(table: Table, prefix: str, *, is_even: bool = False) -> Iterator[str]:
    """The claim order. NULL comes first, as on every database; said only where a column may hold
    one, since an ordinary index gives no NULLS FIRST, not even of a column without NULLs.

    Args:
        table: The queue's.
        prefix: What the columns belong to, with its dot.
        is_even: The due times are all NULL or none.
    """
    for role in (Role.PRIORITY, Role.RETRY_AFTER, Role.ID):
        column = table.find(role)
        if column is not None:
            plain = not column.info.nullable or role is Role.ID
            plain = plain or (is_even and role is Role.RETRY_AFTER)
            yield f"{prefix}{column.sql}{'' if plain else ' NULLS FIRST'}"


def walked(table: Table, prefix: str, part: Part) -> Iterator[str]:
    """The claim order of one part of a claim for one group, said so that but one index gives it.

    The order of ids is also that of their own index, and where the planner takes the group for most
    of the table it would walk that, past the rows of all groups. Rows whose lease has ended are few,
    and sorted: the first column, the same for all of them, is of no index.
    """
    if part.lease == "ended":
        yield f"{prefix}{table.get(Role.LOCKED_UNTIL).sql} IS NULL"
    elif _goes_by_id(table):
        yield f"{prefix}{table.get(Role.GROUP).sql}"
    yield from keys(table, prefix, is_even=part.is_even)


def in_group(table: Table, alias: str, group: str) -> str:
    """That a row is of a group; `walked` is then the order of an index.

    Not by ``=``, where that would have the planner leave the group out of the order.
    """
    name = f"{alias}.{table.get(Role.GROUP).sql}"
    return f"{name} = ANY(ARRAY[{group}])" if _goes_by_id(table) else f"{name} = {group}"


def _goes_by_id(table: Table) -> bool:
    """Whether the ids alone are the order in each group."""
    others = (Role.PRIORITY, Role.RETRY_AFTER)
    return table.spec.group is not None and not any(map(table.find, others))


def sets(table: Table, threshold: int) -> str:
    """What a claim writes. ``$2``: the expiry."""
    lease, attempt = table.get(Role.LOCKED_UNTIL), table.find(Role.ATTEMPT)
    sets = f"{lease.sql} = $2::{lease.info.cast}"
    if attempt is not None:
        name = f"q.{attempt.sql}"
        counted = f"COALESCE({name}, 1) + 1"
        sets += f", {attempt.sql} = CASE WHEN {name} > {threshold} THEN {name} ELSE {counted} END"
    return sets


def _waiting(table: Table) -> Iterator[str]:
    if table.spec.group is not None:
        yield in_group(table, "q", _named(table))
    yield from unfinished(table, "q")


def _named(table: Table) -> str:
    """The one group that a claim is for."""
    return f"$3::{table.get(Role.GROUP).info.cast}"


def unfinished(table: Table, alias: str) -> Iterator[str]:
    """What a row has to be, to be handed out at all."""
    processed = table.find(Role.PROCESSED_AT)
    if processed is not None:
        yield f"{alias}.{processed.sql} IS NULL"
    if table.id.info.nullable:
        # No write could find it again by its id, and it would stand first for ever.
        yield f"{alias}.{table.id.sql} IS NOT NULL"


def _fifo(table: Table, group: str) -> Iterator[str]:
    """The group's head or nothing: also where the head is not due, or any row of it is in work.

    The inner select locks nothing, so a head that somebody has locked stays the head, and the claim
    comes back empty instead of taking the row behind it.
    """
    yield f"q.{table.id.sql} = {head(table, group)}"
    yield together(table, *now(table))
    yield nothing_in_force(table, group)


def nothing_in_force(table: Table, group: str) -> str:
    """That no row of a FIFO group is in work."""
    return _no_lease(table, "$1", f"w.{table.get(Role.GROUP).sql} = {group}")


def _no_lease(table: Table, now: str, *conditions: str) -> str:
    """That no row `w` which fits the conditions is under a lease in force.

    The first such lease is asked for rather than whether one exists: a plan that does not know the
    group takes a third of all leases for later than now, so that it would look for any in the whole
    table, and find none. By the order there is but the index of leases to go by. Nor can the planner
    make a join of it.
    """
    lease = table.get(Role.LOCKED_UNTIL)
    leased = (*conditions, f"w.{lease.sql} > {now}::{lease.info.cast}", *unfinished(table, "w"))
    return (
        f"(SELECT w.{lease.sql} FROM {table.sql} AS w WHERE {' AND '.join(leased)} "
        f"ORDER BY w.{lease.sql} LIMIT 1) IS NULL"
    )


def head(table: Table, group: str) -> str:
    """The id of the first unfinished row of a group."""
    conditions = " AND ".join((in_group(table, "h", group), *unfinished(table, "h")))
    select = f"SELECT h.{table.id.sql} FROM {table.sql} AS h WHERE {conditions}"
    if not is_apart(table, Role.RETRY_AFTER):
        order = ", ".join(walked(table, "h.", Part("", is_even=False)))
        return f"({select} ORDER BY {order} LIMIT 1)"
    due, order = table.get(Role.RETRY_AFTER).sql, ", ".join(keys(table, "h.", is_even=True))
    heads = (
        f"({select} AND h.{due} IS {kind} ORDER BY {order} LIMIT 1)"
        for kind in ("NULL", "NOT NULL")
    )
    return f"COALESCE({', '.join(heads)})"


def alone_in_group(table: Table, now: str) -> str:
    """That no other row of row `q`'s group is under a lease in force.

    Args:
        table: A FIFO table.
        now: The placeholder of the clock's reading.
    """
    group, id_ = table.get(Role.GROUP).sql, table.id.sql
    return _no_lease(table, now, f"w.{group} = q.{group}", f"w.{id_} <> q.{id_}")
