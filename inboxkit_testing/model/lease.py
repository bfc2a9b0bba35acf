"""The lease form: an expiry in the row holds it, and is the fence of all that is written to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from inboxkit._core.settlement import Settlement
from inboxkit.abc import Fence, Reading, Renewal, Settled

from .form import ModelForm, later
from .table import ModelDatabase, ModelRow, ModelTable

__all__ = ["ModelLease"]


class ModelLease(ModelForm):
    """Counts in the claim: a crash counts, and the row is back when its lease ends."""

    def __init__(
        self,
        database: ModelDatabase,
        table: ModelTable,
        *,
        group: str | None,
        cap: int | None,
        lease: timedelta,
        step: int,
    ) -> None:
        super().__init__(database, table, group=group, cap=cap)
        self._lease = lease
        self._step = step

    @property
    def lease(self) -> timedelta:
        """How long a claim holds unrenewed."""
        return self._lease

    def _most(self, limit: int) -> int:
        return limit

    def _is_free(self, row: ModelRow, now: datetime) -> bool:
        return not row.is_leased(now)

    def _take(self, row: ModelRow, now: datetime) -> Fence:
        attempt = self._fenced_attempt(row)
        self._count(row)
        row.locked_until = self._expiry(now, self._lease)
        return Fence(row.id, (row.locked_until,), attempt)

    def _expiry(self, now: datetime, lease: timedelta) -> datetime:
        """An end that no other lease has: some microseconds late, never a millisecond."""
        self._step = self._step % 999 + 1
        return later(now, lease + timedelta(microseconds=self._step))

    async def renew(
        self,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        timeout: float,  # noqa: ARG002
    ) -> Renewal:
        """Prolong the leases that are still held, never to an earlier end than a steady clock gives."""
        if not holds:
            return Renewal(None)
        reading = self._read_clock()
        renewed: dict[object, datetime] = {}
        for fence, made in holds:
            row = self._table.find(fence.id)
            if row is None or not _holds(fence, row) or self._is_taken_over(row, reading.now):
                continue
            row.locked_until = self._expiry(self._start(fence, made, reading), self._lease)
            renewed[fence.id] = row.locked_until
        lost = frozenset(fence.id for fence, _ in holds if fence.id not in renewed)
        return Renewal(reading, renewed, lost=lost)

    def _start(self, fence: Fence, made: Reading, reading: Reading) -> datetime:
        """Now, or by how much the monotonic clock has gone on since the claim, if that is later."""
        elapsed = timedelta(seconds=reading.monotonic - made.monotonic)
        steady = later(fence.tokens[0], elapsed) - self._lease
        # What made the old end a token is no time that has passed.
        return steady if steady - reading.now >= timedelta(milliseconds=1) else reading.now

    def _is_taken_over(self, row: ModelRow, now: datetime) -> bool:
        """Another row of the FIFO group is in work."""
        return self._table.spec.fifo and any(
            other is not row and other.group == row.group and other.is_leased(now)
            for other in self._table.rows
        )

    def _settle(self, fence: Fence, settlement: Settlement) -> Settled:
        row = self._held(fence)
        if isinstance(row, Settled):
            return row
        row.locked_until = None
        return self._write(row, settlement, self._read_clock().now)

    def _release(self, fence: Fence, *, give_back: bool) -> Settled:
        row = self._held(fence)
        if isinstance(row, Settled):
            return row
        row.locked_until = None
        if give_back and self._counts:
            row.attempt -= 1
        return self._give_back(row, self._read_clock().now)

    def _keep_back(self, row: ModelRow, delay: timedelta, now: datetime) -> Settled:
        """Leased to nobody: the row keeps its place, and its group's."""
        row.locked_until = self._expiry(now, delay)
        return Settled("written", row.locked_until)

    def _held(self, fence: Fence) -> ModelRow | Settled:
        """The row, or why nothing may be written."""
        row = self._table.find(fence.id)
        if row is not None and _holds(fence, row):
            return row
        return Settled("gone" if row is None or row.is_finished else "lost")


def _holds(fence: Fence, row: ModelRow) -> bool:
    return row.locked_until in fence.tokens and fence.attempt in (None, row.attempt)
