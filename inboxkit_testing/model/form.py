"""What the three forms have in common: which rows, in which order, and what settlements write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit.abc import Claim, Claimed, ClaimForm, Fence, Reading, Settled, Work
from inboxkit.errors import DatabaseError, DecodeError

from .table import ModelDatabase, ModelRow, ModelTable

__all__ = ["ModelForm", "later"]

_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class ModelForm(ClaimForm, ABC):
    """One queue of a table, as one instance of a service sees it."""

    def __init__(
        self, database: ModelDatabase, table: ModelTable, *, group: str | None, cap: int | None
    ) -> None:
        self._database = database
        self._table = table
        self._group = group
        self._cap = cap

    # Which rows.

    async def claim(self, *, limit: int) -> Claim:
        """Take due rows that nobody has in work, in claim order; of a FIFO group its head or nothing."""
        reading = self._read_clock()
        taken: list[Claimed | None] = []
        for row in self._candidates(reading.now):
            if len(taken) == self._most(limit):
                break
            if row.is_due(reading.now) and self._is_free(row, reading.now):
                taken.append(self._hand_out(row, reading))
        rows = tuple(one for one in taken if one is not None)
        return Claim(rows, reading, undecodable=len(taken) - len(rows))

    def _candidates(self, now: datetime) -> list[ModelRow]:
        waiting = [row for row in self._table.rows if self._is_here(row) and not row.is_finished]
        waiting.sort(key=lambda row: row.order)
        if not self._table.spec.fifo:
            return waiting
        return waiting[:1] if all(self._is_free(row, now) for row in waiting) else []

    def _is_here(self, row: ModelRow) -> bool:
        return self._table.spec.group is None or bool(row.group == self._group)

    @abstractmethod
    def _most(self, limit: int) -> int:
        """How many rows one claim takes."""

    @abstractmethod
    def _is_free(self, row: ModelRow, now: datetime) -> bool:
        """Whether nobody has the row in work."""

    # A delivery begins.

    def _hand_out(self, row: ModelRow, reading: Reading) -> Claimed | None:
        before = replace(row, data=dict(row.data))
        is_spent = self._is_spent(row)
        fence = self._take(row, reading.now)
        if isinstance(row.id, DecodeError):
            return None
        payload, headers = _readable(before.payload), _readable(before.headers)
        return Claimed(
            fence,
            reading,
            before.number if self._counts else None,
            counted=self._counts and not is_spent,
            spent=is_spent,
            group=_readable(before.group),
            key=_readable(before.partition_key),
            headers=headers if isinstance(headers, Mapping) else {},
            payload=payload.encode() if isinstance(payload, str) else payload,
            values=self._table.values(before),
        )

    @abstractmethod
    def _take(self, row: ModelRow, now: datetime) -> Fence:
        """Put a row in work."""

    @property
    def _counts(self) -> bool:
        return self._table.spec.attempt is not None

    def _is_spent(self, row: ModelRow) -> bool:
        return self._counts and self._cap is not None and row.number > self._cap

    def _count(self, row: ModelRow) -> None:
        """Count a delivery, but none of a row that is past its cap."""
        if self._counts and not self._is_spent(row):
            row.attempt = row.number + 1

    def _fenced_attempt(self, row: ModelRow) -> int | None:
        """The attempt as a claim stores it; None where it could not be read before."""
        if not isinstance(row.attempt, int):
            return None
        return row.attempt if self._is_spent(row) else row.attempt + 1

    # A delivery ends.

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write each settlement whose delivery still holds its row."""
        return [self._settle(fence, settlement) for fence, settlement in settlements]

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Give rows back unsettled; the flag says whether the claim's count is taken back."""
        return [self._release(fence, give_back=give_back) for fence, give_back in releases]

    @abstractmethod
    def _settle(self, fence: Fence, settlement: Settlement) -> Settled: ...

    @abstractmethod
    def _release(self, fence: Fence, *, give_back: bool) -> Settled: ...

    def _write(self, row: ModelRow, settlement: Settlement, now: datetime) -> Settled:
        """Write a settlement to a row that is held."""
        match settlement.verb:
            case Verb.FINISH if self._table.spec.processed_at is None:
                self._table.rows.remove(row)
            case Verb.FINISH:
                row.processed_at = now
            case Verb.GIVE_BACK:
                return self._give_back(row, now)
            case Verb.POSTPONE:
                return self._postpone(row, later(now, settlement.delay))
            case Verb.HOLD:
                return self._keep_back(row, settlement.delay, now)
            case Verb.MOVE:
                self._move(row, settlement.destination)
            case _:
                assert_never(settlement.verb)
        return Settled("written")

    def _give_back(self, row: ModelRow, now: datetime) -> Settled:  # noqa: ARG002
        return Settled("written", now)

    def _postpone(self, row: ModelRow, due: datetime) -> Settled:
        row.retry_after = due
        return Settled("written", due)

    def _keep_back(self, row: ModelRow, delay: timedelta, now: datetime) -> Settled:  # noqa: ARG002
        """A back-off that keeps the row's place: where a session holds it, it is given back, and who
        serves the queue waits."""
        return self._give_back(row, now)

    def _move(self, row: ModelRow, destination: Destination | None) -> None:
        assert destination is not None
        if destination.group is not None:
            row.group = destination.group
        else:
            self._table.rows.remove(row)
            self._database.table(destination.name).rows.append(row)

    async def begin(self, fence: Fence) -> Work:
        """Refused: what a handler writes is SQL, which this does not speak."""
        raise DatabaseError(
            f"begin: the model has no database in which the handler of row {fence.id!r} could write",
            statement="begin",
        )

    async def close(self) -> None:
        """Rows under a lease stay so."""

    def _read_clock(self) -> Reading:
        clock = self._database.clock
        return Reading(clock.now(), clock.monotonic())


def later(now: datetime, delay: timedelta) -> datetime:
    """`now + delay`, or the largest time."""
    return now + delay if delay < _LATEST - now else _LATEST


def _readable(value: Any) -> Any:
    return None if isinstance(value, DecodeError) else value
