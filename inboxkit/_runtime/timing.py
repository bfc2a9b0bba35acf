"""Waiting by the injected clock."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from inboxkit.abc import Clock

__all__ = ["Notice", "sleep_for", "wait_for"]

_SHORTEST = 1e-6
"""asyncio rings a timer that is nearer than its clock's resolution at once: whoever waits in a loop for
an instant that floats put a hair into the future would never get there in virtual time."""


async def sleep_for(clock: Clock, seconds: float) -> None:
    """Sleep so many seconds of this clock; zero and negative are a checkpoint."""
    await clock.sleep(max(seconds, _SHORTEST) if seconds > 0 else 0.0)


class Notice:
    """An event that is set again and again, and waited for by an injected clock.

    Whoever waits does so in its own task: one that slept beside it would be made anew for each wait, and
    be most of what a queue with little to do costs.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None
        self._sleeps: dict[anyio.CancelScope, None] = {}

    def set(self) -> None:
        """Wake all that wait, and whoever waits next."""
        self._is_set = True
        if self._event is not None:
            self._event.set()
        for sleep in self._sleeps:
            sleep.cancel()

    def clear(self) -> None:
        """From now on it is waited for again."""
        self._is_set = False
        self._event = None

    async def wait(self, clock: Clock, seconds: float | None) -> None:
        """Wait until it is set, at most so many seconds of this clock; None: for ever."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
            return
        if seconds is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
            return
        with anyio.CancelScope() as sleep:
            self._sleeps[sleep] = None
            try:
                await sleep_for(clock, seconds)
            finally:
                del self._sleeps[sleep]


async def wait_for(event: anyio.Event, clock: Clock, seconds: float | None) -> bool:
    """Wait for an event, at most so many seconds of this clock.

    A deadline of anyio's would run on the loop's own time, and a host whose clock drifts would keep
    wrong hours; so the clock's own sleep races the event.

    Args:
        event: What is waited for.
        clock: Whose seconds count.
        seconds: None: for ever.

    Returns:
        True where the event was set.
    """
    if event.is_set():
        await anyio.lowlevel.checkpoint()
        return True
    if seconds is None:
        await event.wait()
        return True
    async with anyio.create_task_group() as race:

        async def ring() -> None:
            await event.wait()
            race.cancel_scope.cancel()

        race.start_soon(ring)
        await sleep_for(clock, seconds)
        race.cancel_scope.cancel()
    return event.is_set()
