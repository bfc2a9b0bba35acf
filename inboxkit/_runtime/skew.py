"""Looks after the host's clock: leases hold only where the hosts' clocks agree."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol

import anyio

from inboxkit.abc import Clock
from inboxkit.errors import DatabaseError

from .records import describe_error, log
from .running import bare_errors

__all__ = ["Measure", "SkewWatch", "Watch", "watching"]

_SECONDS_BETWEEN_LOOKS = 60.0

Measure = Callable[[], Awaitable[tuple[timedelta, timedelta]]]
"""How far the host's clock is ahead of the server's, and how much of that the round trip explains."""


class SkewWatch:
    """Warns where the host's clock and the database server's differ by more than the leases bear.

    Args:
        measure: Asks the server.
        clock: Times the looks.
        limit: A tenth of the shortest lease.
    """

    def __init__(self, measure: Measure, clock: Clock, limit: timedelta) -> None:
        self._measure = measure
        self._clock = clock
        self._limit = limit
        self._was_told = False

    async def excess(self) -> str | None:
        """Measure once; what is wrong and what to do, or None.

        Raises:
            DatabaseError: The server did not answer.
        """
        ahead, doubt = await self._measure()
        if abs(ahead) - doubt <= self._limit:
            return None
        return (
            f"this host's clock is {abs(ahead).total_seconds():.3f} s "
            f"{'ahead of' if ahead > timedelta(0) else 'behind'} the database server's, and leases bear "
            f"{self._limit.total_seconds():g} s (a tenth of the shortest): rows may be handed out twice, or "
            "late; set the clock by NTP, or give the Database clock=DatabaseClock()"
        )

    async def look(self) -> None:
        """Measure once; of an excess the first look alone tells."""
        try:
            excess = await self.excess()
        except DatabaseError as error:
            log(logging.DEBUG, "the clocks could not be compared: %s", describe_error(error))
            return
        if excess is not None and not self._was_told:
            log(logging.WARNING, "%s", excess)
        self._was_told = excess is not None

    async def run(self) -> None:
        """Look each minute until cancelled."""
        while True:
            await self._clock.sleep(_SECONDS_BETWEEN_LOOKS)
            await self.look()


class Watch(Protocol):
    """What looks after something as long as a service runs."""

    async def look(self) -> None:
        """Look once."""
        ...

    async def run(self) -> None:
        """Look again and again until cancelled."""
        ...


@asynccontextmanager
async def watching(watch: Watch) -> AsyncIterator[None]:
    """Look at once, and then for the length of a block."""
    await watch.look()
    with bare_errors():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            yield
            tasks.cancel_scope.cancel()
