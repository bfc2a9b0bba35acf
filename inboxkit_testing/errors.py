"""What the testing kit raises on its own behalf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inboxkit.errors import InboxkitError
from inboxkit.events import Event

__all__ = ["ClockStalledError", "CrashedError", "InvariantViolation", "SleepInTransactionError"]


class ClockStalledError(InboxkitError):
    """Nothing happened for some real seconds, and virtual time could not move either.

    Attributes:
        in_flight: Labels of what has not answered, oldest first; empty for a deadlock.
    """

    def __init__(self, message: str, *, in_flight: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.in_flight: tuple[str, ...] = tuple(in_flight)


class SleepInTransactionError(InboxkitError):
    """Time would have to pass while a transaction of the service's own is open.

    A real database would keep its locks for all that time, and whoever waits for one of them would
    wait for real while the clock stands.
    """


class CrashedError(BaseException):
    """A statement of a database that has crashed, from code that cannot be cancelled.

    A `BaseException`, since a killed process does not go on into ``except Exception`` either.
    """


class InvariantViolation(AssertionError):  # noqa: N818 - what it is called in every book
    """A rule of the queue was broken: work lost, settled twice, out of order.

    Attributes:
        rule: Its name, that of the check; empty where no check of `History` raised it.
        queue: The queue's name.
        id: The row's id.
        instances: Who had a part in it.
        events: The events, in order, that do not go together.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        queue: str = "",
        id: Any = None,
        events: Sequence[Event] = (),
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.queue = queue
        self.id = id
        self.events: tuple[Event, ...] = tuple(events)
        self.instances: tuple[str, ...] = tuple(
            dict.fromkeys(e.instance for e in events if e.instance)
        )
