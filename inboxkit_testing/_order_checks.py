"""Checks of the order in which rows are handed out, and of when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inboxkit import events

from ._facts import Hold, Life, Moment, Run
from ._violations import broken
from .marks import Began

if TYPE_CHECKING:
    from .history import History

__all__ = ["never_before_due", "order_per_group", "order_per_key"]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def order_per_group(history: History, queues: Collection[str]) -> None:
    """See `History.order_per_group`."""
    chosen = set(queues) or {name for name, queue in history.queues.items() if queue.is_fifo}
    groups: defaultdict[Any, list[tuple[Life, list[Run]]]] = defaultdict(list)
    for life in history.facts.all_lives():
        runs = [run for hold in life.holds for run in hold.runs]
        if runs and not chosen.isdisjoint((life.row.queue, runs[0].event.queue)):
            groups[life.row.table, runs[0].event.group].append((life, runs))
    for group in groups.values():
        for life, _ in group:
            for hold in life.holds:
                if hold.runs:
                    _check_is_head(history, hold, [each for each in group if each[0] is not life])


def _check_is_head(history: History, hold: Hold, others: list[tuple[Life, list[Run]]]) -> None:
    mine = _place(hold.runs[0].event)
    for life, runs in others:
        if not _was_waiting(history, life, hold):
            continue
        later = next((run for run in runs if run.began.index > hold.claimed.index), None)
        if later is not None and _place(later.event) < mine:
            text = f"it was handed out before row {life.row.id!r}, which stands before it"
            moments = (life.published, hold.claimed, later.began)
            broken(history, "order_per_group", hold.row, text, *moments, with_rows=[life.row])


def _was_waiting(history: History, life: Life, hold: Hold) -> bool:
    """Whether the row was there, and not done with, when the other was claimed."""
    there = life.published
    if there is None or there.index >= life.moments[0].index:
        there = life.moments[0]
    if there.index >= hold.claimed.index or hold.claimed.at - there.at <= history.slack:
        return False
    return not any(final.index < hold.claimed.index for final in life.finals)


def _place(event: Began) -> tuple[Any, ...]:
    """In the claim order: NULL first."""
    priority = (0, 0) if event.priority is None else (1, event.priority)
    return (priority, event.due or _LONG_AGO, event.id)


def order_per_key(history: History, queues: Collection[str]) -> None:
    """See `History.order_per_key`."""
    last: dict[Any, tuple[Hold, Run]] = {}
    for run in history.facts.runs:
        event = run.event
        hold = run.hold
        if event.key is None or (queues and event.queue not in queues) or hold is None:
            continue
        place = (event.instance, event.queue, event.key)
        before = last.get(place)
        if before is not None and before[0].claimed.index > hold.claimed.index:
            text = (
                f"it was claimed before row {before[0].row.id!r} of its key, and handled after it"
            )
            moments = (hold.claimed, before[1].began, run.began)
            broken(history, "order_per_key", run.row, text, *moments, with_rows=[before[0].row])
        last[place] = (hold, run)


def never_before_due(history: History) -> None:
    """See `History.never_before_due`."""
    for life in history.facts.all_lives():
        put_off: Any = None
        for moment in life.moments:
            event = moment.event
            if isinstance(event, Began) and event.due is not None and event.at < event.due:
                text = f"it was handed out at {event.at.isoformat()} and is due at {event.due.isoformat()}"
                broken(history, "never_before_due", life.row, text, life.published, moment)
            if isinstance(event, events.Retried):
                # "At once" is by no clock: another host's may be behind.
                put_off = moment if event.delay else None
            elif isinstance(event, events.Claimed):
                before, put_off = put_off, None
                if before is None or before.event.due is None or event.at >= before.event.due:
                    continue
                if _binds(history, before, moment):
                    due = before.event.due.isoformat()
                    text = f"it was claimed at {event.at.isoformat()} and is due at {due}"
                    broken(history, "never_before_due", life.row, text, before, moment)


def _binds(history: History, put_off: Moment, claimed: Moment) -> bool:
    """Whether who claimed must have waited: where no column keeps it, a back-off is the instance's alone."""
    instance, queue = put_off.event.instance, history.queues.get(claimed.event.queue)
    if queue is None or queue.keeps_back_off:
        return True
    is_anew = any(
        one.event.instance == instance and isinstance(one.event, events.Started)
        for one in history.moments[put_off.index : claimed.index]
    )
    return claimed.event.instance == instance and not is_anew
