"""Checks of single rows: lost, settled twice, counted wrongly."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from inboxkit import events

from ._facts import Hold, Life, key_of, may_be_settled
from ._violations import broken
from .marks import Armed, Began, Cut, Ended

if TYPE_CHECKING:
    from .history import History

__all__ = ["Left", "attempts", "caps", "none_settled_twice", "nothing_lost"]


Left: TypeAlias = Collection[Any] | Mapping[str, Collection[Any]]
"""Ids, or ids by queue."""


def nothing_lost(history: History, left: Left | None) -> None:
    """See `History.nothing_lost`."""
    for life in history.facts.all_lives():
        is_last = history.facts.lives[life.row][-1] is life
        is_left = is_last and _is_left(history, life, left)
        last = life.moments[-1] if life.moments else life.published
        if life.finals:
            finished = life.finals[-1]
            if is_left and isinstance(finished.event, events.Finished):
                text = "it was finished, and is still there"
                broken(history, "nothing_lost", life.row, text, finished)
        elif not is_left and is_last and not may_be_settled(life):
            text = "it is neither finished nor a dead letter" + (
                "" if left is None else ", and no longer there"
            )
            broken(history, "nothing_lost", life.row, text, life.published, last)


def _is_left(history: History, life: Life, left: Left | None) -> bool:
    if left is None:
        return False
    if not isinstance(left, Mapping):
        return life.row.id in left
    row = life.row
    queues = {row.queue, *(moment.event.queue for moment in life.moments)}
    for name, queue in history.queues.items():
        if queue.table == row.table and queue.group in {None, row.group}:
            queues.add(name)
    return any(row.id in left.get(name, ()) for name in queues)


def none_settled_twice(history: History) -> None:
    """See `History.none_settled_twice`."""
    for life in history.facts.all_lives():
        if life.claimed_again is not None:
            text = "it was claimed after it was finished"
            first = life.finals[0]
            broken(history, "none_settled_twice", life.row, text, first, life.claimed_again)
        if len(life.finals) > 1:
            first, second = life.finals[:2]
            broken(history, "none_settled_twice", life.row, "it was settled twice", first, second)


def attempts(history: History, may_skip: bool | None) -> None:
    """See `History.attempts`."""
    for life in history.facts.all_lives():
        counted = [hold for hold in life.holds if hold.event.attempt is not None]
        if life.published is not None and counted:
            first = counted[0]
            if first.event.attempt != 1 and not _may_skip(history, first, may_skip):
                text = f"its first delivery is number {first.event.attempt}"
                broken(history, "attempts", life.row, text, life.published, first.claimed)
        for one, other in pairwise(counted):
            _check_step(history, life, one, other, may_skip)


def _check_step(
    history: History, life: Life, one: Hold, other: Hold, may_skip: bool | None
) -> None:
    before, after = one.event.attempt, other.event.attempt
    assert before is not None
    assert after is not None
    if after == before + 1 or (after > before and _may_skip(history, other, may_skip)):
        return
    if after <= before and _may_be_given_back(one, other):
        return
    text = f"delivery {before} is followed by delivery {after}"
    broken(history, "attempts", life.row, text, one.claimed, other.claimed)


def _may_skip(history: History, hold: Hold, may_skip: bool | None) -> bool:
    if may_skip is not None:
        return may_skip
    facts = history.facts
    return any(
        moment.index < hold.claimed.index
        and (moment in facts.deaths or isinstance(moment.event, Cut | Armed))
        for moment in history.moments
    )


def _may_be_given_back(one: Hold, other: Hold) -> bool:
    """Whether a stop took the count back, or may have without being able to say so."""
    if other.event.attempt != one.event.attempt:
        return False
    if one.end is None:
        return one.death is not None or not any(run.ended for run in one.runs) or _was_stopped(one)
    event = one.end.event
    if isinstance(event, events.Released):
        return event.given_back
    # A row lock counts nothing before the settlement.
    return isinstance(event, events.Lost | events.OutcomeUnknown) and one.is_by_connection


def _was_stopped(hold: Hold) -> bool:
    return any(
        run.ended is not None
        and isinstance(run.ended.event, Ended)
        and run.ended.event.outcome == "cancelled"
        for run in hold.runs
    )


def caps(history: History, max_attempts: int | Mapping[str, int] | None) -> None:
    """See `History.caps`."""
    for moment in history.moments:
        event = moment.event
        if not isinstance(event, Began | events.DeadLettered | events.Retried):
            continue
        cap = _cap_of(history, event.queue, max_attempts)
        if cap is None or event.attempt is None:
            continue
        text = None
        if isinstance(event, Began) and event.attempt > cap:
            text = f"delivery {event.attempt} is past the cap of {cap}"
        elif isinstance(event, events.DeadLettered) and event.attempt < cap:
            text = (
                f"it went to the dead letter at delivery {event.attempt}, before the cap of {cap}"
            )
        elif isinstance(event, events.Retried) and event.attempt >= cap:
            text = f"delivery {event.attempt} was the last by the cap of {cap}, and is retried"
        if text is not None:
            broken(history, "caps", key_of(event), text, moment)


def _cap_of(
    history: History, queue: str, max_attempts: int | Mapping[str, int] | None
) -> int | None:
    if isinstance(max_attempts, int):
        return max_attempts
    if max_attempts is not None:
        return max_attempts.get(queue)
    known = history.queues.get(queue)
    return None if known is None else known.cap
