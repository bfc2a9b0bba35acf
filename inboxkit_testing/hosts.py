"""Clocks of hosts that are wrong."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .clock import VirtualClock

__all__ = ["HostClock"]

_SECOND = timedelta(seconds=1)


class HostClock:
    """A host's view of a `VirtualClock`: ahead or behind, fast or slow.

    `now`, `monotonic` and the sleeps are in the host's own seconds. Only this clock is wrong:
    `anyio.sleep` and timeouts on the same loop are in true ones.
    """

    is_virtual: Final = True
    """Its time is nobody else's: no server's clock is compared with it."""

    def __init__(self, clock: VirtualClock, host: str, *, offset: timedelta, drift: float) -> None:
        if not drift > -1 or math.isinf(drift):
            raise ValueError(
                f"expected a drift above -1 (a clock that stands still), got {drift!r}"
            )
        self.host = host
        """Its name."""
        self.offset = offset
        """How far it was ahead at first."""
        self.drift = drift
        """How many seconds it gains in each true one."""
        self._clock = clock
        self._since = clock.monotonic()

    def now(self) -> datetime:
        """What the host takes for the time."""
        return (
            self._clock.start + self.offset + timedelta(microseconds=round(self.monotonic() * 1e6))
        )

    def monotonic(self) -> float:
        """The host's seconds: true ones until it was made, its own from there."""
        return self._since + (self._clock.monotonic() - self._since) * (1 + self.drift)

    async def sleep(self, seconds: float) -> None:
        """Wait so many of the host's seconds."""
        await self._clock.sleep(seconds / (1 + self.drift))

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until the host takes the time for `instant`, or later."""
        local = (instant - self._clock.start - self.offset) / _SECOND
        true = self._since + (local - self._since) / (1 + self.drift)
        await self._clock.sleep(true - self._clock.monotonic())
        while self.now() < instant:  # at most a rounding of the drift away
            await self._clock.sleep(1e-6)

    def external(self, label: str) -> AbstractContextManager[None]:
        """As `VirtualClock.external`: all hosts share one time."""
        return self._clock.external(label)

    @property
    def clock(self) -> VirtualClock:
        """The true time."""
        return self._clock

    def __repr__(self) -> str:
        return f"<HostClock {self.host!r} {self.now().isoformat()}>"
