"""What the testing kit raises on its own behalf."""

from __future__ import annotations

from collections.abc import Sequence

from inboxkit.errors import InboxkitError

__all__ = ["ClockStalledError", "CrashedError", "InvariantViolation", "SleepInTransactionError"]


class ClockStalledError(InboxkitError):
    """Nothing happened for some real seconds, and virtual time could not move either.

    Attributes:
        in_flight: Labels of what has not answered, oldest first; empty for a deadlock.
    """

    def __init__(self, message: str, *, in_flight: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.in_flight = tuple(in_flight)


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
    """A rule of the queue was broken: work lost, settled twice, out of order."""
