"""A process that is killed, as its database sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NoReturn

import anyio

from ._timekeeper import Timekeeper
from .clock import VirtualClock
from .errors import CrashedError

__all__ = ["CrashSwitch"]


class CrashSwitch:
    """Whether one instance is dead, and where its tasks end.

    A killed process runs no further line, and no `finally`. Python's tasks can only be unwound, so
    the next best: a statement of a dead instance never returns. Its task stands there until it is
    cancelled, runs no `except Exception`, and each statement of its clean-up ends in that same
    cancellation. Where that cannot be, in a shielded scope or in a task that nobody cancels, the
    statement raises `CrashedError` once nothing else can happen at this instant.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._keeper: Timekeeper | None = None
        self._standing: deque[anyio.Event] = deque()
        self.is_thrown: bool = False
        self.when_thrown: Callable[[], None] = lambda: None
        """Called once, in the loop's thread, when it is."""

    def throw(self) -> None:
        """From here on this instance is dead."""
        if not self.is_thrown:
            self.is_thrown = True
            self.when_thrown()

    async def stand(self, what: str) -> NoReturn:
        """Never go on.

        Raises:
            CrashedError: Time would have to pass, and nobody has cancelled this task.
        """
        if self._keeper is not self._clock.keeper:
            self._keeper = self._clock.keeper
            self._keeper.last_hooks.append(self._let_one_fail)
        self._standing.append(event := anyio.Event())
        try:
            await event.wait()
        finally:
            if event in self._standing:
                self._standing.remove(event)
        raise CrashedError(f"{what}: this instance has crashed; nothing was sent")

    def _let_one_fail(self) -> bool:
        if not self._standing:
            return False
        self._standing.popleft().set()
        return True
