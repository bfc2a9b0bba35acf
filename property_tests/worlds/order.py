"""Judges the order of claims and deliveries, by the rules of the queue and the evidence alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise

from inboxkit import events

from .history import Broken, Call, History
from .oracle import MILLISECOND, kind_of, leased_at
from .schedule import Publish, Schedule
from .tables import FAILED_FOR
from .trail import Change, Image, since

__all__ = [
    "claims_are_in_order",
    "fifo_groups_keep_their_order",
    "keys_keep_their_order",
    "nothing_due_waits_for_a_free_worker",
]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def order_key(row: Image, schedule: Schedule) -> tuple[object, ...]:
    """The claim order: priority, due time, id; NULL first."""
    if schedule.shape == "bare fifo":
        return (row.id,)
    due = (0, _LONG_AGO) if row.retry_after is None else (1, row.retry_after)
    priority = (0, 0) if row.priority is None else (1, row.priority)
    return (priority, due, row.id)


@dataclass(slots=True)
class Taken:
    """One claim: the rows that it wrote, and the table as it saw it."""

    changes: list[Change]
    before: dict[int, Image] = field(default_factory=dict)

    @property
    def rows(self) -> list[Image]:
        return [change.row for change in self.changes]


def claims(history: History) -> Iterator[Taken]:
    """All claims, in order, each with the table as it stood for it."""
    seen: list[Change] = []
    state: dict[int, Image] = {}

    def expiry(change: Change) -> datetime | None:
        is_claim = kind_of(change, history.schedule) in ("claim", "spent claim")
        return change.new.locked_until if is_claim and change.new is not None else None

    for end, changes in groupby(history.changes, key=expiry):
        group = list(changes)
        if end is not None:
            unseen = group[0].unseen
            yield Taken(group, dict(state) if not unseen else _table(seen, unseen))
        for change in group:
            seen.append(change)
            _apply(state, change)


def _table(changes: list[Change], unseen: frozenset[int]) -> dict[int, Image]:
    state: dict[int, Image] = {}
    for change in changes:
        if change.transaction not in unseen:
            _apply(state, change)
    return state


def _apply(state: dict[int, Image], change: Change) -> None:
    if change.new is None:
        state.pop(change.row.id, None)
    else:
        state[change.row.id] = change.new


def claims_are_in_order(history: History) -> None:
    """A claim passes over no row that stands before one that it takes, and hands out in that order."""
    for taken in claims(history):
        rows = taken.rows
        at = leased_at(taken.changes[0], history.schedule) - MILLISECOND
        ids = {row.id for row in rows}
        last = max(order_key(row, history.schedule) for row in rows)
        for row in taken.before.values():
            if row.id in ids or row.grp != rows[0].grp or not _is_free(row, at):
                continue
            if order_key(row, history.schedule) < last:
                raise Broken(f"the claim of {', '.join(map(str, rows))}\npassed over {row}")
    _events_in_order(history)


def _is_free(row: Image, at: datetime) -> bool:
    return (
        row.processed_at is None
        and (row.retry_after is None or row.retry_after <= at)
        and (row.locked_until is None or row.locked_until <= at)
    )


def _events_in_order(history: History) -> None:
    rows = {(c.row.id, c.new and c.new.locked_until): c.row for c in history.changes}
    claimed = [event for event in history.events if isinstance(event, events.Claimed)]
    for _, group in groupby(claimed, key=lambda e: (e.instance, e.queue, e.locked_until)):
        keys = [order_key(rows[e.id, e.locked_until], history.schedule) for e in group]
        if keys != sorted(keys):
            raise Broken(f"rows of one claim were handed out as {keys}")


def fifo_groups_keep_their_order(history: History) -> None:
    """One row of a group is in work at a time, and it is always the group's first unfinished one."""
    for taken in claims(history):
        groups = [row.grp for row in taken.rows]
        if len(groups) != (len(set(groups)) if history.schedule.every_group else 1):
            raise Broken(f"a FIFO claim took {len(groups)} rows, of {sorted(set(groups))}")
        at = leased_at(taken.changes[0], history.schedule)
        for row in taken.rows:
            _is_free_head(row, taken, at, history.schedule)
    by_group: defaultdict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        by_group[call.group].append(call)
    for group_name, calls in by_group.items():
        _one_at_a_time(calls, f"group {group_name!r}")


def _is_free_head(row: Image, taken: Taken, at: datetime, schedule: Schedule) -> None:
    group = [
        other
        for other in taken.before.values()
        if other.grp == row.grp and other.processed_at is None
    ]
    head = min(group, key=lambda other: order_key(other, schedule))
    if head.id != row.id:
        raise Broken(f"row {row.id} was claimed while the head of its group was {head}")
    for other in group:
        if other.locked_until is not None and other.locked_until > at and other.id != row.id:
            raise Broken(f"row {row.id} was claimed while {other} was in work")


def keys_keep_their_order(history: History) -> None:
    """In one instance, rows of a key are handled one at a time and in the order of their claims."""
    claim_of = {
        (change.row.id, change.row.attempt): (taken_at, order_key(change.row, history.schedule))
        for taken_at, taken in enumerate(claims(history))
        for change in taken.changes
    }
    by_key: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        by_key[call.instance, call.key].append(call)
    for (instance, key), calls in by_key.items():
        _one_at_a_time(calls, f"key {key!r} of {instance}")
        order = [claim_of[call.id, call.attempt] for call in calls]
        if order != sorted(order):
            raise Broken(f"key {key!r} of {instance}: not in the order of claims")
    _at_most(history.schedule.workers, history.calls)


def _one_at_a_time(calls: list[Call], what: str) -> None:
    for one, other in pairwise(calls):
        if one.ended is None or other.started < one.ended:
            raise Broken(f"{what} was in two handlers at once:\n  {one}\n  {other}")


def _at_most(workers: int, calls: list[Call]) -> None:
    running: defaultdict[str, int] = defaultdict(int)
    steps = [(call.started, 1, call) for call in calls]
    steps += [(call.ended, -1, call) for call in calls if call.ended is not None]
    for _, step, call in sorted(steps, key=lambda each: each[0]):
        running[call.instance] += step
        if running[call.instance] > workers:
            raise Broken(f"{call.instance} had more than {workers} handlers at work: {call}")


def nothing_due_waits_for_a_free_worker(history: History) -> None:
    """Undisturbed, one instance hands out a row at the instant when it is due and a worker is free.

    Whatever the poll interval: the instance knows of what it publishes and of what it retries.
    """
    schedule = history.schedule
    jobs = [step.job for step in schedule.steps if isinstance(step, Publish)]
    _at_most(schedule.workers, history.calls)
    ready: dict[int, datetime] = {}
    for published in history.published:
        wait = max(jobs[published.number].due_in or 0.0, 0.0)
        ready[published.id] = published.at + timedelta(seconds=wait)
    for call in sorted(history.calls, key=lambda call: call.started):
        due = ready[call.id]
        if call.started_at < due:
            raise Broken(f"due at {since(due)}: {call}")
        if idle := _idle_between(due, call.started_at, history):
            raise Broken(f"due at {since(due)}, and at {since(idle)} a worker was free: {call}")
        runs = [c for c in history.calls if c.id == call.id and c.started < call.started]
        acts = jobs[call.number].acts
        act = acts[len(runs)] if len(runs) < len(acts) else None
        wait = FAILED_FOR if call.ending == "raise" else 0.0
        wait = act.delay if act is not None and call.ending == "retry after" else wait
        assert call.ended_at is not None
        ready[call.id] = call.ended_at + timedelta(seconds=wait)


def _idle_between(start: datetime, end: datetime, history: History) -> datetime | None:
    """An instant from `start` until `end` from which on a worker was free for a while."""
    turns = {start, *(c.ended_at for c in history.calls if c.ended_at and start < c.ended_at < end)}
    for turn in sorted(turns):
        if turn >= end:
            continue
        busy = sum(
            call.started_at <= turn and (call.ended_at is None or call.ended_at > turn)
            for call in history.calls
        )
        if busy < history.schedule.workers:
            return turn
    return None
