"""What a world has published: the other half of every check of effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Publication"]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message that was published by `World.publish`."""

    queue: str
    """The queue's name."""
    id: Any
    """The row's id; None: nobody knows whether the row is there, since its instance crashed or the
    answer was lost."""
    message: Any
    columns: Mapping[str, Any]
    """Values of the row's other columns, as they were given."""
    by: str | None
    """The instance that published; None: another process."""

    @property
    def is_known(self) -> bool:
        """Whether the row is known to have been inserted."""
        return self.id is not None
