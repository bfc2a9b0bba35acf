"""Waiting by the injected clock."""

from __future__ import annotations

import anyio

from inboxkit.abc import Clock

__all__ = ["sleep_for", "wait_for"]

_SHORTEST = 1e-6
"""asyncio rings a timer that is nearer than its clock's resolution at once: whoever waits in a loop for
an instant that floats put a hair into the future would never get there in virtual time."""


async def sleep_for(clock: Clock, seconds: float) -> None:
    """Sleep so many seconds of this clock; zero and negative are a checkpoint."""
    await clock.sleep(max(seconds, _SHORTEST) if seconds > 0 else 0.0)


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
