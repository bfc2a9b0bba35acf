"""Counts what a running service does, by its events."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from inboxkit import events

__all__ = ["Counts"]

_Key: TypeAlias = tuple[str, Any]
"""Queue and id."""

_KINDS: Final = {
    "acked": "acked",
    "dropped": "dropped",
    events.Failed: "failed",
    events.Retried: "retried",
    events.DeadLettered: "dead-lettered",
    events.Released: "released",
    events.Lost: "lost",
    events.OutcomeUnknown: "unknown",
    events.Unsettled: "unsettled",
}
"""Kinds of events, or what became of a finished row, with what they are called."""
_ENDS: Final = (
    events.Finished,
    events.Retried,
    events.DeadLettered,
    events.Released,
    events.Lost,
    events.OutcomeUnknown,
    events.Unsettled,
)
_SESSIONS_END: Final = timedelta(seconds=1)
"""After which a row that a session held, and that could not be settled, is handed out again."""

_LOOK_AT: Final = 64


class Counts:
    """Is told of every event of a service; what it keeps of rows is bounded by those in work.

    Args:
        instance: The service's name.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self.queues: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By queue, how often what happened."""
        self._in_work: dict[_Key, datetime | None] = {}
        """The rows that are in work here, with the ends of their leases."""
        self._unsettled: dict[_Key, datetime] = {}
        """Rows that were not settled, and until when they are nobody's."""
        self._most = _LOOK_AT
        """Of them, before those that have come back are looked for."""
        self._now: datetime | None = None
        """When the last event was."""

    @property
    def in_work(self) -> list[_Key]:
        """Queue and id of the rows that are in work here."""
        return list(self._in_work)

    @property
    def left(self) -> list[_Key]:
        """Queue and id of the rows that nobody can have yet, since they are in work, or were neither
        settled nor released and their leases, or sessions, have not ended."""
        self._forget_ended()
        return [*self._unsettled, *self._in_work]

    def tell(self, event: events.Event) -> None:
        """Count it, if it is of the service."""
        if event.instance != self._instance:
            return
        self._now = event.at
        if isinstance(event, events.RowEvent):
            self._count(event)

    def _count(self, event: events.RowEvent) -> None:
        key = event.queue, event.id
        if isinstance(event, events.Claimed):
            self._unsettled.pop(key, None)
            self._in_work[key] = event.locked_until
        elif isinstance(event, events.Renewed):
            # A round may be answered when its row has left work already.
            if key in self._in_work:
                self._in_work[key] = event.locked_until
        elif isinstance(event, _ENDS):
            until = self._in_work.pop(key, None)
            if isinstance(event, events.Unsettled):
                if len(self._unsettled) >= self._most:
                    self._forget_ended()
                    self._most = max(2 * len(self._unsettled), _LOOK_AT)
                self._unsettled[key] = event.at + _SESSIONS_END if until is None else until
        what: str | None = _KINDS.get(type(event))
        if isinstance(event, events.Finished):
            what = _KINDS["dropped" if event.outcome == "drop" else "acked"]
        if what is not None:
            self.queues[event.queue][what] += 1

    def _forget_ended(self) -> None:
        now = self._now
        if now is not None:
            self._unsettled = {key: end for key, end in self._unsettled.items() if end > now}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows: a queue a line, a column for all that happened at all."""
        kinds = [
            what
            for what in _KINDS.values()
            if what == "acked" or any(counts[what] for counts in self.queues.values())
        ]
        rows = [
            [repr(queue), *(str(counts[what]) for what in kinds)]
            for queue, counts in self.queues.items()
        ]
        return ["queue", *kinds], rows
