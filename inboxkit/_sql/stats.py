"""How a queue stands: counts that stop at a limit, so that asking costs little however long it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from inboxkit._core.spec import Role

from .scope import Scope, Values, asked, by_lease, unfinished
from .statement import Reading, Script, Statement, Steps
from .table import BoundColumn, Table

__all__ = ["MOST", "Standing", "standing"]

MOST: Final = 10_000
"""Rows that are counted; of more it is only known that there are more."""

Place = tuple[Table, Scope]


@dataclass(frozen=True, slots=True)
class Standing:
    """Rows of one queue at one instant. A count of None: its claim form does not show it; of
    `MOST` + 1: more than `MOST`."""

    at: datetime
    """The clock's reading."""
    due: int
    """To be claimed now. Where leases do not tell, with those in work."""
    waiting: int
    """Not due yet."""
    in_work: int | None
    """Under a lease in force; with those that keep their place for a back-off."""
    expired: int | None
    """Their lease has ended unsettled: to be claimed again now."""
    dead: int | None
    """In its dead letter; None: it has none."""
    oldest_due: datetime | None
    """Since when the row is due that has been for longest; None: none is, or none says."""
    oldest_expired: datetime | None = None
    """When the lease ended that has been over for longest; None: none has. Of more than `MOST` that
    ended, it is one of `MOST`."""


def standing(queue: Place, dead: Place | None) -> Script[Standing]:
    """Count, in one statement.

    Args:
        queue: The queue's table, and its rows.
        dead: Likewise its dead letters.
    """

    def steps(reading: Reading) -> Steps[Standing]:
        question = count(queue, dead, now=queue[0].instant(reading.now))
        answer = yield from asked(queue[0], question)
        due, waiting, in_work, expired, letters, oldest, ended = answer.rows[0]
        since = _instant(queue[0], Role.RETRY_AFTER, oldest)
        over = _instant(queue[0], Role.LOCKED_UNTIL, ended)
        return Standing(reading.now, due, waiting, in_work, expired, letters, since, over)

    return Script("stats", steps, "read")


def _instant(table: Table, role: Role, value: Any) -> datetime | None:
    column = table.find(role)
    found = None if column is None else column.decode(value)
    return found if isinstance(found, datetime) else None


def count(queue: Place, dead: Place | None, *, now: Any) -> Statement:
    """The statement."""
    table, scope = queue
    values = Values()
    due, lease = table.find(Role.RETRY_AFTER), table.find(Role.LOCKED_UNTIL)

    def counted(*conditions: str) -> str:
        return _counted(table, [*_own(table, scope, values), *filter(None, conditions)])

    is_free = "" if lease is None else f"q.{lease.sql} IS NULL"
    # NULL and a time that has come are two ranges of an index; in one condition they are none.
    come = [] if due is None else [f"q.{due.sql} <= {values.add(now, due)}"]
    is_now = [f"q.{due.sql} IS NULL"] if due is not None and due.info.nullable else []
    columns = [
        " + ".join(counted(part, is_free) for part in ([*is_now, *come] or [""])),
        "0" if due is None else counted(f"q.{due.sql} > {values.add(now, due)}", is_free),
    ]
    for sign in (">", "<="):
        columns.append(
            "NULL" if lease is None else counted(f"q.{lease.sql} {sign} {values.add(now, lease)}")
        )
    columns.append("NULL" if dead is None else _all_of(*dead, values))
    if due is None:
        columns.append("NULL")
    else:
        wanted = (f"q.{due.sql} <= {values.add(now, due)}", is_free)
        columns.append(_oldest(table, due, [*_own(table, scope, values), *filter(None, wanted)]))
    columns.append("NULL" if lease is None else _ended(table, scope, lease, now, values))
    return Statement("stats", f"SELECT {', '.join(columns)}", values.given)


def _own(table: Table, scope: Scope, values: Values) -> Iterator[str]:
    yield from scope.conditions(table, values)
    yield from unfinished(table)


def _all_of(table: Table, scope: Scope, values: Values) -> str:
    conditions = list(_own(table, scope, values))
    parts = by_lease(table) if scope.group is not None else [""]
    return " + ".join(_counted(table, [*conditions, *filter(None, [part])]) for part in parts)


def _counted(table: Table, conditions: list[str]) -> str:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"(SELECT count(*) FROM (SELECT 1 AS one FROM {table.sql} AS q{where} LIMIT {MOST + 1}) AS n)"


def _ended(table: Table, scope: Scope, lease: BoundColumn, now: Any, values: Values) -> str:
    """Without an order, which not every index has: leases that ended are few where a service runs."""
    conditions = [*_own(table, scope, values), f"q.{lease.sql} <= {values.add(now, lease)}"]
    return (
        f"(SELECT min(n.ended) FROM (SELECT q.{lease.sql} AS ended FROM {table.sql} AS q "
        f"WHERE {' AND '.join(conditions)} LIMIT {MOST + 1}) AS n)"
    )


def _oldest(table: Table, due: BoundColumn, conditions: Iterable[str]) -> str:
    """Exact without priorities; with them, of the first rows in claim order."""
    order, limit = [], 1 if table.spec.priority is None else MOST + 1
    for column in (table.find(Role.PRIORITY), due):
        if column is not None:
            first = table.dialect.name == "postgres" and column.info.nullable
            order.append(f"q.{column.sql}{' NULLS FIRST' if first else ''}")
    return (
        f"(SELECT min(n.due) FROM (SELECT q.{due.sql} AS due FROM {table.sql} AS q "
        f"WHERE {' AND '.join(conditions)} ORDER BY {', '.join(order)} LIMIT {limit}) AS n)"
    )
