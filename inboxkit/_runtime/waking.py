"""Wakes: hints that a queue has due rows. Losing one costs a poll interval, never a row."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from random import Random

import anyio.lowlevel

from inboxkit.abc import Clock

from .timing import sleep_for

__all__ = ["WakeHub", "Waker"]

_MOST_DUE_TIMES = 10_000
"""Due times that one subscription remembers; later ones are found by the poll."""


class Waker:
    """What one subscription sleeps on between claims: a wake, a due time that it knows, or its poll.

    A wake that comes while a claim is running is kept: the next wait returns at once. Several wakes
    count as one.
    """

    def __init__(self, clock: Clock, random: Random, poll_interval: float) -> None:
        self._clock = clock
        self._random = random
        self._poll_interval = poll_interval
        self._is_woken = False
        self._sleeps: dict[anyio.CancelScope, None] = {}
        self._due: list[datetime] = []

    def wake(self, due: datetime | None = None) -> None:
        """A row is due now, or from `due` on.

        Args:
            due: Aware; None, or an instant that has come: now.
        """
        if due is None or due <= self._clock.now():
            self._wake_now()
            return
        if due in self._due[:1]:
            return
        is_first = not self._due or due < self._due[0]
        if len(self._due) >= _MOST_DUE_TIMES:
            if not is_first:
                return
            self._due.pop()  # a leaf: not the first
        heapq.heappush(self._due, due)
        if is_first:
            # Whoever sleeps computed its alarm from a later instant: let it look again.
            self._wake_now()

    def start_claim(self) -> None:
        """Forget the wakes so far: the claim that begins now sees what they told of."""
        self._is_woken = False
        now = self._clock.now()
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)

    async def wait(self, within: anyio.CancelScope | None = None) -> None:
        """Wait for a wake, the next known due time or the poll interval, whichever is first.

        Args:
            within: A scope around this call which a wake may cancel; None: one is made.
        """
        if within is None:
            with anyio.CancelScope() as sleep:
                await self.wait(sleep)
            return
        seconds = self._poll_interval * self._random.uniform(0.9, 1.0)
        if self._due:
            seconds = min(seconds, (self._due[0] - self._clock.now()).total_seconds())
        if self._is_woken:
            await anyio.lowlevel.checkpoint()
            return
        # A wake ends the sleep by its scope. A task that waited for an event beside it would be most of
        # what an idle queue costs.
        self._sleeps[within] = None
        try:
            await sleep_for(self._clock, seconds)
        finally:
            del self._sleeps[within]

    def _wake_now(self) -> None:
        self._is_woken = True
        for sleep in self._sleeps:
            sleep.cancel()


class WakeHub:
    """Who is to be woken for which rows, inside one process."""

    def __init__(self) -> None:
        self._wakers: defaultdict[
            str, list[tuple[str | None, Callable[[datetime | None], None]]]
        ] = defaultdict(list)

    def register(
        self, table: str, group: str | None, wake: Callable[[datetime | None], None]
    ) -> Callable[[], None]:
        """Call `wake` for each new row of a table, or of one of its groups.

        Returns:
            A function that ends it.
        """
        entry = (group, wake)
        self._wakers[table].append(entry)
        return lambda: self._wakers[table].remove(entry)

    def notify(self, table: str, group: str | None, due: datetime | None = None) -> None:
        """Rows were committed, or became due.

        Args:
            table: The table's name, with its schema if the description has one.
            group: Their group; None wakes all that read the table.
            due: When they are due; None: now.
        """
        for wanted, wake in tuple(self._wakers.get(table, ())):
            if wanted is None or group is None or wanted == group:
                wake(due)
