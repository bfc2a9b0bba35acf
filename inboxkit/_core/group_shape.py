"""A name with ``{group}`` in it: where the dead letters of each group of a table go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PLACE", "GroupShape"]

PLACE: Final = "{group}"


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What stands before and after a group's own name."""

    prefix: str
    suffix: str

    @classmethod
    def read(cls, text: str) -> GroupShape | None:
        """Read ``"{group}.dead"``; None where ``{group}`` is not in it exactly once, or is all of it."""
        before, place, after = text.partition(PLACE)
        if not place or PLACE in after or not (before or after):
            return None
        return cls(before, after)

    def of(self, group: str) -> str:
        """The name that belongs to a group."""
        return f"{self.prefix}{group}{self.suffix}"

    def fits(self, group: str) -> bool:
        """Whether a name has this shape."""
        return (
            len(group) >= len(self.prefix) + len(self.suffix)
            and group.startswith(self.prefix)
            and group.endswith(self.suffix)
        )

    def __str__(self) -> str:
        return self.of(PLACE)
