"""The statements of one subscription that serves all groups of a table, and who makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.rounds import Turn

from .lease import Row
from .statement import Statement, Steps
from .table import Table

__all__ = ["EveryGroupStatements", "Look", "Others", "get_every_group"]


@dataclass(frozen=True, slots=True)
class Others:
    """Groups that a subscription of every group leaves to others."""

    groups: tuple[str, ...] = ()
    """Those that have a subscription of their own, or are some subscription's dead letter."""
    shape: GroupShape | None = None
    """How its own dead letters are called."""


@dataclass(frozen=True, slots=True)
class Look:
    """Where a claim looks for groups with a due head."""

    after: str | None
    """Behind this one, in the database's order of names; None: from the first."""
    served: Sequence[str]
    """Those that had their turn in this round: they come last."""
    limit: int
    """Most groups that it answers."""
    without: Sequence[str] = ()
    """Groups that it is to leave out, besides those of others."""
    aside: Sequence[Any] = ()
    """Ids of rows that are no heads: claims pass over them."""


class EveryGroupStatements(Protocol):
    """SQL that claims from all groups of one table, in one transaction. Values are the driver's, both
    ways; what is claimed is renewed and settled as the rows of a single group are.

    In the row lock form it only looks: `RowLockStatements.of_group` takes."""

    def look(self, look: Look, *, now: Any) -> Statement:
        """Read which groups have a due head, and where the look ended.

        Answers at least one row: a group or NULL; whether it was served; the group at which the look
        stopped, or NULL where it came to the end of the table. Groups that were not served come
        first; then it goes by the claim keys of the heads.
        """
        ...

    def guard(self, turns: Sequence[Turn], limit: int) -> Statement | None:
        """Keep other claims away from `limit` of these FIFO groups until the transaction ends, in
        their order; answers those that it got. None: nothing has to be kept away."""
        ...

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
        """Lease due rows of these groups, `limit` in all and of one group at most `most`.

        Returns them round by round, as `LeaseStatements.claim` does: of each group a first row, in
        the order of the turns, then of each a second. FIFO groups go on without the rows `aside`; as
        there, a head that cannot be read is not leased.
        """
        ...


def get_every_group(table: Table, *, cap: int | None, others: Others) -> EveryGroupStatements:
    """The statements for a table.

    Args:
        table: Has groups; a lease, or nothing but its rows to lock.
        cap: Most attempts, or None.
        others: What is not served.

    Raises:
        DialectError: The database cannot tell the table's groups apart.
    """
    # Imported here: both are made of this module's port.
    if table.dialect.name == "postgres":
        from .postgres.every_group import PostgresEveryGroup  # noqa: PLC0415

        return PostgresEveryGroup(table, cap=cap, others=others)
    if table.dialect.name == "sqlite":
        from .sqlite.every_group import SqliteEveryGroup  # noqa: PLC0415

        return SqliteEveryGroup(table, cap=cap, others=others)
    from .mysql.every_group import MysqlEveryGroup  # noqa: PLC0415

    return MysqlEveryGroup(table, cap=cap, others=others)
