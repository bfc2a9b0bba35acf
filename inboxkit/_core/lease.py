"""Lease arithmetic: expiries, tokens and when a hold ends. All pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from inboxkit.errors import DeclarationError

__all__ = [
    "LATEST",
    "ExpirySteps",
    "add",
    "expiry",
    "fit",
    "hold_end",
    "margin",
    "renewed_expiry",
    "whole_seconds",
]

LATEST = datetime.max.replace(microsecond=0, tzinfo=UTC) - timedelta(days=1)
"""Instants saturate here: the last day that every database and every time zone can hold."""

MARGIN_SHARE = 0.1
"""A hold ends this share of the lease before its expiry, by the monotonic clock."""


def whole_seconds(lease: timedelta) -> timedelta:
    """Round a lease up to whole seconds, at least one.

    Raises:
        DeclarationError: It is zero, negative or no timedelta.
    """
    if not isinstance(lease, timedelta):
        raise DeclarationError(f"lease must be a timedelta, not {lease!r}")
    if lease <= timedelta(0):
        raise DeclarationError(f"lease must be longer than zero, not {lease!r}")
    second = timedelta(seconds=1)
    return -(-lease // second) * second  # in whole numbers: a float rounds a microsecond away


def add(instant: datetime, delay: timedelta) -> datetime:
    """`instant + delay`, saturating at `LATEST` instead of overflowing."""
    try:
        end = instant + delay
    except OverflowError:
        if delay > timedelta(0):
            return LATEST
        raise
    return end if end < LATEST else LATEST


def fit(instant: datetime, precision: int) -> datetime:
    """Round an instant to what a column with so many fraction digits keeps (half up, as servers do).

    Args:
        instant: Aware.
        precision: 0 to 6 digits.
    """
    if precision == 6:
        return instant
    unit = 10 ** (6 - precision)
    over = instant.microsecond % unit
    if not over:
        return instant
    down = instant - timedelta(microseconds=over)
    return add(down, timedelta(microseconds=unit)) if over * 2 >= unit else down


@dataclass(slots=True)
class ExpirySteps:
    """Makes expiries that practically never repeat, so that they can serve as tokens.

    Args:
        step: Where to start, 0 to 999, drawn from the instance's seeded source.
    """

    step: int

    def next(self) -> int:
        """Return the number of microseconds to add to the next expiry, 0 to 999."""
        self.step = (self.step + 1) % 1000
        return self.step


def expiry(now: datetime, lease: timedelta, *, steps: ExpirySteps, precision: int) -> datetime:
    """Return the end of a lease that is taken now, as the column will keep it."""
    end = add(now, lease)
    if precision == 6 and end < LATEST:
        end += timedelta(microseconds=steps.next())
    return fit(end, precision)


def renewed_expiry(
    now: datetime,
    lease: timedelta,
    *,
    old: datetime,
    elapsed: float,
    steps: ExpirySteps,
    precision: int,
) -> datetime:
    """Return the end of a lease that is renewed now: never earlier for a clock that was set back.

    Args:
        now: The wall clock.
        lease: Its length.
        old: The expiry that was last confirmed.
        elapsed: Monotonic seconds since the reading that `old` was made from.
        steps: The instance's.
        precision: Fraction digits of the column.
    """
    plain = add(now, lease)
    carried = add(old, timedelta(seconds=max(elapsed, 0.0)))
    # `old` is a little later than its reading and the lease give: by the step that made it a token, and
    # by what the column rounded up. Carried along, that would grow with each renewal.
    little = max(1000, 10 ** (6 - precision))
    end = carried - timedelta(microseconds=carried.microsecond % little)
    if carried <= plain + timedelta(microseconds=little):
        end = plain
    if precision == 6 and end < LATEST:
        end += timedelta(microseconds=steps.next())
    return fit(end, precision)


def margin(lease: timedelta) -> float:
    """Seconds before the expiry at which a hold ends."""
    return lease.total_seconds() * MARGIN_SHARE


def hold_end(reading: float, lease: timedelta) -> float:
    """Return the monotonic second at which a hold ends.

    Args:
        reading: The monotonic reading that the last confirmed expiry was made from.
        lease: The lease's length.
    """
    return reading + lease.total_seconds() - margin(lease)
