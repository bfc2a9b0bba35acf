"""Counts what a running service does, by the events in its log."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any, Final, Self

from inboxkit import events

__all__ = ["Counts"]

_KINDS: Final = {
    "acked": "acked",
    "dropped": "dropped",
    events.Failed: "failed",
    events.Retried: "retried",
    events.DeadLettered: "dead-lettered",
    events.Released: "released",
    events.Lost: "lost",
    events.OutcomeUnknown: "unknown",
}
"""Kinds of events, or what became of a finished row, with what they are called."""
_ENDS: Final = (
    events.Finished,
    events.Retried,
    events.DeadLettered,
    events.Released,
    events.Lost,
    events.OutcomeUnknown,
)


class Counts(logging.Filter):
    """Sees every event of a service while it is open, and lets on only what the log is to have.

    Args:
        instance: The service's name.
    """

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance
        self._logger = logging.getLogger("inboxkit")
        self._level = logging.NOTSET
        self._threshold = logging.WARNING
        self.queues: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By queue, how often what happened."""
        self.in_work: dict[tuple[str, Any], None] = {}
        """Queue and id of the rows that are in work here."""

    def __enter__(self) -> Self:
        self._level, self._threshold = self._logger.level, self._logger.getEffectiveLevel()
        self._logger.addFilter(self)
        # Claims and acks are said to nobody but at this level.
        self._logger.setLevel(logging.DEBUG)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._logger.removeFilter(self)
        self._logger.setLevel(self._level)

    def filter(self, record: logging.LogRecord) -> bool:
        """Count, and say whether the record is for the log."""
        event = getattr(record, "event", None)
        if isinstance(event, events.RowEvent) and event.instance == self._instance:
            self._count(event)
        return record.levelno >= self._threshold

    def _count(self, event: events.RowEvent) -> None:
        key = event.queue, event.id
        if isinstance(event, events.Claimed):
            self.in_work[key] = None
        elif isinstance(event, _ENDS):
            self.in_work.pop(key, None)
        what: str | None = _KINDS.get(type(event))
        if isinstance(event, events.Finished):
            what = _KINDS["dropped" if event.outcome == "drop" else "acked"]
        if what is not None:
            self.queues[event.queue][what] += 1

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
