"""Clocks that a `Database` may own."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

import anyio

from .abc import Clock, Reading, ServerClock

__all__ = ["Clock", "DatabaseClock", "SystemClock"]

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


class DatabaseClock(SystemClock, ServerClock):
    """The database server's clock, so that hosts whose clocks disagree share one queue.

    Each claim, renewal and settlement asks the server for its time, once its connection and lock are
    had: a statement more (on PostgreSQL a round trip; SQLite keeps milliseconds, and is its host's
    clock). `now` between statements is the host's clock put right by the last answer, late by a round
    trip at most and never early; `monotonic` and the sleeps are the host's.

    It belongs to one `Database`. In virtual time its place is taken by ``clock.at("database")``, a host
    of its own whose time goes with each statement.
    """

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """The server's time, as far as known without asking: aware, UTC."""
        return super().now() + self._ahead

    def told(self, now: datetime, monotonic: float) -> Reading:
        """Take note of the server's answer, and make the script's reading of it."""
        self._ahead = now - super().now()
        return Reading(now, monotonic)

    def __repr__(self) -> str:
        return "DatabaseClock()"
