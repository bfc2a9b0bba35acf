"""All groups of a table in one claim on SQLite: under the write lock, so that nothing is to be guarded.

The look goes from group to group by the index and ends after a number of groups, so that its cost
does not grow with theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inboxkit._core.rounds import Turn
from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, is_apart
from inboxkit._sql.every_group import Look, Others
from inboxkit._sql.lease import Row, claim_threshold
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table

from . import values
from .claim import claim_select, claim_update, fifo, keys, leased, unfinished

__all__ = ["SqliteEveryGroup"]

STEPS: Final = 256
"""Groups that one look goes to."""


class SqliteEveryGroup:
    """Statements for all groups of one table."""

    def __init__(self, table: Table, *, cap: int | None, others: Others) -> None:
        self._table = table
        self._group = table.get(Role.GROUP).sql
        self._threshold = claim_threshold(cap, values.LARGEST)
        self._others = others
        names = [column.sql for column in table.columns]
        self._keys = [names.index(name) for name in keys(table)]

    def look(self, look: Look, *, now: Any) -> Statement:
        """Go from group to group."""
        given: list[Any] = [now]

        def place(value: Any) -> str:
            given.append(value)
            return f"${len(given)}"

        after = None if look.after is None else place(look.after)
        walk = (
            f"SELECT {self._next(after)}, 1 UNION ALL SELECT {self._next('walk.name')}, walk.step + 1 "
            f"FROM walk WHERE walk.name IS NOT NULL AND walk.step < {STEPS}"
        )
        served = f"walk.name IN ({', '.join(map(place, look.served))})"
        others = f"walk.name NOT IN ({', '.join(map(place, self._others.groups))})"
        is_ours = " AND ".join((others, *self._has_no_shape(place)))
        order = ", ".join(f"q.{name}" for name in keys(self._table))
        found = (
            f"SELECT walk.name, {served} AS is_served, "
            f"row_number() OVER (ORDER BY {served}, {order}) AS place "
            f"FROM walk CROSS JOIN {self._table.sql} AS q "
            f"WHERE {is_ours} AND {self._is_head([*map(place, look.aside)])} ORDER BY place LIMIT {int(look.limit)}"
        )
        stop = f"SELECT (SELECT walk.name FROM walk WHERE walk.step = {STEPS}) AS name"
        text = (
            f"WITH RECURSIVE walk(name, step) AS MATERIALIZED ({walk}) "
            f"SELECT found.name, found.is_served, stop.name FROM ({stop}) AS stop "
            f"LEFT JOIN ({found}) AS found ON true ORDER BY found.place"
        )
        return Statement("claim look", text, tuple(given))

    def _next(self, name: str | None) -> str:
        """The group that follows; each index that holds some of the rows is asked by itself."""
        # Text alone: NULL and numbers sort before it, and what is no text after.
        behind = "q.{0} >= ''" if name is None else f"q.{{0}} > {name}"
        behind = f"{behind} AND q.{{0}} < x''".format(self._group)
        table, id_ = self._table.sql, self._table.id.sql
        nexts = [
            f"FROM {table} AS q WHERE {' AND '.join((behind, *part, *unfinished(self._table)))} "
            f"ORDER BY q.{self._group} LIMIT 1"
            for part in self._parts()
        ]
        if len(nexts) == 1:
            return f"(SELECT q.{self._group} {nexts[0]})"
        # Not min(): it would not compare by the column's collation.
        ids = ", ".join(f"(SELECT q.{id_} {one})" for one in nexts)
        return (
            f"(SELECT q.{self._group} FROM {table} AS q WHERE q.{id_} IN ({ids}) "
            f"ORDER BY q.{self._group} LIMIT 1)"
        )

    def _parts(self) -> Iterator[tuple[str, ...]]:
        if self._table.spec.fifo or not is_apart(self._table, Role.LOCKED_UNTIL):
            yield ()
            return
        lease = self._table.get(Role.LOCKED_UNTIL).sql
        yield (f"q.{lease} IS NULL",)
        yield (f"q.{lease} IS NOT NULL",)

    def _has_no_shape(self, place: Any) -> Iterator[str]:
        shape = self._others.shape
        if shape is None:
            return
        before, after = len(shape.prefix), len(shape.suffix)
        conditions = [f"length(walk.name) >= {before + after}"]
        if before:
            conditions.append(f"substr(walk.name, 1, {before}) = {place(shape.prefix)}")
        if after:
            conditions.append(f"substr(walk.name, -{after}) = {place(shape.suffix)}")
        yield f"NOT ({' AND '.join(conditions)})"

    def _is_head(self, aside: Sequence[str]) -> str:
        """Row `q` is a head that is due, of a group that can be served."""
        table = self._table
        if table.spec.fifo:
            return " AND ".join(fifo(table, "walk.name", aside=aside))
        names = ", ".join(f"q.{name}" for name in keys(table))
        order = f"ORDER BY {names} LIMIT 1"
        base = " AND ".join((f"q.{self._group} = walk.name", *unfinished(table)))
        parts = [
            f"SELECT {names} FROM {table.sql} AS q WHERE {base} AND {part.condition} {order}"
            for part in branches(table, "$1", "$1")
        ]
        union = " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts)
        return f"q.{table.id.sql} = (SELECT q.{table.id.sql} FROM ({union}) AS q {order})"

    def guard(self, turns: Sequence[Turn], limit: int) -> Statement | None:  # noqa: ARG002
        """The write lock keeps everybody away."""
        return None

    def take(
        self,
        turns: Sequence[Turn],
        *,
        now: Any,
        expiry: Any,
        limit: int,
        most: int,
        aside: Sequence[Any] = (),
    ) -> Steps[Sequence[Row]]:
        """Read each group's rows as the claim of a single group does, then lease them by id."""
        text = claim_select(self._table, most, has_group=True, aside=len(aside))
        found: list[tuple[int, Row]] = []
        for turn in turns:
            answer = yield Statement("claim due", text, (now, turn.group, *aside))
            found += [(n + turn.is_again, row) for n, row in enumerate(answer.rows)]
        found.sort(key=lambda one: (one[0], [_sort_key(one[1][n]) for n in self._keys]))
        rows = [row for _turn, row in found[:limit]]
        ids = leased(self._table, rows)
        if ids:
            update = claim_update(self._table, len(ids), threshold=self._threshold)
            yield Statement("claim", update, (expiry, *ids), returns_rows=False)
        return rows


def _sort_key(value: Any) -> tuple[Any, ...]:
    """As SQLite orders values of different types."""
    if value is None:
        return (0,)
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, bytes(value))
