"""The forms whose hold is a session: it has the row locked, or a key that is made of the row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from inboxkit._core.settlement import Settlement
from inboxkit.abc import Fence, Reading, Renewal, Settled

from .form import ModelForm
from .table import Hold, ModelRow

__all__ = ["ModelAdvisory", "ModelRowLock"]


class _Held(ModelForm):
    """One row a claim and a session. When the session ends, so does the hold, and nothing is
    written."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._numbers: set[int] = set()

    @property
    def lease(self) -> None:
        """The hold is a connection."""
        return None

    def _most(self, limit: int) -> int:
        return min(limit, 1)

    async def renew(
        self,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        timeout: float,  # noqa: ARG002
    ) -> Renewal:
        """Tell which sessions have ended."""
        lost = frozenset(f.id for f, _ in holds if f.hold not in self._database.holds)
        return Renewal(None, lost=lost)

    async def close(self) -> None:
        """Rows still in work are back, as after a crash."""
        for number in self._numbers:
            self._database.holds.pop(number, None)

    def _settle(self, fence: Fence, settlement: Settlement) -> Settled:
        row = self._let_go(fence)
        if isinstance(row, Settled):
            return row
        return self._write(row, settlement, self._read_clock().now)

    def _release(self, fence: Fence, *, give_back: bool) -> Settled:
        row = self._let_go(fence)
        if isinstance(row, Settled):
            return row
        self._end_unsettled(row, give_back=give_back)
        return Settled("written", self._read_clock().now)

    @abstractmethod
    def _end_unsettled(self, row: ModelRow, *, give_back: bool) -> None:
        """Make the attempt what it should be."""

    def _hold(self, hold: Hold, attempt: int | None) -> Fence:
        number = self._database.hold(hold)
        self._numbers.add(number)
        return Fence(hold.row.id, (), attempt, number)

    def _let_go(self, fence: Fence) -> ModelRow | Settled:
        """The row, whose session is free with this settlement; or why nothing may be written."""
        hold = None if fence.hold is None else self._database.holds.pop(fence.hold, None)
        if hold is None:
            return Settled("lost")
        row = hold.row
        there = row in self._table.rows and not row.is_finished
        return row if there else Settled("gone")


class ModelRowLock(_Held):
    """Writes nothing at the claim, and counts when the delivery ends: a crash does not count."""

    def _is_free(self, row: ModelRow, now: datetime) -> bool:  # noqa: ARG002
        return all(hold.row is not row for hold in self._database.holds.values())

    def _take(self, row: ModelRow, now: datetime) -> Fence:  # noqa: ARG002
        attempt = row.attempt if isinstance(row.attempt, int) else None
        return self._hold(Hold(row), attempt)

    def _give_back(self, row: ModelRow, now: datetime) -> Settled:
        self._count(row)
        return super()._give_back(row, now)

    def _postpone(self, row: ModelRow, due: datetime) -> Settled:
        self._count(row)
        return super()._postpone(row, due)

    def _end_unsettled(self, row: ModelRow, *, give_back: bool) -> None:
        if not give_back:
            self._count(row)


class ModelAdvisory(_Held):
    """Holds a key, so that rows of one key are in work one at a time. Counts in the claim: a crash
    counts."""

    def _is_free(self, row: ModelRow, now: datetime) -> bool:  # noqa: ARG002
        key = self._key(row)
        return all(hold.key != key for hold in self._database.holds.values())

    def _take(self, row: ModelRow, now: datetime) -> Fence:  # noqa: ARG002
        attempt = self._fenced_attempt(row)
        self._count(row)
        return self._hold(Hold(row, self._key(row)), attempt)

    def _end_unsettled(self, row: ModelRow, *, give_back: bool) -> None:
        if give_back and self._counts:
            row.attempt -= 1

    def _key(self, row: ModelRow) -> str:
        """The key's text with the row's values in it; NULL is empty text."""
        values: dict[str, Any] = self._table.values(row)
        named = {name: values[column.name] for name, column in self._table.spec.names.items()}
        texts = {name: "" if value is None else value for name, value in named.items()}
        return (self._table.spec.advisory_lock or "").format_map(texts)
