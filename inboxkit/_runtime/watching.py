"""Notices sessions that ended while they held a row."""

from __future__ import annotations

from collections.abc import Callable, Collection

import anyio
from anyio.abc import TaskGroup

from inboxkit.abc import ClaimForm, Clock

from .held import Held, Stage

__all__ = ["Watcher"]

_INTERVAL = 1.0
"""Seconds between two looks."""


class Watcher:
    """One task that looks at the sessions of a subscription's rows, only while there are any.

    Args:
        form: Says which sessions have ended; no statement is sent for it.
        clock: Times the looks.
        holds: All deliveries of the subscription, at any time.
        lost: Called once for each delivery whose session has ended, with the reason.
    """

    def __init__(
        self,
        form: ClaimForm,
        clock: Clock,
        *,
        holds: Callable[[], Collection[Held]],
        lost: Callable[[Held, str], None],
    ) -> None:
        self._form = form
        self._clock = clock
        self._holds = holds
        self._lost = lost
        self._event = anyio.Event()

    def notify(self) -> None:
        """Rows were claimed."""
        self._event.set()

    def start(self, tasks: TaskGroup) -> None:
        """Watch in `tasks`, until they are cancelled."""
        tasks.start_soon(self._watch)

    async def _watch(self) -> None:
        while True:
            while not self._holds():
                await self._event.wait()
                self._event = anyio.Event()
            await self._clock.sleep(_INTERVAL)
            await self._look()

    async def _look(self) -> None:
        watched = [held for held in self._holds() if held.stage in (Stage.QUEUED, Stage.RUNNING)]
        watched = [held for held in watched if not held.is_lost]
        renewal = await self._form.renew(
            [(held.fence, held.reading) for held in watched], timeout=_INTERVAL
        )
        for held in watched:
            if held.id in renewal.lost and held.stage in (Stage.QUEUED, Stage.RUNNING):
                self._lost(held, "its connection ended")
