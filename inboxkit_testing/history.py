"""What happened in a run, real or virtual, held against the rules of a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from inboxkit import Service, events

from . import _order_checks, _row_checks, _work_checks
from ._facts import Facts, Moment, gather
from ._queues import QueueFacts, queues_of
from ._row_checks import Left
from .history_log import read_log
from .timeline import Timeline

__all__ = ["History"]


class History:
    """The events of a run, and what must hold of them.

    It stands alone: built of a `Timeline` of `recorded()` or of a `World`, or of the log of a real
    run. Each check raises `InvariantViolation` that names the row, the instances and the events that
    do not go together, and shows that part of the timeline; one that passes returns the history, so
    that checks can be chained.

    What the events do not say is not judged: rows that were inserted by other means than `publish`
    are known from their first claim, and when handlers ran only where `note_calls` was at work (a
    `World` sees to that). A process that died is believed to have done what it was about to do.

    Args:
        events: In the order in which they happened.
        times: When each happened by the true clock; None: when it says so.
        service: Whose run it was: says which of its queues are FIFO or keyed, and their caps. None:
            `check_all` leaves those rules out.
        slack: How far apart two processes may log what happened at one instant.
    """

    def __init__(
        self,
        events: Iterable[events.Event],
        *,
        times: Sequence[datetime] | None = None,
        service: Service | None = None,
        slack: timedelta = timedelta(0),
    ) -> None:
        listed = list(events)
        instants = [event.at for event in listed] if times is None else times
        pairs = zip(instants, listed, strict=True)
        self.moments: tuple[Moment, ...] = tuple(
            Moment(index, at, event) for index, (at, event) in enumerate(pairs)
        )
        """The events with their places and times."""
        self.queues: Mapping[str, QueueFacts] = {} if service is None else queues_of(service)
        """What is known of the queues, by name."""
        self.slack = slack
        """See the argument."""
        self._facts: Facts | None = None

    @classmethod
    def of(cls, timeline: Timeline, service: Service | None = None) -> Self:
        """Of what was recorded in this process."""
        return cls(timeline.events, times=timeline.times, service=service)

    @classmethod
    def from_log(
        cls,
        *paths: str | Path,
        service: Service | None = None,
        slack: timedelta = timedelta(seconds=1),
    ) -> Self:
        """Of what `HistoryHandler` wrote in one process or in several, each to a file of its own.

        Processes of one service's name are told apart. A last line that was cut off, as by a process
        that was killed, is left out.

        Raises:
            ValueError: Another line cannot be read; or claims are missing, since the logger
                ``inboxkit`` was not at DEBUG.
        """
        times, listed = read_log(*paths)
        return cls(listed, times=times, service=service, slack=slack)

    @property
    def facts(self) -> Facts:
        """The events put together: holds, runs of handlers, rows."""
        if self._facts is None:
            self._facts = gather(self.moments)
        return self._facts

    @property
    def timeline(self) -> Timeline:
        """The same as a timeline."""
        timeline = Timeline()
        for moment in self.moments:
            timeline.add(moment.event, moment.at)
        return timeline

    # Single rows

    def nothing_lost(self, left: Left | None = None) -> Self:
        """Every row that was published or claimed is finished or a dead letter.

        Args:
            left: Ids of rows that are still in their tables, unfinished, or such by queue: those
                are not lost. A row that was finished must not be among them. None: none is known to
                be left, as after a `drain`.
        """
        _row_checks.nothing_lost(self, left)
        return self

    def none_settled_twice(self) -> Self:
        """No row is settled for good twice, nor handed out once it is."""
        _row_checks.none_settled_twice(self)
        return self

    def attempts(self, *, may_skip: bool | None = None) -> Self:
        """A row's first delivery is 1, each next one more; one that was given back is counted again.

        Args:
            may_skip: Whether a number may be missing, since a claim counts although its answer was
                lost. None: if an instance died or was cut off.
        """
        _row_checks.attempts(self, may_skip)
        return self

    def caps(self, max_attempts: int | Mapping[str, int] | None = None) -> Self:
        """No delivery past the cap, a dead letter at the cap only, and no retry of the last delivery.

        Args:
            max_attempts: Of all queues, or by queue. None: as the service declares.
        """
        _row_checks.caps(self, max_attempts)
        return self

    # Work

    def one_in_work_per_row(self) -> Self:
        """No two handlers have one row at the same time.

        But for one that was held by a connection which the test has cut: for a moment its handler
        does not know.
        """
        _work_checks.one_in_work_per_row(self)
        return self

    def one_in_work_per_group(self, *queues: str) -> Self:
        """Of a FIFO group one row is in work at a time, in all instances together.

        Args:
            queues: Which; none: those that the service declares as FIFO.
        """
        _work_checks.one_in_work_per_group(self, queues)
        return self

    def one_in_work_per_key(self, *queues: str) -> Self:
        """Of a partition key one row is in work at a time in each instance.

        Args:
            queues: Which; none: all whose rows have keys.
        """
        _work_checks.one_in_work_per_key(self, queues)
        return self

    def lease_exclusiveness(self) -> Self:
        """No row is claimed while a lease of it is in force, nor written for one who has lost it."""
        _work_checks.lease_exclusiveness(self)
        return self

    # Order

    def order_per_group(self, *queues: str) -> Self:
        """A FIFO group's rows are handed out in the claim order: priority, due time, id.

        None is overtaken by one that stands behind it, whatever becomes of either.

        Args:
            queues: Which; none: those that the service declares as FIFO.
        """
        _order_checks.order_per_group(self, queues)
        return self

    def order_per_key(self, *queues: str) -> Self:
        """In one instance a key's rows are handled in the order in which they were claimed.

        Args:
            queues: Which; none: all whose rows have keys.
        """
        _order_checks.order_per_key(self, queues)
        return self

    def never_before_due(self) -> Self:
        """No row is handed out before it is due: as published, or as put off by a retry.

        Where no column can keep a back-off (row lock and advisory form, FIFO or without `retry_after`),
        it binds the instance alone that has put the row off, for as long as it runs.
        """
        _order_checks.never_before_due(self)
        return self

    def check_all(self, *, left: Left | None = None) -> Self:
        """Every check that says something of this history; the first that fails raises.

        Args:
            left: As for `nothing_lost`.
        """
        checks: list[Callable[[], object]] = [
            self.none_settled_twice,
            self.lease_exclusiveness,
            self.one_in_work_per_row,
            self.one_in_work_per_group,
            self.one_in_work_per_key,
            self.order_per_group,
            self.order_per_key,
            self.never_before_due,
            self.attempts,
            self.caps,
            lambda: self.nothing_lost(left),
        ]
        for check in checks:
            check()
        return self

    def __len__(self) -> int:
        return len(self.moments)

    def __repr__(self) -> str:
        return f"<History of {len(self.moments)} events>"
