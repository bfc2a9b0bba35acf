"""Which index each statement that locks rows goes by.

Left to itself the optimizer reads a small table whole, or by its id where the claim order ends in it.
That is as fast, but it locks what it reads: a claim then holds every due row for as long as it takes,
and a settlement waits for rows that are none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inboxkit._core.spec import Role
from inboxkit._sql.branches import Part
from inboxkit._sql.info import IndexInfo
from inboxkit._sql.statement import Answer, Statement, Steps
from inboxkit._sql.table import Table
from inboxkit.errors import DatabaseError

from . import names
from .errors import NO_SUCH_INDEX, is_numbered

__all__ = ["Hints"]


class Hints:
    """``FORCE INDEX`` by the indexes that the table had at start-up."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._info = table.info
        spec = table.spec
        self._group = spec.group.name if spec.group is not None else None
        self._even = [one.name for one in (spec.group, spec.processed_at) if one is not None]
        lease = spec.locked_until
        self._lease = [lease.name] if lease is not None else []
        self.are_given = True
        """False once an index was found to be gone: the optimizer then chooses."""

    def ask(self, make: Callable[[], Statement]) -> Steps[Answer]:
        """Send a statement; without hints, from then on, where an index of theirs is gone."""
        try:
            return (yield make())
        except DatabaseError as error:
            if not self.are_given or not is_numbered(error, NO_SUCH_INDEX):
                raise
        self.are_given = False
        return (yield make())

    @property
    def by_id(self) -> str:
        """For rows that are named by their ids."""
        found = [
            index
            for index in self._info.indexes
            if index.unique
            and len(index.columns) == 1
            and self._info.same(index.columns[0], self._table.id.name)
        ]
        return self._force(max(found, key=lambda index: index.name == "PRIMARY", default=None))

    @property
    def leased(self) -> str:
        """For the rows of a group by the ends of their leases."""
        return self._force(self._best(self._even, self._lease))

    def waiting(self, part: Part) -> str:
        """For one part of a claim."""
        if part.lease == "ended":
            return self.leased
        roles = [Role.PRIORITY, Role.RETRY_AFTER, Role.ID]
        even = [*self._even, *self._lease] if part.lease == "free" else list(self._even)
        due = self._table.find(Role.RETRY_AFTER)
        if part.has_no_due and due is not None:
            even.append(due.name)
            roles.remove(Role.RETRY_AFTER)
        columns = [self._table.find(role) for role in roles]
        order = [column.name for column in columns if column is not None]
        return self._force(self._best(even, order))

    def _best(self, even: Sequence[str], order: Sequence[str]) -> IndexInfo | None:
        """The index that has most of `order` behind columns that are compared with one value."""
        scored = [(self._score(index, even, order), index) for index in self._info.indexes]
        score, best = max(scored, key=lambda pair: pair[0], default=((0, 0), None))
        return best if score > (0, 0) else None

    def _score(
        self, index: IndexInfo, even: Sequence[str], order: Sequence[str]
    ) -> tuple[int, int]:
        at = 0
        while at < len(index.columns) and self._is_one_of(index.columns[at], even):
            at += 1
        if self._group is not None and not self._is_one_of(self._group, index.columns[:at]):
            return 0, 0
        behind = 0
        for column, wanted in zip(index.columns[at:], order, strict=False):
            if not self._info.same(column, wanted):
                break
            behind += 1
        return (at, behind) if behind or at else (0, 0)

    def _is_one_of(self, name: str, names_: Sequence[str]) -> bool:
        return any(self._info.same(name, other) for other in names_)

    def _force(self, index: IndexInfo | None) -> str:
        if index is None or not index.name or not self.are_given:
            return ""
        return f" FORCE INDEX ({names.quote(index.name)})"
