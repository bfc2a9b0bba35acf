"""What happened in one example, for the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from .schedule import Schedule
from .trail import Change, since

__all__ = ["Broken", "Call", "Ending", "History", "Published"]

Ending: TypeAlias = Literal[
    "running", "ack", "none", "drop", "retry", "retry after", "raise", "settle ack", "cancelled"
]


@dataclass(slots=True)
class Call:
    """One run of a handler."""

    instance: str
    """Its name and its generation: a restarted one is another."""
    id: int
    number: int
    attempt: int
    group: str
    key: str
    started_at: datetime
    started: int
    """Its place in the order of all starts and ends."""
    deadline: datetime | None
    """When its hold ends, as far as it was known at the start."""
    ending: Ending = "running"
    ended_at: datetime | None = None
    ended: int | None = None

    def __str__(self) -> str:
        times = f"from {since(self.started_at)} to {since(self.ended_at)}"
        place = "".join(f", {part}" for part in (self.group, self.key) if part)
        return (
            f"call of row {self.id}{place} in {self.instance}, attempt {self.attempt}: {times}, "
            f"{self.ending}; hold until {since(self.deadline)}; {self.started}-{self.ended}"
        )


@dataclass(frozen=True, slots=True)
class Published:
    """One insertion that was answered."""

    number: int
    id: int
    at: datetime
    by_broker: bool


@dataclass(slots=True)
class History:
    """The evidence."""

    schedule: Schedule
    calls: list[Call] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    changes: tuple[Change, ...] = ()
    events: list[Any] = field(default_factory=list)
    """`inboxkit.events`."""
    notes: list[str] = field(default_factory=list)
    """What the library logged as trouble, and what the machine did."""
    is_drained: bool = False
    """No unfinished row was left in a served queue."""

    def of_row(self, id: int) -> Iterator[Change]:
        """One row's changes."""
        return (change for change in self.changes if change.row.id == id)


class Broken(AssertionError):  # noqa: N818 - a rule is
    """A rule was broken."""
