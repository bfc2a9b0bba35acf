"""How long a failed delivery waits for its next attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Literal

from inboxkit.errors import DeclarationError

__all__ = ["Backoff"]

_LARGEST_EXPONENT = 1_000
"""Past this a delay is its maximum: clamped before the power, so that no attempt count overflows."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A delay for each failed attempt. Made by `exponential`, `linear`, `fixed` or `immediate`."""

    kind: Literal["exponential", "linear", "fixed"]
    first: timedelta
    """The delay after the first failed attempt."""
    factor: float = 2.0
    """exponential: each delay is the one before times this."""
    maximum: timedelta = timedelta(hours=1)
    """No delay is longer, jitter included."""
    jitter: float = 0.0
    """0 to 1: the delay varies by this share of itself to both sides, evenly."""

    @classmethod
    def exponential(
        cls,
        first: timedelta = timedelta(seconds=1),
        factor: float = 2.0,
        maximum: timedelta = timedelta(hours=1),
        jitter: float = 0.1,
    ) -> Backoff:
        """`first`, `first * factor`, `first * factor**2`, … up to `maximum`.

        Raises:
            DeclarationError: A negative delay, a factor below 1, or a jitter outside 0 to 1.
        """
        return cls("exponential", first, factor, maximum, jitter)

    @classmethod
    def linear(
        cls, first: timedelta, maximum: timedelta = timedelta(hours=1), jitter: float = 0.0
    ) -> Backoff:
        """`first`, `2 * first`, `3 * first`, … up to `maximum`."""
        return cls("linear", first, 1.0, maximum, jitter)

    @classmethod
    def fixed(cls, delay: timedelta, jitter: float = 0.0) -> Backoff:
        """The same delay after every failure."""
        return cls("fixed", delay, 1.0, timedelta.max, jitter)

    @classmethod
    def immediate(cls) -> Backoff:
        """No delay (where a failing row would spin, the runtime still waits: see `settlement`)."""
        return cls("fixed", timedelta(0), 1.0, timedelta.max, 0.0)

    def __post_init__(self) -> None:
        if self.kind not in ("exponential", "linear", "fixed"):
            raise DeclarationError(
                f"Backoff: kind must be 'exponential', 'linear' or 'fixed', not {self.kind!r}; or write "
                "Backoff.fixed(timedelta(…))"
            )
        for name, delay in (("first", self.first), ("maximum", self.maximum)):
            if not isinstance(delay, timedelta):
                raise DeclarationError(f"Backoff: {name} must be a timedelta, not {delay!r}")
            if delay < timedelta(0):
                raise DeclarationError(f"Backoff: {name} must not be negative, not {delay!r}")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise DeclarationError(f"Backoff: factor must be 1 or more, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Backoff: jitter must lie between 0 and 1, not {self.jitter!r}")

    def delay(self, attempt: int, random: Random) -> timedelta:
        """Return the wait after delivery number `attempt` failed.

        Args:
            attempt: From 1; smaller numbers read as 1.
            random: The service's seeded source; one number is drawn where there is jitter.
        """
        seconds = min(self._plain(max(attempt, 1)), self.maximum.total_seconds())
        if self.jitter:
            seconds *= 1 + self.jitter * random.uniform(-1.0, 1.0)
        # Seconds as a float may be a microsecond off where a delay is centuries long.
        return min(timedelta(seconds=min(seconds, _LONGEST_SECONDS)), self.maximum)

    def _plain(self, attempt: int) -> float:
        first = self.first.total_seconds()
        if self.kind == "fixed" or not first:
            return first
        if self.kind == "linear":
            return first * min(attempt, 10**9)
        steps = min(attempt - 1, _LARGEST_EXPONENT)
        try:
            return first * math.pow(self.factor, steps)
        except OverflowError:
            return self.maximum.total_seconds()


_LONGEST_SECONDS = timedelta(days=365 * 1000).total_seconds()
"""A thousand years: later instants saturate at the column's range anyway."""
