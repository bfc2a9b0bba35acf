"""The claim of the lease form on MariaDB and MySQL: lock due rows by their ids, lease them by id.

    SELECT … FROM (SELECT id … LIMIT m) STRAIGHT_JOIN … LIMIT n FOR UPDATE SKIP LOCKED;
    UPDATE … WHERE id IN (…); COMMIT

Of FIFO groups the heads, one of each, in the same way: the list locks nothing. Locked without it, a head
that is not had, since it is in work, would be so for a moment, and its renewal would pass over it.

NULL comes first in the order and in an index by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, is_apart, together
from inboxkit._sql.table import Table

from .hints import Hints

__all__ = [
    "alone_in_group",
    "claim_check",
    "claim_heads",
    "claim_look",
    "claim_update",
    "counted",
    "head",
    "in_group",
    "order",
    "unfinished",
    "waiting",
    "without",
]


def claim_look(table: Table, hints: Hints) -> str:
    """See whether any row is due, locking none. ``$1``: now, ``$2``: the group. Not of FIFO groups."""
    base = "".join(f"{condition} AND " for condition in waiting(table, "$2"))
    looks = [
        f"SELECT 1 FROM {table.sql} AS q{hints.waiting(part)} WHERE {base}{part.condition} LIMIT 1"
        for part in branches(table, "$1", "$1")
    ]
    return (
        looks[0]
        if len(looks) == 1
        else f"{' UNION ALL '.join(f'({one})' for one in looks)} LIMIT 1"
    )


def claim_heads(
    table: Table, hints: Hints, groups: Sequence[str], *, now: str, aside: Sequence[str]
) -> str:
    """Lock the heads of FIFO groups, of each that is due and whose group has no row in work.

    Args:
        table: Of the groups.
        hints: Its indexes.
        groups: Placeholders of their names.
        now: The placeholder of the clock's reading.
        aside: Those of ids of rows that the groups go on without.
    """
    id_, group = table.id.sql, table.get(Role.GROUP).sql
    heads = [
        f"SELECT q.{id_}, q.{group} FROM {table.sql} AS q{hints.by_id} "
        f"WHERE {' AND '.join(_fifo(table, name, now, aside))} LIMIT 1"
        for name in groups
    ]
    listed = heads[0] if len(heads) == 1 else " UNION ALL ".join(f"({one})" for one in heads)
    # As it stands once it is locked: it may have moved to another group meanwhile.
    still = (
        in_group(table, "q", f"due.{group}"),
        *unfinished(table, "q"),
        together(table, now, now),
    )
    return (
        f"SELECT {', '.join(f'q.{column.sql}' for column in table.columns)} "
        f"FROM ({listed}) AS due STRAIGHT_JOIN {table.sql} AS q{hints.by_id} "
        f"ON q.{id_} = due.{id_} WHERE {' AND '.join(still)} FOR UPDATE SKIP LOCKED"
    )


def order(table: Table, alias: str, *, has_due: bool = True) -> str:
    """The claim order. MariaDB sorts by a column even where it is NULL in every row that is read, so
    it is left out there."""
    roles = (Role.PRIORITY, Role.RETRY_AFTER, Role.ID) if has_due else (Role.PRIORITY, Role.ID)
    columns = [column for role in roles if (column := table.find(role)) is not None]
    return ", ".join(f"{alias}.{column.sql}" for column in columns)


def waiting(table: Table, group: str) -> Iterator[str]:
    """What rows `q` of a queue have in common, but for due time and lease; `group`: the placeholder."""
    if table.spec.group is not None:
        yield in_group(table, "q", group)
    yield from unfinished(table, "q")


def in_group(table: Table, alias: str, value: str) -> str:
    """That a row is of a group; the second comparison, where one is needed, keeps the groups apart that
    the column's collation takes for one ('A' and 'a', 'a' and 'a ')."""
    group = table.get(Role.GROUP)
    name = f"{alias}.{group.sql}"
    collation = group.info.collation
    if collation.endswith("_nopad_bin") or collation == "utf8mb4_0900_bin":
        return f"{name} = {value}"
    exact = " = ".join(
        f"CAST({one} AS BINARY)" for one in _unicode(group.info.charset, name, value)
    )
    return f"{name} = {value} AND {exact}"


def _unicode(charset: str, *names: str) -> tuple[str, ...]:
    if charset in ("utf8mb4", "utf8mb3", "utf8"):
        return names
    return tuple(f"CONVERT({name} USING utf8mb4)" for name in names)


def unfinished(table: Table, alias: str) -> Iterator[str]:
    """What rows have in common that were not finished."""
    if (processed := table.find(Role.PROCESSED_AT)) is not None:
        yield f"{alias}.{processed.sql} IS NULL"
    if table.id.info.nullable:
        # No write could find it again by its id, and it would stand first for ever.
        yield f"{alias}.{table.id.sql} IS NOT NULL"


def without(table: Table, alias: str, aside: Sequence[str]) -> Iterator[str]:
    """That a row is none of those set aside; `aside`: the placeholders of their ids."""
    if aside:
        yield f"{alias}.{table.id.sql} NOT IN ({', '.join(aside)})"


def _fifo(table: Table, group: str, now: str, aside: Sequence[str]) -> Iterator[str]:
    """The group's head or nothing: also where the head is not due, or any row of it is in work.

    What somebody has locked stays the head, and the claim comes back empty instead of taking the row
    behind it.
    """
    lease = table.get(Role.LOCKED_UNTIL).sql
    yield f"q.{table.id.sql} = {head(table, group, *without(table, 'h', aside))}"
    yield together(table, now, now)
    others = (
        in_group(table, "w", group),
        f"w.{lease} > {now}",
        *unfinished(table, "w"),
        *without(table, "w", aside),
    )
    yield f"NOT EXISTS (SELECT 1 FROM {table.sql} AS w WHERE {' AND '.join(others)})"


def head(table: Table, group: str, *more: str) -> str:
    """The id of the first unfinished row `h` of a group, with more conditions; locks nothing."""
    conditions = " AND ".join((in_group(table, "h", group), *unfinished(table, "h"), *more))
    select = f"SELECT h.{table.id.sql} FROM {table.sql} AS h WHERE {conditions}"
    if not is_apart(table, Role.RETRY_AFTER):
        return f"({select} ORDER BY {order(table, 'h')} LIMIT 1)"
    due = table.get(Role.RETRY_AFTER).sql
    heads = (
        f"({select} AND h.{due} IS NULL ORDER BY {order(table, 'h', has_due=False)} LIMIT 1)",
        f"({select} AND h.{due} IS NOT NULL ORDER BY {order(table, 'h')} LIMIT 1)",
    )
    return f"COALESCE({', '.join(heads)})"


def claim_check(
    table: Table,
    hints: Hints,
    heads: Sequence[tuple[str, str]],
    *,
    now: str,
    expiry: str,
    aside: Sequence[str],
) -> str:
    """Other rows of FIFO groups in work, of claims not yet committed too; answers the place in `heads`
    of the group of each that is found.

    Two claims may each have found a head, where a row was inserted ahead of the other's. Each leases
    first and then looks, at what is there now and not in a snapshot, so at least one of them sees the other:
    its lease, or the lock on it, which NOWAIT makes an error.

    A range is read to the first row behind it, which may be another group's and locked for long. So the
    leases that end before ours are read upwards, and those after it downwards: behind either is our own.
    Equal ones are found by the value; a condition on the id must not make ranges of that. Without an index on
    group and lease other rows are read too: of whoever has one locked, its group then waits for the end.

    Args:
        table: Of the groups.
        hints: Its indexes.
        heads: Placeholders of each group's name and of the id that was claimed of it.
        now: The placeholder of the clock's reading.
        expiry: That of the heads' leases.
        aside: Those of ids of rows that the groups go on without.
    """
    lease = f"w.{table.get(Role.LOCKED_UNTIL).sql}"
    looks = []
    for place, (group, id) in enumerate(heads):
        base = (
            in_group(table, "w", group),
            *unfinished(table, "w"),
            *without(table, "w", aside),
        )
        select = (
            f"SELECT {place}, w.{table.id.sql} FROM {table.sql} AS w{hints.leased} "
            f"WHERE {' AND '.join(base)}"
        )
        parts = (
            f"{lease} > {now} AND {lease} < {expiry}",
            f"{lease} = {expiry} AND NOT COALESCE(w.{table.id.sql} = {id}, FALSE)",
            f"{lease} > {expiry} ORDER BY {lease} DESC",
        )
        looks += [f"({select} AND {part} LIMIT 1 FOR UPDATE NOWAIT)" for part in parts]
    return " UNION ALL ".join(looks)


def claim_update(table: Table, hints: Hints, count: int, *, threshold: int) -> str:
    """Lease rows by id. ``$1``: the expiry, then `count` ids.

    Args:
        table: The queue's.
        hints: Its indexes.
        count: How many rows.
        threshold: Above this attempt the claim does not count.
    """
    sets = [f"{table.get(Role.LOCKED_UNTIL).sql} = $1"]
    attempt = table.find(Role.ATTEMPT)
    if attempt is not None:
        sets.append(f"{attempt.sql} = {counted(attempt.sql, threshold)}")
    ids = ", ".join(f"${n + 2}" for n in range(count))
    source = f"{table.sql}{hints.by_id}"
    return f"UPDATE {source} SET {', '.join(sets)} WHERE {table.id.sql} IN ({ids})"


def counted(name: str, threshold: int) -> str:
    """The next attempt of a row that has this one; the same above the threshold."""
    return f"CASE WHEN {name} > {threshold} THEN {name} ELSE COALESCE({name}, 1) + 1 END"


def alone_in_group(table: Table, now: str) -> str:
    """That no other row of row `q`'s group is under a lease in force.

    Args:
        table: A FIFO table.
        now: The placeholder of the clock's reading.
    """
    conditions = (
        in_group(table, "w", f"q.{table.get(Role.GROUP).sql}"),
        f"w.{table.id.sql} <> q.{table.id.sql}",
        f"w.{table.get(Role.LOCKED_UNTIL).sql} > {now}",
        *unfinished(table, "w"),
    )
    return f"NOT EXISTS (SELECT 1 FROM {table.sql} AS w WHERE {' AND '.join(conditions)})"
