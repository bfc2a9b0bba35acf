"""Rows that a subscription's claims pass over for a while: unreadable ones, and those that cannot be settled."""

from __future__ import annotations

from typing import Any

__all__ = ["Aside"]


class Aside:
    """Their ids, as the driver gives and takes them. Kept in memory: a restart tries them again."""

    def __init__(self) -> None:
        self._ends: dict[Any, float] = {}

    def add(self, id: Any, until: float) -> None:
        """Pass a row over before a monotonic second."""
        self._ends[id] = until

    def at(self, monotonic: float) -> tuple[Any, ...]:
        """The ids that are passed over at a monotonic second, which never goes back; the others are
        forgotten."""
        if not self._ends:
            return ()
        for id in [id for id, end in self._ends.items() if end <= monotonic]:
            del self._ends[id]
        return tuple(self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, id: object) -> bool:
        return id in self._ends
