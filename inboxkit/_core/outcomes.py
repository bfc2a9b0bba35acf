"""What a handler wants done with its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

__all__ = ["Ack", "Drop", "Outcome", "Retry", "ack", "drop", "retry", "retry_after"]


@dataclass(frozen=True, slots=True)
class Ack:
    """The work is done: the row is deleted, or stamped where its table has `processed_at`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Hand the row out again."""

    delay: timedelta | None = None
    """Not before this long after the settlement; None: at once."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Finish the row as `Ack` does, and say why in the log."""

    reason: str = ""
    """Logged as a warning; may be empty."""


Outcome: TypeAlias = Ack | Retry | Drop

_ACK = Ack()
_RETRY = Retry()


def ack() -> Ack:
    """The work is done."""
    return _ACK


def retry() -> Retry:
    """Hand the row out again at once, as its next attempt."""
    return _RETRY


def retry_after(delay: timedelta) -> Retry:
    """Hand the row out again, not before `delay` after the settlement.

    Args:
        delay: Zero and negative delays are due at once. An instant past what the column can hold
            becomes the latest that it can.

    Raises:
        TypeError: `delay` is not a timedelta.
    """
    if not isinstance(delay, timedelta):
        raise TypeError(
            f"retry_after() takes a timedelta, not {delay!r}; write retry_after(timedelta(seconds=…))"
        )
    return Retry(max(delay, timedelta(0)))


def drop(reason: str = "") -> Drop:
    """Give the work up: the row is finished, and `reason` is logged as a warning."""
    return Drop(reason)
