"""Whose turn it is, where one subscription serves all groups of a table.

While another group has a due head, no group is served twice: who was served waits until the round is
over. This is kept in memory, by each subscription for itself: a restart begins a new round, and two
services each have their own.

A claim looks at a number of groups at most. Where the table has more, a round goes through them in
parts, by name: a part's groups come in the order of their heads, and then those of the next part. A
group that comes late, in a part that is over, waits for the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Found", "Rounds", "Turn"]

_FRESH: Final = 1.0
"""Seconds for which a part's heads are taken in the order in which they were seen."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A group whose turn it is."""

    group: str
    is_again: bool
    """It had its turn in this round: this is the next round's."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look came to."""

    turns: Sequence[Turn]
    """Groups with a due head: first those that were not served in this round, each in the order of
    their heads."""
    stop: str | None
    """The group at which it stopped; None: it came to the end of the table."""
    at: float
    """The monotonic second of it."""


class Rounds:
    """The rounds of one subscription."""

    def __init__(self) -> None:
        self._after: str | None = None
        self._served: dict[str, None] = {}
        self._missed: set[str] = set()
        self._is_blank = True
        self._known: Found | None = None

    @property
    def after(self) -> str | None:
        """The group behind which the part begins that is being served; None: with the first."""
        return self._after

    @property
    def served(self) -> Sequence[str]:
        """Groups that had their turn."""
        return tuple(self._served)

    def is_whole(self, found: Found) -> bool:
        """Whether a look saw all groups of the table."""
        return self._after is None and found.stop is None

    def known(self, limit: int, at: float) -> Found | None:
        """What the last look found and no claim has tried yet, where that is enough for one more.

        Only in tables that are looked at in parts: it saves the look, and costs the order of heads
        that came since.

        Args:
            limit: How many rows are wanted.
            at: The monotonic second.
        """
        known = self._known
        if known is None or len(known.turns) < limit or at - known.at >= _FRESH:
            return None
        return known

    def first(self, found: Found) -> Found:
        """What can be served of what was found: in a part, each group once, and then the next part."""
        if self.is_whole(found):
            return found
        turns = [turn for turn in found.turns if not turn.is_again]
        return Found(turns, found.stop, found.at)

    def took(self, found: Found, taken: Sequence[str], tried: Sequence[str], *, limit: int) -> bool:
        """Note what a claim brought.

        Args:
            found: The groups with a due head when it looked.
            taken: The group of each row, in order.
            tried: The groups at which that was tried.
            limit: How many rows were asked for.

        Returns:
            Whether to claim again at once, as there may be due heads that it did not see or get.
        """
        self.serve(taken)
        is_short = len(taken) < limit
        missed = [group for group in tried if group not in set(taken)] if is_short else []
        is_new = not self._missed.issuperset(missed)
        # Somebody else was at these. They had their turn, so that they hold nobody up.
        self._missed.update(missed)
        self._served.update(dict.fromkeys(missed))
        if self.is_whole(found):
            self._known = None
            return is_short and is_new
        left = [turn for turn in found.turns if turn.group not in self._served]
        self._known = Found(left, found.stop, found.at)
        if missed or not is_short:
            return True
        return self._go_on(found.stop)

    def serve(self, taken: Sequence[str]) -> None:
        """Note whose rows were taken."""
        for group in taken:
            if group in self._served:
                self._served.clear()  # its turn again: the next round has begun
            self._served[group] = None
        if taken:
            self._is_blank = False
            self._missed.clear()

    def _go_on(self, stop: str | None) -> bool:
        """Nobody is left to be served in this part; the next is looked at."""
        self._after, self._known = stop, None
        self._served.clear()
        if stop is not None:
            return True
        has_found = not self._is_blank
        self._is_blank = True
        self._missed.clear()
        return has_found
