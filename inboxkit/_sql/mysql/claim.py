"""The claim of the lease form on MariaDB and MySQL: lock due rows by their ids, lease them by id.

    SELECT … FROM (SELECT id … LIMIT m) STRAIGHT_JOIN … LIMIT n FOR UPDATE SKIP LOCKED;
    UPDATE … WHERE id IN (…); COMMIT

Of a FIFO group the head: SELECT 1 … LIMIT 1; SELECT … WHERE id = (…) FOR UPDATE SKIP LOCKED. The look
before it locks nothing. Without it each claim that finds nothing would for a moment lock a head that it
does not get: one in work. Its renewal would pass over it meanwhile.

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
    "claim_head",
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


def claim_look(table: Table, hints: Hints, *, aside: int = 0) -> str:
    """See whether any row is due, locking none. ``$1``: now, ``$2``: the group; of a FIFO table then
    the ids of `aside` rows that its groups go on without."""
    if table.spec.fifo:
        found = [(hints.by_id, " AND ".join(_fifo(table, _places(aside))))]
    else:
        base = "".join(f"{condition} AND " for condition in waiting(table, "$2"))
        parts = branches(table, "$1", "$1")
        found = [(hints.waiting(part), f"{base}{part.condition}") for part in parts]
    looks = [
        f"SELECT 1 FROM {table.sql} AS q{hint} WHERE {conditions} LIMIT 1"
        for hint, conditions in found
    ]
    return (
        looks[0]
        if len(looks) == 1
        else f"{' UNION ALL '.join(f'({one})' for one in looks)} LIMIT 1"
    )


def claim_head(table: Table, hints: Hints, *, aside: int = 0) -> str:
    """Lock the head of a FIFO group, if it is due and the group has no row in work; parameters as of
    `claim_look`."""
    columns = ", ".join(f"q.{column.sql}" for column in table.columns)
    conditions = " AND ".join(_fifo(table, _places(aside)))
    return (
        f"SELECT {columns} FROM {table.sql} AS q{hints.by_id} WHERE {conditions} "
        "FOR UPDATE SKIP LOCKED"
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


def _places(aside: int, *, start: int = 3) -> list[str]:
    return [f"${n + start}" for n in range(aside)]


def _fifo(table: Table, aside: Sequence[str]) -> Iterator[str]:
    """The group's head or nothing: also where the head is not due, or any row of it is in work.

    The inner selects lock nothing, so a head that somebody has locked stays the head, and the claim
    comes back empty instead of taking the row behind it.
    """
    lease = table.get(Role.LOCKED_UNTIL).sql
    yield f"q.{table.id.sql} = {head(table, '$2', *without(table, 'h', aside))}"
    yield together(table, "$1", "$1")
    others = (
        in_group(table, "w", "$2"),
        f"w.{lease} > $1",
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


def claim_check(table: Table, hints: Hints, *, aside: int = 0) -> str:
    """Other rows of the group in work, of claims not yet committed too. ``$1``: now, ``$2``: the
    group, ``$3``: the id that was claimed, ``$4``: its expiry; then ids that the group goes on without.

    Two claims may each have found a head, where a row was inserted ahead of the other's. Each leases
    first and then looks, at what is there now and not in a snapshot, so at least one of them sees the other:
    its lease, or the lock on it, which NOWAIT makes an error.

    A range is read to the first row behind it, which may be another group's and locked for long. So the
    leases that end before ours are read upwards, and those after it downwards: behind either is our own.
    Equal ones are found by the value; a condition on the id must not make ranges of that. Without an index on
    group and lease other rows are read too: of whoever has one locked, its group then waits for the end.
    """
    lease = f"w.{table.get(Role.LOCKED_UNTIL).sql}"
    base = " AND ".join(
        (
            in_group(table, "w", "$2"),
            *unfinished(table, "w"),
            *without(table, "w", _places(aside, start=5)),
        )
    )
    select = f"SELECT w.{table.id.sql} FROM {table.sql} AS w{hints.leased} WHERE {base}"
    other = f"NOT COALESCE(w.{table.id.sql} = $3, FALSE)"
    parts = (
        f"{lease} > $1 AND {lease} < $4",
        f"{lease} = $4 AND {other}",
        f"{lease} > $4 ORDER BY {lease} DESC",
    )
    return " UNION ALL ".join(f"({select} AND {part} LIMIT 1 FOR UPDATE NOWAIT)" for part in parts)


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
