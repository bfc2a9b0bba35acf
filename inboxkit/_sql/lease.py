"""The statements of the lease form, as its verbs ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role

from .info import ColumnInfo
from .statement import Statement, Steps, Transaction
from .table import Table

__all__ = ["RELEASE", "Held", "LeaseStatements", "Write", "claim_threshold", "largest_attempt"]


@dataclass(frozen=True, slots=True)
class Write:
    """What is written over a row's lease; rows with equal writes share a statement."""

    verb: Verb | Literal["release"]
    destination: Destination | None = None
    """MOVE: where to."""

    @property
    def name(self) -> str:
        """The statement's short name."""
        return self.verb if isinstance(self.verb, str) else self.verb.value


RELEASE = Write("release")
"""Back at once; `Held.value` is how many attempts are taken back, 0 or 1."""


@dataclass(frozen=True, slots=True)
class Held:
    """One row under a lease, as driver values."""

    id: Any
    tokens: tuple[Any, ...]
    attempt: int | None
    value: Any = None
    """What this row is given: the new expiry or due time, or the attempts taken back."""


Row: TypeAlias = tuple[Any, ...]


class LeaseStatements(Protocol):
    """SQL of one queue in the lease form. Values are the driver's, both ways."""

    @property
    def claim_transaction(self) -> Transaction:
        """What a claim's script runs in."""
        ...

    @property
    def locks_rows(self) -> bool:
        """Whether other writers lock single rows: a row that a renewal did not find may then be
        locked rather than lost."""
        ...

    @property
    def alone(self) -> tuple[Statement, ...]:
        """What begins a transaction in which each write stands under its own savepoint."""
        ...

    def claim(
        self, *, now: Any, expiry: Any, limit: int, aside: Sequence[Any] = ()
    ) -> Steps[Sequence[Row]]:
        """Lease due rows; returns them in claim order, as they stood before: one value for each
        of the table's described columns. A FIFO head that cannot be read (`Table.is_readable`) is
        returned and not leased.

        Args:
            now: The clock's reading.
            expiry: Of the new leases.
            limit: Most rows.
            aside: Ids of rows that cannot be read: their FIFO group goes on without them.
        """
        ...

    def renew(self, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Give each row that holds one of its tokens, and that nobody has locked, the expiry
        `value`; returns the ids."""
        ...

    def still_held(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Read which rows hold one of their tokens; answers the ids."""
        ...

    def transaction(self, write: Write, count: int) -> Transaction:
        """What a script that writes nothing but this, of so many rows, runs in: one statement may
        commit by itself."""
        ...

    def write(self, write: Write, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Write rows that hold one of their tokens; returns their ids."""
        ...

    def unfinished(self, ids: Sequence[Any]) -> Statement:
        """Read which rows are there and not finished; answers the ids."""
        ...


def claim_threshold(cap: int | None, largest: int) -> int:
    """The attempt above which a claim does not count: the cap, or the column's last number less one.

    Args:
        cap: Most attempts, or None.
        largest: What the attempt column can hold.
    """
    return largest - 1 if cap is None else min(cap, largest - 1)


_LARGEST: Final = {
    "tinyint": 2**7 - 1,
    "smallint": 2**15 - 1,
    "mediumint": 2**23 - 1,
    "int": 2**31 - 1,
    "integer": 2**31 - 1,
}


def largest_number(info: ColumnInfo) -> int:
    """What a column of whole numbers can hold."""
    signed = _LARGEST.get(info.family, 2**63 - 1)
    return 2 * signed + 1 if info.unsigned else signed


def largest_attempt(table: Table) -> int:
    """What the table's attempt column can hold; without one, 0."""
    column = table.find(Role.ATTEMPT)
    return 0 if column is None else largest_number(column.info)
