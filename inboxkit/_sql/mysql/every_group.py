"""All groups of a table in one claim on MariaDB and MySQL.

A claim is one transaction: it looks which groups have a due head, locks due rows group by group as the
claim of a single group does, and leases them. Of FIFO groups it takes the heads together (see `heads`).

The look goes from group to group by the index, which both servers do for a GROUP BY; a subselect for the
group behind another's name would begin at the first one each time. Neither server joins a row with the
best of several parts of a table (MariaDB has no LATERAL), so each part's best row is found by its id,
and the best of them by a window. There they find rows of a group by its name alone, never by a range of
times behind it, so that no condition on times may stand between them and the first row that is wanted:
the walk answers each group's least and greatest end of a lease, and a first due time is judged once the
row is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from inboxkit._core.rounds import Turn
from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, together
from inboxkit._sql.every_group import Look, Others
from inboxkit._sql.lease import Row
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table
from inboxkit.errors import DialectError

from .claim import in_group, order, unfinished, without
from .held import Parameters
from .lease import MysqlLease

__all__ = ["MysqlEveryGroup"]

STEPS: Final = 128
"""Groups that one look goes to."""
_KEYS: Final = (Role.PRIORITY, Role.RETRY_AFTER, Role.ID)


class MysqlEveryGroup:
    """Statements for all groups of one table.

    Raises:
        DialectError: The table's collation takes groups for one that are different.
    """

    def __init__(self, table: Table, *, cap: int | None, others: Others) -> None:
        group = table.get(Role.GROUP)
        if not group.info.collation.endswith("_bin"):
            kind = (
                f"{group.info.type} COLLATE utf8mb4_bin{'' if group.info.nullable else ' NOT NULL'}"
            )
            raise DialectError(
                f"table {table.spec.name!r}: column {group.name!r} has the collation "
                f"{group.info.collation}, by which names are compared without case or accents, so that "
                "its groups cannot be gone through one by one; ALTER TABLE "
                f"{table.sql} MODIFY {group.sql} {kind}, or include a subscription for each group"
            )
        self._table = table
        self._group = group
        self._others = [group.encode(name) for name in others.groups]
        self._shape = others.shape
        self._has_lease = table.find(Role.LOCKED_UNTIL) is not None
        self._cap = cap
        roles = [column.role for column in table.columns]
        self._keys = [roles.index(role) for role in _KEYS if role in roles]

    def look(self, look: Look, *, now: Any) -> Statement:
        """Go from group to group."""
        values = Parameters()
        at = values.add(now) if self._has_times() else ""
        walk = self._walk(None if look.after is None else values.add(look.after))
        keys = [column.sql for role in _KEYS if (column := self._table.find(role)) is not None]
        places = ", ".join(f"heads.{key}" for key in keys)
        heads = " UNION ALL ".join(
            f"SELECT walk.name, {', '.join(f'q.{key}' for key in keys)} FROM walk "
            f"JOIN {self._table.sql} AS q ON {' AND '.join(conditions)}"
            for conditions in self._heads(at, [values.add(id) for id in look.aside])
        )
        others = [*self._others, *look.without]
        is_ours = "".join(f" AND {one}" for one in self._is_ours("best.name", others, values))
        served = _is_one_of("best.name", look.served, values)
        best = ", ".join(f"best.{key}" for key in keys)
        found = (
            f"SELECT best.name, {served} AS is_served, "
            f"ROW_NUMBER() OVER (ORDER BY {served}, {best}) AS place "
            "FROM (SELECT heads.*, "
            f"ROW_NUMBER() OVER (PARTITION BY heads.name ORDER BY {places}) AS nth "
            f"FROM ({heads}) AS heads) AS best WHERE best.nth = 1{is_ours} "
            f"ORDER BY place LIMIT {int(look.limit)}"
        )
        stop = f"SELECT (SELECT MAX(walk.name) FROM walk HAVING COUNT(*) = {STEPS}) AS name"
        text = (
            f"WITH walk AS ({walk}) "
            f"SELECT found.name, found.is_served, stop.name FROM ({stop}) AS stop "
            f"LEFT JOIN ({found}) AS found ON TRUE ORDER BY found.place"
        )
        return Statement("claim look", text, values.values)

    def _walk(self, after: str | None) -> str:
        """The groups that follow, each with the first end of a lease where that is wanted."""
        group, table = self._group.sql, self._table
        behind = f"q.{group} IS NOT NULL" if after is None else f"q.{group} > {after}"
        first_end = ""
        if self._has_lease and not table.spec.fifo:
            first_end = f", MIN(q.{table.get(Role.LOCKED_UNTIL).sql}) AS first_end"
        return (
            f"SELECT q.{group} AS name{first_end} FROM {table.sql} AS q "
            f"WHERE {' AND '.join((behind, *unfinished(table, 'q')))} "
            f"GROUP BY q.{group} ORDER BY q.{group} LIMIT {STEPS}"
        )

    def _heads(self, now: str, aside: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Conditions on a row `q` that may be a group's head and due, by parts of the table."""
        table, id_ = self._table, self._table.id.sql
        if table.spec.fifo:
            is_due = together(table, now, now)
            first = (f"q.{id_} = {self._first(aside)}", *((is_due,) if is_due else ()))
            yield (*first, f"NOT {self._in_work(now, aside)}") if self._has_lease else first
            return
        parts = list(branches(table, now, now))
        if table.find(Role.PRIORITY) is None:
            # The first of all that are free is due, or none of them is.
            is_apart = parts[-1].lease == "ended"
            free = f"q.{table.get(Role.LOCKED_UNTIL).sql} IS NULL" if is_apart else ""
            if self._has_lease and not is_apart:
                free = together(table, now, now)
            found = self._first(aside, free, is_free=is_apart)
            yield (f"q.{id_} = {found}", together(table, now, now) or "TRUE")
            parts = [part for part in parts if part.lease == "ended"]
        for part in parts:
            found = self._first(aside, part.condition, is_free=part.lease == "free")
            if part.lease == "ended":
                found = f"IF(walk.first_end <= {now}, {found}, NULL)"
            yield (f"q.{id_} = {found}",)

    def _first(self, aside: Sequence[str], part: str = "", *, is_free: bool = False) -> str:
        """The id of the first row of a group. Its order names all that the index has before it, which
        is the same in all rows: only then MySQL takes it from there, where MariaDB then sorts.

        Args:
            aside: Placeholders of ids that are passed over.
            part: A condition on row `q`; empty for none.
            is_free: None of the rows has a lease.
        """
        table = self._table
        where = " AND ".join((*self._of_group("q", aside), *([part] if part else ())))
        roles = [Role.GROUP, Role.PROCESSED_AT, *([Role.LOCKED_UNTIL] if is_free else [])]
        before = [column for role in roles if (column := table.find(role)) is not None]
        even = "".join(f"q.{column.sql}, " for column in before if table.info.server == "mysql")
        return (
            f"(SELECT q.{table.id.sql} FROM {table.sql} AS q "
            f"WHERE {where} ORDER BY {even}{order(table, 'q')} LIMIT 1)"
        )

    def _in_work(self, now: str, aside: Sequence[str]) -> str:
        """That a row of the group is under a lease in force: the one that ends last is."""
        table = self._table
        roles = (Role.GROUP, Role.PROCESSED_AT, Role.LOCKED_UNTIL)
        names = [f"w.{column.sql}" for role in roles if (column := table.find(role)) is not None]
        last = (
            f"SELECT {names[-1]} FROM {table.sql} AS w "
            f"WHERE {' AND '.join(self._of_group('w', aside))} "
            f"ORDER BY {', '.join(f'{name} DESC' for name in names)} LIMIT 1"
        )
        return f"COALESCE(({last}) > {now}, FALSE)"

    def _of_group(self, alias: str, aside: Sequence[str]) -> Iterator[str]:
        """What a row has to be that the walk's group may have to offer."""
        yield in_group(self._table, alias, "walk.name")
        yield from unfinished(self._table, alias)
        yield from without(self._table, alias, aside)

    def _is_ours(self, name: str, others: Sequence[str], values: Parameters) -> Iterator[str]:
        if others:
            yield f"NOT {_is_one_of(name, others, values)}"
        if self._shape is None:
            return
        before, after = self._shape.prefix, self._shape.suffix
        conditions = [f"CHAR_LENGTH({name}) >= {len(before) + len(after)}"]
        if before:
            start = f"CAST(LEFT({name}, {len(before)}) AS BINARY)"
            conditions.append(f"{start} = {_exact(before, values)}")
        if after:
            end = f"CAST(RIGHT({name}, {len(after)}) AS BINARY)"
            conditions.append(f"{end} = {_exact(after, values)}")
        yield f"NOT ({' AND '.join(conditions)})"

    def _has_times(self) -> bool:
        return self._has_lease or self._table.find(Role.RETRY_AFTER) is not None

    @cached_property
    def _lease(self) -> MysqlLease:
        return MysqlLease(self._table, group=None, cap=self._cap)

    def guard(self, turns: Sequence[Turn], limit: int) -> Statement | None:  # noqa: ARG002
        """FIFO groups are checked after their heads were leased."""
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
        """Lock and lease: group by group, or all heads of FIFO groups together."""
        lease = self._lease
        if self._table.spec.fifo:
            groups = [self._group.encode(turn.group) for turn in turns]
            return (yield from lease.heads.claim(groups, now=now, expiry=expiry, aside=aside))
        found: list[tuple[int, Row]] = []
        for turn in turns:
            locked = yield from lease.of_group(turn.group).lock_due(now, most)
            found += [(n + turn.is_again, row) for n, row in enumerate(locked)]
        found.sort(key=lambda one: (one[0], [_sort_key(one[1][n]) for n in self._keys]))
        rows = [row for _turn, row in found[:limit]]
        if rows:
            yield lease.stamp([row[0] for row in rows], expiry)
        return rows


def _is_one_of(name: str, names: Sequence[str], values: Parameters) -> str:
    if not names:
        return "FALSE"
    exact = ", ".join(_exact(one, values) for one in names)
    return f"(CAST({name} AS BINARY) IN ({exact}))"


def _exact(text: str, values: Parameters) -> str:
    return f"CAST({values.add(text)} AS BINARY)"


def _sort_key(value: Any) -> tuple[Any, ...]:
    """NULL first, as the servers have it."""
    return () if value is None else (value,)
