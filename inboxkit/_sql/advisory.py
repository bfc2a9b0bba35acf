"""The statements of the advisory lock form, as its verbs ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from .lease import Held, Row, Write
from .statement import Statement, Steps, Transaction

__all__ = ["AdvisoryStatements", "AdvisoryWrites", "ProcessKeys", "SessionKeys"]


class AdvisoryWrites(Protocol):
    """What ends a row in work. By its id: the key that is locked is the fence."""

    def transaction(self, write: Write) -> Transaction:
        """What the write's script runs in."""
        ...

    def write(self, write: Write, row: Held, *, now: Any) -> Steps[bool]:
        """Write one unfinished row; whether it was there. `RELEASE` takes `Held.value` attempts
        back where the row has the attempt `Held.attempt` still."""
        ...


class SessionKeys(AdvisoryWrites, Protocol):
    """SQL of one queue where a session of the server holds the key."""

    @property
    def kept_by(self) -> Literal["session"]:
        """Who holds keys."""
        ...

    @property
    def may_miss(self) -> bool:
        """Whether `lock` looks no further than it has to, and may answer nothing although there is a key."""
        ...

    def lock(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Statement:
        """Get, without waiting, the key of the first due row in claim order whose key can be had; answers
        id and key, or nothing where it got none.

        Args:
            now: The clock's reading.
            limit: Among how many rows whose keys are nobody's it has to look at least.
            aside: Ids of rows that are passed over.
        """
        ...

    def unlock(self, key: Any) -> Statement:
        """Let a key go; answers whether it was held."""
        ...

    def nobodys(self, ids: Sequence[Any]) -> Statement:
        """Read which of these rows, that this transaction has locked, have a key that nobody has;
        answers their ids. Until the transaction ends nobody comes to work on one."""
        ...

    def take(self, id: Any, key: Any, *, now: Any) -> Steps[Sequence[Row]]:
        """Count a row that is claimable still and has this key still; returns it as it stood
        before: one value for each of the table's described columns."""
        ...


class ProcessKeys(AdvisoryWrites, Protocol):
    """SQL of one queue where this process holds the keys, and claims under the write lock."""

    @property
    def kept_by(self) -> Literal["process"]:
        """Who holds keys."""
        ...

    def candidates(
        self, *, now: Any, limit: int, keys: Sequence[str], ids: Sequence[Any]
    ) -> Statement:
        """Read due rows in claim order, but for these keys and ids: one value for each of the
        table's described columns, then the key."""
        ...

    def count(self, ids: Sequence[Any]) -> Statement | None:
        """Count rows as handed out; None: the table has no attempt column."""
        ...


AdvisoryStatements: TypeAlias = SessionKeys | ProcessKeys
