"""The statements of the row lock form, as its verbs ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .lease import Row, Write
from .statement import Statement, Steps

__all__ = ["RowLockStatements"]


class RowLockStatements(Protocol):
    """SQL of one queue in the row lock form. Values are the driver's, both ways.

    All of it runs inside a READ COMMITTED transaction, which the claim's locks last as long as.
    """

    def claim(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Steps[Sequence[Row]]:
        """Lock due rows that nobody has locked, and no others; of a FIFO group its head or nothing.

        Args:
            now: The clock's reading.
            limit: Most rows.
            aside: Ids, as the driver gave them, that are not to be taken.

        Returns:
            The rows in claim order: one value for each of the table's described columns.
        """
        ...

    def of_group(self, group: str) -> RowLockStatements:
        """The same for another group."""
        ...

    def after(self) -> Statement | None:
        """What lets go of all that a claim has left in its session besides the transaction; None:
        nothing."""
        ...

    def writes(self, write: Write) -> bool:
        """Whether a write changes anything; a table without attempts has none to count."""
        ...

    def write(self, write: Write, id: Any, *, value: Any, now: Any) -> Steps[bool]:
        """Write one locked row; whether it was found.

        Args:
            write: FINISH, GIVE_BACK (counts), POSTPONE (counts) or MOVE.
            id: The row's.
            value: POSTPONE: the new due time.
            now: The clock's reading.
        """
        ...
