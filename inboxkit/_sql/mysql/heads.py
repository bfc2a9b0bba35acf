"""The claim of FIFO groups in the lease form on MariaDB and MySQL: of each its head, or nothing.

The heads are locked and leased, and then it is checked that nobody else is at their groups. Each of these is
one statement for all groups (for every `AT_ONCE` of them), as one is for a single group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from inboxkit._core.spec import Role
from inboxkit._sql.lease import Row
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table
from inboxkit.errors import DatabaseBusyError

from .claim import claim_check, claim_heads
from .held import Parameters
from .hints import Hints

__all__ = ["AT_ONCE", "Heads"]

AT_ONCE: Final = 32
"""Groups in one statement: each is several parts of its text, for which the server opens the table anew."""


class Heads:
    """Statements for FIFO groups of one table; groups and ids are the driver's values.

    Args:
        table: Of the groups.
        hints: Its indexes.
        stamp: Makes the statement that leases and counts locked rows, of their ids and the expiry.
    """

    def __init__(
        self, table: Table, hints: Hints, stamp: Callable[[Sequence[Any], Any], Statement]
    ) -> None:
        self._table = table
        self._hints = hints
        self._stamp = stamp
        roles = [column.role for column in table.columns]
        self._group_at = roles.index(Role.GROUP) if table.spec.fifo else 0

    def claim(
        self, groups: Sequence[Any], *, now: Any, expiry: Any, aside: Sequence[Any]
    ) -> Steps[Sequence[Row]]:
        """Lease the heads that are due, of groups at which nobody is; in the order of the groups.

        A head that cannot be read is answered too, and not leased.
        """
        rows: list[Row] = []
        for start in range(0, len(groups), AT_ONCE):
            part = groups[start : start + AT_ONCE]
            rows += yield from self._claim(part, now=now, expiry=expiry, aside=aside)
        return tuple(rows)

    def _claim(
        self, groups: Sequence[Any], *, now: Any, expiry: Any, aside: Sequence[Any]
    ) -> Steps[Sequence[Row]]:
        found = yield from self._hints.ask(lambda: self._due(groups, now, aside))
        places = {group: place for place, group in enumerate(groups)}
        rows = sorted(found.rows, key=lambda row: places.get(row[self._group_at], 0))
        leased = [row for row in rows if self._table.is_readable(row)]
        if not leased:
            return rows
        yield self._stamp([row[0] for row in leased], expiry)
        taken = yield from self._taken(leased, now, expiry, aside)
        if taken:
            yield self._undo([row for row in leased if row[0] in taken], expiry)
        return [row for row in rows if row[0] not in taken]

    def _due(self, groups: Sequence[Any], now: Any, aside: Sequence[Any]) -> Statement:
        values = Parameters()
        at = values.add(now)
        named = [values.add(group) for group in groups]
        left = [values.add(id) for id in aside]
        text = claim_heads(self._table, self._hints, named, now=at, aside=left)
        return Statement("claim due", text, values.values)

    def _taken(
        self, heads: Sequence[Row], now: Any, expiry: Any, aside: Sequence[Any]
    ) -> Steps[set[Any]]:
        """The ids of those at whose groups another claim is."""
        try:
            answer = yield from self._hints.ask(lambda: self._check(heads, now, expiry, aside))
        except DatabaseBusyError:
            if len(heads) == 1:
                return {heads[0][0]}
        else:
            return {heads[row[0]][0] for row in answer.rows}
        # One of them is locked; which one is not told.
        taken: set[Any] = set()
        for head in heads:
            taken |= yield from self._taken([head], now, expiry, aside)
        return taken

    def _check(
        self, heads: Sequence[Row], now: Any, expiry: Any, aside: Sequence[Any]
    ) -> Statement:
        values = Parameters()
        at, end = values.add(now), values.add(expiry)
        named = [(values.add(row[self._group_at]), values.add(row[0])) for row in heads]
        left = [values.add(id) for id in aside]
        text = claim_check(self._table, self._hints, named, now=at, expiry=end, aside=left)
        return Statement("claim check", text, values.values)

    def _undo(self, rows: Sequence[Row], expiry: Any) -> Statement:
        """Put back what the claim wrote. Only over its own leases: the transaction may be gone."""
        values = Parameters()
        table, id_ = self._table, self._table.id.sql
        ids = [values.add(row[0]) for row in rows]
        sets = []
        for at, column in enumerate(table.columns):
            if column.role in (Role.LOCKED_UNTIL, Role.ATTEMPT):
                before = [values.add(row[at]) for row in rows]
                cases = zip(ids, before, strict=True)
                told = "".join(f" WHEN {id} THEN {value}" for id, value in cases)
                value = before[0] if len(rows) == 1 else f"CASE {id_}{told} END"
                sets.append(f"{column.sql} = {value}")
        text = (
            f"UPDATE {table.sql}{self._hints.by_id} SET {', '.join(sets)} "
            f"WHERE {id_} IN ({', '.join(ids)}) "
            f"AND {table.get(Role.LOCKED_UNTIL).sql} = {values.add(expiry)}"
        )
        return Statement("claim undo", text, values.values, returns_rows=False)
