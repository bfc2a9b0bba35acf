"""Whose turn it is, where one subscription serves all groups of a table.

While another group has a due head, no group is served twice: who was served waits until the round is
over. This is kept in memory, by each subscription for itself: a restart begins a new round, and two
services each have their own.

A claim looks at a number of groups at most. Where the table has more, a round goes through them in
parts, by name: a part's groups come in the order of their heads, and then those of the next part. A
group that comes late, in a part that is over, waits for the next round.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["Rounds"]


class Rounds:
    """The rounds of one subscription."""

    def __init__(self) -> None:
        self._after: str | None = None
        self._served: dict[str, None] = {}
        self._tried: set[str] = set()
        self._is_blank = True

    @property
    def after(self) -> str | None:
        """The group behind which the part begins that is being served; None: with the first."""
        return self._after

    @property
    def served(self) -> Sequence[str]:
        """Groups that had their turn."""
        return tuple(self._served)

    def is_whole(self, stop: str | None) -> bool:
        """Whether a look saw all groups of the table.

        Args:
            stop: The group at which it stopped; None: it came to the end.
        """
        return self._after is None and stop is None

    def took(
        self, taken: Sequence[str], tried: Collection[str], *, limit: int, stop: str | None
    ) -> bool:
        """Note what a claim brought.

        Args:
            taken: The group of each row, in order.
            tried: Groups that had a due head when it looked, and whose turn it was.
            limit: How many rows were asked for.
            stop: Where its look stopped; None: at the end of the table.

        Returns:
            Whether to claim again at once, as there may be due heads that it did not see or get.
        """
        is_whole = self.is_whole(stop)
        for group in taken:
            if group in self._served:
                self._served.clear()  # its turn again: the next round has begun
            self._served[group] = None
        if taken:
            self._is_blank = False
            self._tried.clear()
        missed = set(tried).difference(taken)
        is_new = not self._tried.issuperset(missed)
        # Somebody else was at these. They had their turn, so that they hold nobody up.
        self._tried.update(missed)
        self._served.update(dict.fromkeys(group for group in tried if group in missed))
        if is_whole:
            return is_new and len(taken) < limit
        if missed or len(taken) >= limit:
            return True
        return self._go_on(stop)

    def _go_on(self, stop: str | None) -> bool:
        """Nobody is left to be served in this part; the next is looked at."""
        self._after = stop
        self._served.clear()
        if stop is not None:
            return True
        has_found = not self._is_blank
        self._is_blank = True
        self._tried.clear()
        return has_found
