"""A clock that stands where a test puts it, over a loop in real time."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio

__all__ = ["START", "ManualClock"]

START: Final = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `Clock` that only `elapsed` moves; what waits by it waits in real time.

    So that a claim form's own I/O, of which a virtual clock would know nothing, needs no bracket.
    """

    def __init__(self) -> None:
        self.elapsed: timedelta = timedelta(0)
        """Time since the start."""

    def now(self) -> datetime:
        """The start and what has elapsed."""
        return START + self.elapsed

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait so many real seconds."""
        await anyio.sleep(seconds)

    async def sleep_until(self, instant: datetime) -> None:
        """Refused: nobody would move this clock meanwhile."""
        raise NotImplementedError

    def external(self, label: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nothing: this clock stands still anyway."""
        return nullcontext()
