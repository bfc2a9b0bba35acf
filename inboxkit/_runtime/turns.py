"""Rows that are worked on in order: those of one partition key, or of one FIFO group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator

from inboxkit.abc import Claimed

from .held import Held

__all__ = ["Turns", "turns_of"]


class Turns:
    """Lets a row begin when the settlements of all rows before it have been answered.

    A row may stand in several lines; all are in the order of claims, so that no two rows wait for each
    other.

    Args:
        lines: Which lines a row stands in.
    """

    def __init__(self, lines: Callable[[Claimed], tuple[Hashable, ...]]) -> None:
        self._lines_of = lines
        self._lines: dict[Hashable, deque[Held]] = {}

    def enter(self, held: Held) -> None:
        """A row was claimed: `held.waits` tells whether it is its turn.

        One that is past its cap waits for nobody, since no handler gets it; but others wait for it.
        """
        for name in self._lines_of(held.claimed):
            line = self._lines.setdefault(name, deque())
            line.append(held)
            if line[0] is not held and not held.claimed.spent:
                held.waits = True

    def leave(self, held: Held) -> Iterator[Held]:
        """A row is over, or its hold is lost: it keeps nobody waiting. Yields those whose turn it is."""
        for name in self._lines_of(held.claimed):
            line = self._lines.get(name)
            if line is None or held not in line:
                continue
            line.remove(held)
            if not line:
                del self._lines[name]
            elif line[0].waits and self._is_first(line[0]):
                line[0].waits = False
                yield line[0]

    def _is_first(self, held: Held) -> bool:
        return all(self._lines[name][0] is held for name in self._lines_of(held.claimed))


def turns_of(*, by_key: bool, by_group: bool) -> Turns | None:
    """By key, by group, or by both; None: rows keep no order."""
    if by_key and by_group:
        return Turns(lambda claimed: (("key", claimed.key), ("group", claimed.group)))
    if by_key:
        return Turns(lambda claimed: (claimed.key,))
    if by_group:
        return Turns(lambda claimed: (claimed.group,))
    return None
