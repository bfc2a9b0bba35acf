"""Rows that cannot be settled: where each claim would take them first again, others go before them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from inboxkit._core.lease import add
from inboxkit.abc import Reading

from .aside import Aside

__all__ = ["FAILED_ASIDE", "Repeats"]

FAILED_ASIDE: Final = timedelta(seconds=10)
"""How long a row is passed over whose settlement failed, so that it keeps no others back."""
_AT_ONCE: Final = 2
"""Failures in a row after which it is not passed over."""
_KEPT: Final = 60.0
"""Seconds after which a failure is forgotten."""


class Repeats:
    """Counts the failures of each row's settlement; after the first ones the row is back at once."""

    def __init__(self) -> None:
        self._counts: dict[Any, tuple[int, float]] = {}
        """By id, with the monotonic second at which it is forgotten."""

    def pass_over(self, id: Any, aside: Aside, reading: Reading) -> datetime | None:
        """Note a failure, and put the row aside at the third; returns until when.

        Args:
            id: As the driver takes it.
            aside: Rows that claims pass over.
            reading: The settlement's, or one before.
        """
        now = reading.monotonic
        self._counts = {each: kept for each, kept in self._counts.items() if kept[1] > now}
        count = self._counts.get(id, (0, now))[0] + 1
        self._counts[id] = count, now + _KEPT
        if count <= _AT_ONCE:
            return None
        aside.add(id, now + FAILED_ASIDE.total_seconds())
        return add(reading.now, FAILED_ASIDE)
