"""Where it is measured: databases with durable settings, and what they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from inboxkit.abc import DialectName

__all__ = ["Counts", "Place", "remake"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has counted so far; None: it does not count that."""

    statements: int | None = None
    commits: int | None = None

    def since(self, before: Counts) -> Counts:
        """What came since."""
        return Counts(
            _less(self.statements, before.statements), _less(self.commits, before.commits)
        )


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


class Place(Protocol):
    """One database, for the time of the whole run."""

    name: str
    """As reports show it, such as ``"sqlite-full"``."""
    dialect: DialectName
    url: str
    """For `Database`, without a driver's name."""

    def script(self, *statements: str) -> None:
        """Run statements, each by itself."""
        ...

    def value(self, query: str) -> Any:
        """The first value that a query answers."""
        ...

    def drop(self, table: str) -> None:
        """Drop a table that may not be there."""
        ...

    def fill(self, table: str, count: int) -> None:
        """Write so many due rows, numbered from 0 in their payloads."""
        ...

    def tidy(self, table: str) -> None:
        """Have the database know a table that was just filled, and write out what it has put off."""
        ...

    def counts(self) -> Counts:
        """What has been counted. Called while no other session is open."""
        ...

    def measuring(self) -> AbstractContextManager[object]:
        """Entered around what is measured."""
        ...

    def unflushed(self) -> AbstractContextManager[bool]:
        """For its time, new sessions do not wait until what they commit is on the disk; False: that
        cannot be had."""
        ...

    def settings(self) -> Mapping[str, str]:
        """The server's version, and the settings on which durability and speed hang."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...


def remake(place: Place, table: str, made: Sequence[str], count: int) -> None:
    """A table anew, with so many due rows in it."""
    place.drop(table)
    place.script(*made)
    if count:
        place.fill(table, count)
    place.tidy(table)
