"""Clocks that a `Database` may own."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

import anyio

from .abc import Clock

__all__ = ["Clock", "SystemClock"]

_NOTHING = nullcontext()
_LONGEST_SLEEP = 3600.0
"""Seconds; a wait for a wall clock's instant looks at the wall clock again this often, since it may be set."""


class SystemClock:
    """The host's clock: `datetime.now`, `time.monotonic` and `anyio.sleep`."""

    def now(self) -> datetime:
        """The host's wall clock: aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The host's monotonic clock, in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        await anyio.sleep(max(seconds, 0.0))

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until the wall clock shows `instant`, also if it is set meanwhile."""
        await anyio.lowlevel.checkpoint()
        while (left := (instant - self.now()).total_seconds()) > 0:  # noqa: ASYNC110
            await anyio.sleep(min(left, _LONGEST_SLEEP))

    def external(self, label: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nothing to do: this clock cannot be held."""
        return _NOTHING

    def __repr__(self) -> str:
        return "SystemClock()"
