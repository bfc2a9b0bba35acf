"""What wakes those that sleep by the virtual clock, in place of the loop's own timers.

A timer of asyncio wakes a future in one turn of the loop and its task in the next; a sleep of trio is a
scope that is cancelled. Both are most of what it costs to sleep, and neither is needed where the clock
itself decides when time has come.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

__all__ = ["Alarm", "Alarms"]

_RESOLUTION = 1e-9
"""Seconds; timers that are nearer to each other than asyncio tells apart ring together."""
_MOST_DROPPED = 64
"""Alarms that nobody waits for any more are kept until their time, up to this many or half of all."""


class Alarm:
    """One sleep; it rings once, or is dropped."""

    __slots__ = ("ring", "when")

    def __init__(self, when: float, ring: Callable[[], object]) -> None:
        self.when: float = when
        self.ring: Callable[[], object] | None = ring
        """None: it was dropped."""


class Alarms:
    """The sleeps of one run, by their ends."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._set = 0
        self._dropped = 0

    def set(self, when: float, ring: Callable[[], object]) -> Alarm:
        """Call `ring` once it is so many seconds since the start of the run."""
        self._set += 1
        alarm = Alarm(when, ring)
        heapq.heappush(self._heap, (when, self._set, alarm))
        return alarm

    def drop(self, alarm: Alarm) -> None:
        """Nobody waits for it any more; one that has rung may be dropped, too."""
        if alarm.ring is None:
            return
        alarm.ring = None
        self._dropped += 1
        if self._dropped > max(_MOST_DROPPED, len(self._heap) // 2):
            self._heap[:] = [entry for entry in self._heap if entry[2].ring is not None]
            heapq.heapify(self._heap)
            self._dropped = 0

    def __len__(self) -> int:
        """How many are kept, dropped ones too."""
        return len(self._heap)

    def next(self) -> float:
        """When the first is due; infinity: there is none."""
        heap = self._heap
        while heap and heap[0][2].ring is None:
            heapq.heappop(heap)
            self._dropped -= 1
        return heap[0][0] if heap else math.inf

    def ring(self, now: float) -> None:
        """Ring all that are due, in the order of their instants, then of their setting."""
        heap, now = self._heap, now + _RESOLUTION
        while heap and heap[0][0] <= now:
            alarm = heapq.heappop(heap)[2]
            ring, alarm.ring = alarm.ring, None
            if ring is None:
                self._dropped -= 1
            else:
                ring()
