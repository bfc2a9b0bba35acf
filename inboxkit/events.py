"""What happened to rows, as values: each is sent as ``extra={"event": …}`` on the logger ``inboxkit``,
and given to the functions of `Service.on_event`, whatever the logger's level.

Timelines, histories and telemetry are made from these. Instants are the service's clock's: aware,
UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

__all__ = [
    "ClaimEnded",
    "Claimed",
    "DeadLettered",
    "Event",
    "Failed",
    "Finished",
    "Lost",
    "OutcomeUnknown",
    "Paused",
    "Published",
    "Released",
    "Renewed",
    "Resumed",
    "Retried",
    "Started",
    "Stopped",
    "Unsettled",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    at: datetime
    """When, by the service's clock."""
    instance: str
    """The service's name."""
    queue: str
    """The queue's name; empty for events of the whole service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """The service has checked its tables and claims from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The service has let go of everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """The queue claims nothing until it is resumed; what is in work goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Event):
    """The queue claims again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEnded(Event):
    """A claim was answered, after the `Claimed` of each of its rows; or it failed.

    Told to `Service.on_event` alone: an idle queue would fill the log with it.
    """

    rows: int
    """How many it took, those included that cannot be read; 0 where it failed."""
    took: timedelta
    """From the claim's beginning to its end, the wait for a connection included."""
    error: str = ""
    """Why it failed: the error's type and text, as in `Failed`; empty: it did not."""
    headers: Mapping[Any, Mapping[str, str]] = field(default_factory=dict)
    """By id, the headers of the rows that have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Event):
    """A row was inserted through the broker, and its transaction committed.

    On a connection of the caller's own, only SQLAlchemy tells of that; on others there is no event.
    """

    id: Any
    table: str = ""
    """The table's name."""
    group: str | None = None
    """The row's group; None on a table without groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEvent(Event):
    """Base of events about one delivery."""

    id: Any
    attempt: int | None
    """The delivery's number; None where the table keeps none."""
    table: str = ""
    """The table's name."""
    group: str | None = None
    """The row's group; None on a table without groups, or where it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(RowEvent):
    """The row is in work here."""

    locked_until: datetime | None
    """The lease's end; None in other forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(RowEvent):
    """The lease was prolonged."""

    locked_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(RowEvent):
    """The hold was lost: nothing was written, the handler is cancelled."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(RowEvent):
    """Acked or dropped."""

    outcome: str
    """``"ack"`` or ``"drop"``."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(RowEvent):
    """The handler raised, timed out, or could not be given its message; `Retried` or so follows."""

    error: str
    """The error's type and text, cut to 500 characters and made printable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(RowEvent):
    """The row is to be handed out again."""

    delay: timedelta
    due: datetime | None
    """From when, by the instance's clock; None, or no `delay`: at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(RowEvent):
    """The row's attempts are spent and it was moved."""

    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(RowEvent):
    """The row was given back unsettled."""

    given_back: bool
    """Whether its attempt was taken back too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown(RowEvent):
    """A settlement's answer was lost, and the row shows no longer whether it was written."""

    is_gone: bool = False
    """The row is gone or finished: it was settled, by this delivery or by one that took it over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled(RowEvent):
    """A settlement or release could not be written: the row is handed out again.

    In the lease form that is when its lease ends.
    """

    error: str
    """What was in the way, as in `Failed`; empty where nothing was sent."""
