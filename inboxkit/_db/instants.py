"""Instants that Python's `datetime` cannot hold: infinity, and years outside 1 to 9999."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["FUTURE", "PAST", "from_microseconds", "to_microseconds"]

PAST: Final = datetime.min.replace(tzinfo=UTC)
FUTURE: Final = datetime.max.replace(tzinfo=UTC)

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def from_microseconds(microseconds: int) -> datetime:
    """The instant so many microseconds after PostgreSQL's epoch, at most the end of time."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return FUTURE if microseconds > 0 else PAST


def to_microseconds(instant: datetime) -> int:
    """Microseconds from PostgreSQL's epoch to an aware instant."""
    return (instant - _EPOCH) // _MICROSECOND
