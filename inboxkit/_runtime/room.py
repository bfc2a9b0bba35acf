"""Places for deliveries that keep a session of the pool, shared by all subscriptions of a database."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio

__all__ = ["Room"]


@dataclass(slots=True, eq=False)
class _Turn:
    event: anyio.Event = field(default_factory=anyio.Event)
    is_granted: bool = False


class Room:
    """Lets so many claims and rows in at once; the others wait, subscription by subscription.

    A place is taken before a claim and left when its row leaves work, or when the claim brought none.
    One connection of the pool is thus always left to handlers and their statements. Each subscription
    that waits is admitted in turn, however many of its claims wait.

    Args:
        places: How many; the pool's size less one, and at least one.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[object, deque[_Turn]] = {}
        """By subscription, in the order of their turns."""

    async def enter(self, who: object) -> bool:
        """Take a place, in turn; False where `give_up` was called meanwhile.

        Args:
            who: The subscription.

        Cancellation:
            A place that was given at the same moment goes to the next.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self._free and not self._waiting:
            self._free -= 1
            return True
        turn = _Turn()
        self._waiting.setdefault(who, deque()).append(turn)
        try:
            await turn.event.wait()
        except BaseException:
            self._withdraw(who, turn)
            raise
        return turn.is_granted

    def enter_nowait(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if not self._free or self._waiting:
            return False
        self._free -= 1
        return True

    def leave(self) -> None:
        """Give a place back: to the subscription whose turn it is, if any waits."""
        if not self._waiting:
            self._free += 1
            return
        who = next(iter(self._waiting))
        turns = self._waiting.pop(who)
        turn = turns.popleft()
        if turns:
            self._waiting[who] = turns  # behind the others
        turn.is_granted = True
        turn.event.set()

    def give_up(self, who: object) -> None:
        """Let a subscription wait no longer; the places that it has stay its own."""
        for turn in self._waiting.pop(who, ()):
            turn.event.set()

    def _withdraw(self, who: object, turn: _Turn) -> None:
        if turn.is_granted:
            self.leave()
        elif who in self._waiting:
            self._waiting[who].remove(turn)
            if not self._waiting[who]:
                del self._waiting[who]
