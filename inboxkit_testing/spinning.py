"""Rows that go round and round without time passing: no run would ever end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from inboxkit import events

from .clock import VirtualClock
from .errors import InvariantViolation

__all__ = ["Spins"]

_MOST = 500
"""Deliveries of one row at one instant; a cap of any sense is far below."""


class Spins:
    """Ends a run in which one row is handed out again and again at one instant.

    Nothing stalls then, and no time passes either, so nobody else would notice.

    Args:
        clock: The run's.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._instant = -1.0
        self._claims: Counter[Any] = Counter()

    def take(self, event: events.Event) -> None:
        """Take in an event of the run."""
        if not isinstance(event, events.Claimed):
            return
        now = self._clock.monotonic()
        if now != self._instant:
            self._instant = now
            self._claims.clear()
        row = (event.table, event.queue, event.id)
        self._claims[row] += 1
        if self._claims[row] == _MOST:
            self._clock.keeper.fail(
                InvariantViolation(
                    f"nothing_lost: row {event.id!r} of queue {event.queue!r} was handed out {_MOST} times "
                    "at one instant: retry() hands it out again at once, so give the subscription "
                    "max_attempts, or answer retry_after(...)",
                    rule="nothing_lost",
                    queue=event.queue,
                    id=event.id,
                )
            )
