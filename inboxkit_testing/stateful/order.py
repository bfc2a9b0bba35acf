"""Which of the waiting statements goes next, all choices of a step in one integer."""

from __future__ import annotations

__all__ = ["Order"]


class Order:
    """The choices of a `StatementGate`.

    One integer holds as many choices as it has digits, the first the lowest, each to the base of how
    many could be chosen; zero is the first that waits, always. Hypothesis draws it at once and shrinks
    it fast, and removing a step takes its choices along.
    """

    def __init__(self) -> None:
        self._left = 0
        self._taken: list[int] = []

    def begin(self) -> None:
        """Start anew, for an example."""
        self._left = 0
        self._taken = []

    def of_step(self, order: int) -> None:
        """From here on it goes by this integer."""
        self._left = order

    def choose(self, count: int) -> int:
        """For the gate."""
        self._left, index = divmod(self._left, count)
        self._taken.append(index)
        return index

    @property
    def schedule(self) -> list[int]:
        """What was chosen, to be given to a `StatementGate`; without zeros at the end."""
        taken = list(self._taken)
        while taken and not taken[-1]:
            del taken[-1]
        return taken
