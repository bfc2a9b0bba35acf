"""Judges what happened to single rows, by the rules of the queue and the evidence alone.

It shares no code with the library: the changes come from a trigger, the calls from the handlers, and
what the library says of itself (its events) is only held against them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal, TypeAlias

from inboxkit import events

from .history import Broken, Call, History
from .schedule import Act, Advance, Publish, Schedule, Stop
from .trail import Change

__all__ = [
    "MILLISECOND",
    "NO_ROW_IS_LOST",
    "Kind",
    "Rule",
    "attempts_are_counted",
    "claims_are_due",
    "each_call_has_its_claim",
    "endings_are_earned",
    "events_tell_the_truth",
    "goes_as_scripted",
    "is_undisturbed",
    "kind_of",
    "leased_at",
    "nothing_is_lost",
    "one_call_at_a_time",
    "the_cap_holds",
]  # fmt: skip

Rule: TypeAlias = Callable[[History], None]
Kind: TypeAlias = Literal[
    "insert", "claim", "spent claim", "rewrite", "back", "postpone", "move", "finish"
]
"""rewrite: a renewal, or the hold of a failed row that keeps its place."""

MILLISECOND = timedelta(milliseconds=1)
"""An expiry is up to this much later than the lease's length says: that makes it a token."""

_DONE = {"ack", "none", "drop", "settle ack"}


def kind_of(change: Change, schedule: Schedule) -> Kind:
    """What a write was."""
    old, new = change.old, change.new
    if old is None:
        return "insert"
    if new is None or (new.processed_at is not None and old.processed_at is None):
        return "finish"
    if new.grp != old.grp:
        return "move"
    if new.locked_until is None:
        return "back" if new.retry_after == old.retry_after else "postpone"
    if new.attempt == old.attempt + 1:
        return "claim"
    is_free = old.locked_until is None or old.locked_until <= leased_at(change, schedule)
    is_spent = schedule.cap is not None and old.attempt > schedule.cap
    return "spent claim" if is_free and is_spent else "rewrite"


def leased_at(change: Change, schedule: Schedule) -> datetime:
    """When a claim read the clock, or up to a millisecond later."""
    assert change.new is not None
    assert change.new.locked_until is not None
    return change.new.locked_until - timedelta(seconds=schedule.lease)


def _by_row(history: History) -> dict[int, list[tuple[Kind, Change]]]:
    rows: defaultdict[int, list[tuple[Kind, Change]]] = defaultdict(list)
    for change in history.changes:
        rows[change.row.id].append((kind_of(change, history.schedule), change))
    return rows


def _calls_by_row(history: History) -> dict[int, list[Call]]:
    rows: defaultdict[int, list[Call]] = defaultdict(list)
    for call in history.calls:
        rows[call.id].append(call)
    return rows


def claims_are_due(history: History) -> None:
    """A claim takes a row that is unfinished, of a served queue, due, and under no lease in force."""
    for change in history.changes:
        if kind_of(change, history.schedule) not in ("claim", "spent claim"):
            continue
        row, at = change.row, leased_at(change, history.schedule)
        if row.processed_at is not None:
            raise Broken(f"row {row.id} was claimed although it was finished: {change}")
        if row.retry_after is not None and row.retry_after > at:
            raise Broken(f"row {row.id} was claimed at {at} and is due at {row.retry_after}")
        if row.locked_until is not None and row.locked_until > at:
            raise Broken(f"row {row.id} was claimed at {at} under a lease until {row.locked_until}")
        if row.grp.endswith(".dead"):
            raise Broken(f"row {row.id} was claimed although it is a dead letter")


def attempts_are_counted(history: History) -> None:
    """Attempts start at 1, only claims count, one each; only a stop takes one back."""
    may_take_back = any(isinstance(step, Stop) for step in history.schedule.steps)
    for id, changes in _by_row(history).items():
        for kind, change in changes:
            old, new = change.old, change.new
            if new is None:
                continue
            if old is None:
                if new.attempt != 1:
                    raise Broken(f"row {id} was inserted with attempt {new.attempt}")
                continue
            step = new.attempt - old.attempt
            if step == (1 if kind == "claim" else 0):
                continue
            if not (kind == "back" and step == -1 and may_take_back):
                raise Broken(f"row {id}: a {kind} counted {step:+d} attempts: {change}")


def each_call_has_its_claim(history: History) -> None:
    """A handler runs at most once for a claim, and reads the number that the claim found."""
    claims = Counter(
        (change.row.id, change.row.attempt)
        for change in history.changes
        if kind_of(change, history.schedule) == "claim"
    )
    calls = Counter((call.id, call.attempt) for call in history.calls)
    if too_many := calls - claims:
        raise Broken(f"calls without a claim (row, attempt): {dict(too_many)}")
    for call in history.calls:
        numbers = {change.row.number for change in history.of_row(call.id)}
        if numbers != {call.number}:
            raise Broken(f"row {call.id} of number {numbers} was handed out as {call}")


def one_call_at_a_time(history: History) -> None:
    """No two handlers have one row at once, and none starts when its hold is over."""
    for id, calls in _calls_by_row(history).items():
        calls.sort(key=lambda call: call.started)
        for one, other in pairwise(calls):
            if one.ended is None or other.started < one.ended:
                raise Broken(f"row {id} was in two handlers at once:\n  {one}\n  {other}")
        for call in calls:
            if call.deadline is not None and call.started_at > call.deadline:
                raise Broken(f"row {id} reached a handler after the end of its hold: {call}")


def endings_are_earned(history: History) -> None:
    """A row is finished once, by the delivery that held it last, whose handler said so."""
    calls = _calls_by_row(history)
    for id, changes in _by_row(history).items():
        is_over, last = False, 0
        for kind, change in changes:
            if is_over:
                raise Broken(f"row {id} was written after it was finished: {change}")
            if kind == "claim":
                last = change.row.attempt
            elif kind == "finish":
                is_over = True
                ended = {c.ending for c in calls.get(id, ()) if c.attempt == last}
                if not ended & _DONE:
                    raise Broken(f"row {id} was finished, and its last delivery {last} {ended}")
                if change.row.attempt != last + 1:
                    raise Broken(f"row {id} was finished by another than its holder: {change}")


def the_cap_holds(history: History) -> None:
    """No delivery past the cap; a row moves when its attempts are spent, and only then."""
    cap = history.schedule.cap
    for call in history.calls:
        if cap is not None and call.attempt > cap:
            raise Broken(f"a delivery past the cap of {cap}: {call}")
        if cap is not None and call.group.endswith(".dead"):
            raise Broken(f"a dead letter was delivered: {call}")
    calls = _calls_by_row(history)
    for change in history.changes:
        kind = kind_of(change, history.schedule)
        if kind != "move":
            continue
        assert change.old is not None
        assert change.new is not None
        if cap is None or change.old.attempt != cap + 1:
            raise Broken(f"row {change.old.id} moved with attempt {change.old.attempt}: {change}")
        if change.new.grp != f"{change.old.grp}.dead" or change.new.locked_until is not None:
            raise Broken(f"row {change.old.id} moved wrongly: {change}")
        if all(call.attempt != cap for call in calls.get(change.old.id, ())) and not any(
            k == "spent claim" for k, _ in _by_row(history)[change.old.id]
        ):
            raise Broken(f"row {change.old.id} moved without its last delivery: {change}")


def nothing_is_lost(history: History) -> None:
    """Every row that was inserted is finished or a dead letter in the end, and nothing else left it."""
    if not history.is_drained:
        raise Broken("rows are left although both instances ran undisturbed for ten minutes")
    by_row = _by_row(history)
    for published in history.published:
        if published.id not in by_row:
            raise Broken(f"{published} is nowhere")
    for id, changes in by_row.items():
        kind, change = changes[-1]
        if kind in ("finish", "move") or _is_of_no_queue(change, history.schedule):
            continue
        raise Broken(f"row {id} was left behind: {change}")


def _is_of_no_queue(change: Change, schedule: Schedule) -> bool:
    return schedule.shape in ("plain", "kept") and change.row.grp == "b"


def events_tell_the_truth(history: History) -> None:
    """What an instance says that it wrote was written, and for the delivery that it says."""
    written: defaultdict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for change in history.changes:
        kind = kind_of(change, history.schedule)
        written[change.row.id, kind][change.row.attempt] += 1
    kinds: dict[type[events.RowEvent], tuple[str, ...]] = {
        events.Finished: ("finish",),
        events.DeadLettered: ("move",),
        events.Retried: ("back", "postpone", "rewrite"),
        events.Released: ("back",),
    }
    for event in history.events:
        if type(event) not in kinds:
            continue
        assert event.attempt is not None
        stored = event.attempt + 1
        spent = history.schedule.cap is not None and event.attempt > history.schedule.cap
        if spent:
            stored = event.attempt
        if not any(written[event.id, kind][stored] for kind in kinds[type(event)]):
            raise Broken(f"nothing like it was written: {event}")


def is_undisturbed(schedule: Schedule) -> bool:
    """Whether nothing goes wrong in it: each handler then runs as its script says."""
    return not schedule.delays and all(isinstance(s, Publish | Advance) for s in schedule.steps)


def goes_as_scripted(history: History) -> None:
    """Undisturbed, a row is delivered as 1, 2, 3 … until its handler is done or its cap is reached."""
    calls = _calls_by_row(history)
    jobs = [step.job for step in history.schedule.steps if isinstance(step, Publish)]
    for id, changes in _by_row(history).items():
        job = jobs[changes[0][1].row.number]
        if history.schedule.shape in ("plain", "kept") and job.group == "b":
            expected, end = list[tuple[int, str]](), "insert"
        else:
            expected, end = _expected(job.acts, history.schedule.cap)
        got = [(call.attempt, call.ending) for call in calls.get(id, ())]
        if got != expected:
            raise Broken(f"row {id}: expected the calls {expected}, got {got}")
        if any(kind == "spent claim" for kind, _ in changes):
            raise Broken(f"row {id} was claimed when its attempts were spent")
        if (last := changes[-1][0]) != end:
            raise Broken(f"row {id}: expected the end {end!r}, got {last!r}")


def _expected(acts: tuple[Act, ...], cap: int | None) -> tuple[list[tuple[int, str]], str]:
    calls = []
    for attempt, act in enumerate(_forever(acts), 1):
        calls.append((attempt, str(act.answer)))
        if act.answer in _DONE:
            return calls, "finish"
        if attempt == cap:
            return calls, "move"
    raise AssertionError


def _forever(acts: tuple[Act, ...]) -> Iterator[Act]:
    yield from acts
    while True:
        yield Act()


NO_ROW_IS_LOST: tuple[Rule, ...] = (
    claims_are_due,
    attempts_are_counted,
    each_call_has_its_claim,
    one_call_at_a_time,
    endings_are_earned,
    the_cap_holds,
    events_tell_the_truth,
    nothing_is_lost,
)
"""What holds of every run, however rough."""
