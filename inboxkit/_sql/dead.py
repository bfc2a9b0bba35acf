"""Dead letters, as an operator looks at them, requeues and purges them.

Rows are first locked by their ids, those that nobody has in work, and then written by them in the same
transaction. So nothing is ever changed under a holder, and no statement locks more than a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from inboxkit._core.spec import Role
from inboxkit.errors import DatabaseError

from .scope import Scope, Values, by_lease, free, unfinished
from .statement import Statement, Steps
from .table import Table

__all__ = ["find", "live", "lock", "move_back", "purge", "requeue", "select"]


def select(
    table: Table,
    scope: Scope,
    *,
    limit: int,
    after: Any = None,
    ids: Sequence[Any] = (),
    due_before: datetime | None = None,
    columns: Sequence[str] | None = None,
) -> Statement:
    """Read dead letters in the order of their ids.

    Args:
        table: Where they are.
        scope: Which rows they are.
        limit: Most rows.
        after: An id: only those behind it; None: from the first.
        ids: Only these; none: all.
        due_before: Only those whose due time is that or earlier.
        columns: What is answered, quoted; None: all described columns.
    """
    values = Values()
    conditions = [*scope.conditions(table, values), *unfinished(table)]
    if table.id.info.nullable:
        conditions.append(f"q.{table.id.sql} IS NOT NULL")
    if after is not None:
        conditions.append(f"q.{table.id.sql} > {values.add(after, table.id)}")
    if ids:
        conditions.append(f"q.{table.id.sql} IN ({values.add_all(ids, table.id)})")
    if due_before is not None:
        due = table.get(Role.RETRY_AFTER)
        conditions.append(f"q.{due.sql} <= {values.add(table.instant(due_before), due)}")
    names = columns if columns is not None else [column.sql for column in table.columns]
    wanted = ", ".join(f"q.{name}" for name in names)
    if scope.group is None:
        text = f"SELECT {wanted} FROM {table.sql} AS q{_where(conditions)}"
    else:
        parts = by_lease(table)
        arms = [
            table.dialect.unsorted(table, wanted, _where([*conditions, *filter(None, [part])]))
            for part in parts
        ]
        text = (
            arms[0] if len(arms) == 1 else f"SELECT {wanted} FROM ({' UNION ALL '.join(arms)}) AS q"
        )
    return Statement("dead list", f"{text} ORDER BY q.{table.id.sql} LIMIT {limit}", values.given)


def find(table: Table, scope: Scope, **wanted: Any) -> Statement:
    """Read the ids of dead letters, as `select` does."""
    return select(table, scope, columns=[table.id.sql], **wanted)


def lock(table: Table, scope: Scope, ids: Sequence[Any], *, now: Any) -> Statement:
    """Lock dead letters that nobody has in work, until the transaction ends; answers each id, and its
    group or NULL. Never waits."""
    values = Values()
    group = table.find(Role.GROUP)
    conditions = [
        f"q.{table.id.sql} IN ({values.add_all(ids, table.id)})",
        *scope.conditions(table, values),
        *unfinished(table),
        *free(table, now, values),
    ]
    text = (
        f"SELECT q.{table.id.sql}, {'NULL' if group is None else f'q.{group.sql}'} "
        f"FROM {table.sql} AS q{table.dialect.by_id(table)}{_where(conditions)}"
    )
    return Statement("dead lock", text + table.dialect.lock_rows, values.given)


def requeue(table: Table, ids: Sequence[Any], group: str, *, now: Any) -> Statement:
    """Give locked rows back to a group of their table, as if they had never been tried. The due time
    stays where it has come, and with it the row's place."""
    values, column = Values(), table.get(Role.GROUP)
    sets = [f"{column.sql} = {values.add(column.encode(group), column)}"]
    sets += [
        f"{table.get(role).sql} = {value}" for role, value in _anew(table, now, values).items()
    ]
    text = f"UPDATE {table.sql}{table.dialect.by_id(table)} SET {', '.join(sets)}"
    return Statement("requeue", text + _by_ids(table, ids, values), values.given, False)


def purge(table: Table, ids: Sequence[Any]) -> Steps[int]:
    """Delete locked rows; returns how many.

    MariaDB and MySQL take no hint for a DELETE of several rows that keeps them from reading a small
    table whole, and from waiting for what others have locked in it: there it is one row at a time.
    """
    deleted = 0
    for some in [[id] for id in ids] if table.dialect.by_id(table) else [ids]:
        values = Values()
        text = f"DELETE FROM {table.sql}{_by_ids(table, some, values)}"
        answer = yield Statement("purge", text, values.given, False)
        deleted += answer.rowcount
    return deleted


def live(target: Table, ids: Sequence[Any]) -> Statement:
    """Read which ids a table has."""
    values = Values()
    text = f"SELECT {target.id.sql} FROM {target.sql}{_by_ids(target, ids, values)}"
    return Statement("requeue check", text, values.given)


def move_back(table: Table, target: Table, ids: Sequence[Any], *, now: Any) -> Steps[None]:
    """Move locked rows to another table, as if they had never been tried; every other column as it
    stands.

    Raises:
        DatabaseError: The database copied another number of rows than it deleted.
    """
    values = Values()
    anew = {target.get(role).name: sql for role, sql in _anew(target, now, values).items()}
    stored = [info.name for info in target.stored()]
    taken = [
        next((sql for name, sql in anew.items() if target.info.same(name, column)), None)
        or table.dialect.quote(column)
        for column in stored
    ]
    copied = yield Statement(
        "requeue insert",
        f"INSERT INTO {target.sql} ({', '.join(map(table.dialect.quote, stored))}) "
        f"{table.dialect.keep_ids}SELECT {', '.join(taken)} FROM {table.sql}"
        f"{_by_ids(table, ids, values)}",
        values.given,
        returns_rows=False,
    )
    deleted = yield from purge(table, ids)
    if copied.rowcount != deleted:
        raise DatabaseError(
            f"requeuing {deleted} rows of {table.spec.name!r} copied {copied.rowcount} to "
            f"{target.spec.name!r} (a trigger?); nothing was moved",
            statement="requeue insert",
        )


def _anew(table: Table, now: Any, values: Values) -> dict[Role, str]:
    """What makes a row one that was never tried, by roles that the table has."""
    anew: dict[Role, str] = {}
    if table.find(Role.ATTEMPT) is not None:
        anew[Role.ATTEMPT] = "1"
    if table.find(Role.LOCKED_UNTIL) is not None:
        anew[Role.LOCKED_UNTIL] = "NULL"
    due = table.find(Role.RETRY_AFTER)
    if due is not None:
        at = values.add(now, due)
        anew[Role.RETRY_AFTER] = f"CASE WHEN {due.sql} > {at} THEN {at} ELSE {due.sql} END"
    return anew


def _by_ids(table: Table, ids: Sequence[Any], values: Values) -> str:
    return f" WHERE {table.id.sql} IN ({values.add_all(ids, table.id)})"


def _where(conditions: Iterable[str]) -> str:
    text = " AND ".join(conditions)
    return f" WHERE {text}" if text else ""
