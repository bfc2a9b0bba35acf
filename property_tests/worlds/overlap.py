"""Judges what begins while settlements are in flight, by the calls and by what the library says of itself."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from inboxkit import events

from .history import Broken, Call, History

__all__ = ["answers_come_first", "rows_in_work_are_bounded"]

_ENDS = (
    events.Finished,
    events.Retried,
    events.DeadLettered,
    events.Released,
    events.Lost,
    events.OutcomeUnknown,
    events.Unsettled,
)


def answers_come_first(history: History) -> None:
    """In one instance, a row of a group or key begins no sooner than the one before has had its answer."""
    answered = {
        (event.instance, event.id, event.attempt): event.at
        for event in history.events
        if isinstance(event, _ENDS)
    }
    lines: defaultdict[tuple[str, str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        lines[call.instance, call.group, call.key].append(call)
    for calls in lines.values():
        for one, other in pairwise(calls):
            at = answered.get((one.instance, one.id, one.attempt))
            if at is None or at > other.started_at:
                raise Broken(f"no answer about\n  {one}\ncame before\n  {other}")


def rows_in_work_are_bounded(history: History) -> None:
    """An instance has as many rows in hand as workers, and as many more that await their settlement."""
    workers, ahead = history.schedule.workers, history.schedule.prefetch
    in_work: defaultdict[str, set[tuple[int, int | None]]] = defaultdict(set)
    for event in history.events:
        if isinstance(event, events.Claimed):
            in_work[event.instance].add((event.id, event.attempt))
            if len(in_work[event.instance]) > 2 * (workers + ahead):
                raise Broken(f"{event.instance} has {sorted(in_work[event.instance])} in work")
        elif isinstance(event, _ENDS):
            in_work[event.instance].discard((event.id, event.attempt))
    running: defaultdict[str, int] = defaultdict(int)
    steps = [(call.started, 1, call) for call in history.calls]
    steps += [(call.ended, -1, call) for call in history.calls if call.ended is not None]
    for _, step, call in sorted(steps, key=lambda each: each[0]):
        running[call.instance] += step
        if running[call.instance] > workers:
            raise Broken(f"{call.instance} had more than {workers} handlers at work: {call}")
