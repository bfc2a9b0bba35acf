"""Checks of what is in work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from inboxkit import events

from ._facts import Hold, Moment, Run
from ._violations import broken
from .marks import Cut

if TYPE_CHECKING:
    from .history import History

__all__ = [
    "lease_exclusiveness",
    "one_in_work_per_group",
    "one_in_work_per_key",
    "one_in_work_per_row",
]


def one_in_work_per_row(history: History) -> None:
    """See `History.one_in_work_per_row`."""

    def row_of(run: Run) -> Any:
        return run.row, 1 if run.hold is None else run.hold.life.number

    _one_at_a_time(history, "one_in_work_per_row", row_of, "it")


def one_in_work_per_group(history: History, queues: Collection[str]) -> None:
    """See `History.one_in_work_per_group`."""
    chosen = set(queues) or {name for name, queue in history.queues.items() if queue.is_fifo}

    def group_of(run: Run) -> Any:
        if chosen.isdisjoint((run.row.queue, run.event.queue)):
            return None
        return (run.row.table, run.event.group)

    _one_at_a_time(history, "one_in_work_per_group", group_of, "its group")


def one_in_work_per_key(history: History, queues: Collection[str]) -> None:
    """See `History.one_in_work_per_key`."""

    def key_of(run: Run) -> Any:
        event = run.event
        if event.key is None or (queues and event.queue not in queues):
            return None
        return (event.instance, event.queue, event.key)

    _one_at_a_time(history, "one_in_work_per_key", key_of, "its key")


def _one_at_a_time(history: History, rule: str, part_of: Callable[[Run], Any], what: str) -> None:
    for runs in history.facts.runs_by(part_of).values():
        longest = runs[0]
        for run in runs[1:]:
            if not (
                _is_over(longest.ended, run.began, history)
                or _was_cut_from_its_hold(longest, run, history)
            ):
                text = f"{what} was in two handlers at once"
                broken(
                    history, rule, run.row, text, longest.began, run.began, with_rows=[longest.row]
                )
            longest = run


def _is_over(end: Moment | None, other: Moment, history: History) -> bool:
    """Whether something had ended when the other happened; processes log late by up to the slack."""
    if end is None:
        return False
    if end.index < other.index:
        return True
    is_same = end.event.instance == other.event.instance
    return not is_same and bool(history.slack) and end.at - other.at <= history.slack


def _was_cut_from_its_hold(run: Run, other: Run, history: History) -> bool:
    """Whether its hold was a connection, which was cut before it could notice."""
    if run.hold is None or not run.hold.is_by_connection:
        return False
    return any(
        isinstance(moment.event, Cut)
        and moment.event.instance == run.event.instance
        and run.began.index < moment.index < other.began.index
        for moment in history.moments
    )


def lease_exclusiveness(history: History) -> None:
    """See `History.lease_exclusiveness`."""
    for life in history.facts.all_lives():
        earlier: list[Hold] = []
        for hold in life.holds:
            for other in earlier:
                if _is_in_force(other, hold, history):
                    until = _until_at(other, hold.claimed)
                    text = f"it was claimed under a lease in force until {until}"
                    broken(
                        history, "lease_exclusiveness", hold.row, text, other.claimed, hold.claimed
                    )
                if (late := _late_write(other, hold.claimed, history)) is not None:
                    text = f"it was written for {other.event.instance!r} after it was claimed again"
                    moments = (other.claimed, hold.claimed, late)
                    broken(history, "lease_exclusiveness", hold.row, text, *moments)
            earlier.append(hold)


def _late_write(hold: Hold, claim: Moment, history: History) -> Moment | None:
    """What was written for a hold although somebody had claimed the row since."""
    writes = [moment for moment, _ in hold.renewals]
    if hold.end is not None and not isinstance(hold.end.event, events.Lost | events.OutcomeUnknown):
        writes.append(hold.end)
    for write in writes:
        # What was written just before may be logged just after.
        if write.index > claim.index and write.at - claim.at > history.slack:
            return write
    return None


def _is_in_force(hold: Hold, claim: Hold, history: History) -> bool:
    until = _until_at(hold, claim.claimed)
    # By the claimer's own clock, as the rule is.
    if until is None or until <= claim.event.at:
        return False
    if hold.end is not None and (
        hold.end.index < claim.claimed.index or hold.end.at - claim.claimed.at <= history.slack
    ):
        return False
    # A delivery that has ended may be written although nobody could say so yet.
    if any(
        run.ended and run.ended.index < claim.claimed.index and not run.was_killed
        for run in hold.runs
    ):
        return False
    return bool(hold.runs) or hold.death is None


def _until_at(hold: Hold, claim: Moment) -> datetime | None:
    """The end of its lease as last confirmed before the claim."""
    until = hold.event.locked_until
    for at, renewed in hold.renewals:
        if at.index < claim.index:
            until = renewed
    return until
