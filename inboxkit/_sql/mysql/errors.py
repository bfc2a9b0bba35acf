"""The servers' numbers for errors that scripts go on after."""

from __future__ import annotations

from typing import Final

__all__ = ["DUPLICATE", "NO_SUCH_INDEX", "TOO_LONG", "is_numbered"]

DUPLICATE: Final = 1062
"""A unique index refuses a row."""
TOO_LONG: Final = 1153
"""A statement is longer than max_allowed_packet."""
NO_SUCH_INDEX: Final = 1176
"""A statement is to go by an index that is not there."""


def is_numbered(error: BaseException, number: int) -> bool:
    """Whether the driver's error, which is the cause, has this number."""
    cause = error.__cause__
    return cause is not None and cause.args[:1] == (number,)
