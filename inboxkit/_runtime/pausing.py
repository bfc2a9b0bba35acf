"""Pauses queues while the control table says so."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol

from inboxkit.abc import Clock
from inboxkit.errors import DatabaseError

from .records import describe_error, log

__all__ = ["Pausable", "PauseWatch"]


class Pausable(Protocol):
    """What can be kept from claiming; a `Subscription` is one."""

    @property
    def queue(self) -> str:
        """The queue's name."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether it claims nothing."""
        ...

    def pause(self) -> None:
        """Claim nothing until `resume`; what is in work goes on to its end."""
        ...

    def resume(self) -> None:
        """Claim again."""
        ...


class PauseWatch:
    """Looks at the control table: one statement a poll for the whole service, none for a claim.

    Args:
        read: Reads the names of the paused queues.
        queues: All that are served.
        clock: Times the looks.
        interval: Between two looks; so long a pause may take to be seen.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[frozenset[str]]],
        queues: Sequence[Pausable],
        clock: Clock,
        interval: timedelta,
    ) -> None:
        self._read = read
        self._queues = queues
        self._clock = clock
        self._seconds = interval.total_seconds()

    async def look(self) -> None:
        """Pause and resume what has changed; where the table cannot be read, all stays as it was."""
        try:
            paused = await self._read()
        except DatabaseError as error:
            log(logging.DEBUG, "the control table could not be read: %s", describe_error(error))
            return
        for queue in self._queues:
            is_wanted = queue.queue in paused
            if is_wanted and not queue.is_paused:
                queue.pause()
            elif queue.is_paused and not is_wanted:
                queue.resume()

    async def run(self) -> None:
        """Look each interval until cancelled."""
        while True:
            await self._clock.sleep(self._seconds)
            await self.look()
