"""A fair queue before a limited number of places."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

__all__ = ["Turnstile"]


class Turnstile:
    """Lets a number of holders in at once, the others in the order of their asking, urgent ones first.

    Not an `anyio.Lock`: a transaction may begin in one task and end in another, and one turnstile
    may serve several event loops, one after the other.

    Args:
        places: How many may be inside at once.
    """

    def __init__(self, places: int = 1) -> None:
        self._free = places
        self._places: Final = places
        self._waiting: deque[anyio.Event] = deque()
        self._urgent: deque[anyio.Event] = deque()

    @property
    def inside(self) -> int:
        """How many are inside now."""
        return self._places - self._free

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting) + len(self._urgent)

    async def enter(self, *, timeout: float, is_urgent: bool = False) -> bool:
        """Take a place; False when none came free in so many seconds.

        Args:
            timeout: In seconds.
            is_urgent: Whether it goes before all who wait and are not urgent.

        Cancellation:
            A place that was given at the same moment goes to the next in the queue.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self.enter_nowait():
            return True
        turn = anyio.Event()
        queue = self._urgent if is_urgent else self._waiting
        queue.append(turn)
        try:
            with anyio.move_on_after(timeout):
                await turn.wait()
        except BaseException:
            self._give_up(turn, queue)
            raise
        if not turn.is_set():
            self._give_up(turn, queue)
        return turn.is_set()

    def enter_nowait(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if self._free and not self.waiting:
            self._free -= 1
            return True
        return False

    def leave(self) -> None:
        """Give a place back: to who has waited longest, if anybody does, of the urgent ones first."""
        if queue := self._urgent or self._waiting:
            queue.popleft().set()
        else:
            self._free += 1

    def _give_up(self, turn: anyio.Event, queue: deque[anyio.Event]) -> None:
        if turn.is_set():
            self.leave()
        else:
            queue.remove(turn)
