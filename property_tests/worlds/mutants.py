"""Faults that are planted into the library, one at a time: each must be found by its property."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import anyio
import pytest
from anyio.lowlevel import RunVar
from hypothesis import strategies as st

import inboxkit._composing as composing
import inboxkit._forms.claiming as form_claiming
from inboxkit._core import settlement
from inboxkit._core.settlement import Policy, Verb
from inboxkit._runtime import workers
from inboxkit._runtime.capacity import Capacity
from inboxkit._runtime.claiming import Claimer
from inboxkit._runtime.held import Held, Release, Stage
from inboxkit._runtime.renewing import Renewer
from inboxkit._runtime.settling import Settler
from inboxkit._runtime.turns import Turns
from inboxkit._runtime.waking import Waker
from inboxkit._sql.sqlite import claim, lease

from .oracle import (
    NO_ROW_IS_LOST,
    Rule,
    attempts_are_counted,
    goes_as_scripted,
    nothing_is_lost,
    the_cap_holds,
)
from .order import (
    claims_are_in_order,
    fifo_groups_keep_their_order,
    keys_keep_their_order,
    nothing_due_waits_for_a_free_worker,
)
from .overlap import answers_come_first, rows_in_work_are_bounded
from .schedule import Schedule
from .strategies import (
    belated_schedules,
    calm_schedules,
    crowd_schedules,
    late_schedules,
    settling_schedules,
)

__all__ = ["MUTANTS", "PUBLISHED", "Mutant", "slow_answers"]

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """One fault, and the property that is to find it."""

    plant: Plant
    schedules: st.SearchStrategy[Schedule]
    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        return self.plant.__name__


# The properties, as their test modules state them.
ORDER = (crowd_schedules(), (claims_are_in_order,))
LATE = (late_schedules(), NO_ROW_IS_LOST)
FIFO = (
    crowd_schedules(("fifo", "fifo", "bare fifo"), ("a", "b")),
    (fifo_groups_keep_their_order,),
)
KEYS = (crowd_schedules(("keyed",)), (claims_are_in_order, keys_keep_their_order))
COUNT = (
    calm_schedules(shapes=("plain", "kept", "fifo", "bare fifo", "keyed"), instances=("a", "b")),
    (goes_as_scripted, attempts_are_counted, the_cap_holds),
)
KEY_ANSWERS = (settling_schedules(shapes=("keyed",)), (answers_come_first,))
GROUP_ANSWERS = (settling_schedules(shapes=("fifo", "bare fifo")), (answers_come_first,))
IN_WORK = (settling_schedules(shapes=("plain", "kept")), (rows_in_work_are_bounded,))
PUBLISHED = (calm_schedules(by=("a",), poll=3600.0), (nothing_is_lost,))
WAIT = (
    calm_schedules(by=("a",), poll=3600.0),
    (nothing_due_waits_for_a_free_worker, nothing_is_lost),
)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Whoever held a row may write it."""
    fence = "q.id = inboxkit_held.id"
    patch.setattr(lease.SqliteLease, "_fence", lambda self: fence)


def _change_claims(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    select = claim.claim_select

    def changed(*args: Any, **named: Any) -> str:
        return select(*args, **named).replace(old, new)

    patch.setattr(lease, "claim_select", changed)


def no_due_check(patch: pytest.MonkeyPatch) -> None:
    """Rows go out before they are due."""
    _change_claims(patch, "q.`retry_after` <= $1", "$1 = $1")


def no_lease_check(patch: pytest.MonkeyPatch) -> None:
    """Rows go out although they are in work."""
    _change_claims(patch, "q.`locked_until` <= $1", "$1 = $1")


def last_in_first_out(patch: pytest.MonkeyPatch) -> None:
    """The newest of equals goes first."""
    keys = claim.keys

    def backwards(table: Any) -> Iterator[str]:
        *first, last = keys(table)
        yield from first
        yield f"{last} DESC"

    patch.setattr(claim, "keys", backwards)


def no_priority(patch: pytest.MonkeyPatch) -> None:
    """Priorities are not looked at."""
    keys = claim.keys
    patch.setattr(claim, "keys", lambda table: (k for k in keys(table) if "priority" not in k))


def wakes_ignored(patch: pytest.MonkeyPatch) -> None:
    """Rows wait for the poll."""
    patch.setattr(Waker, "wake", lambda self, due=None: None)


def slow_answers(patch: pytest.MonkeyPatch) -> None:
    """No fault: claims are answered half a second after they were made, so that much happens meanwhile."""
    shielded = Claimer._claim_shielded

    async def slow(self: Claimer, limit: int, scope: anyio.CancelScope) -> Any:
        answer = await shielded(self, limit, scope)
        await anyio.sleep(0.5)
        return answer

    patch.setattr(Claimer, "_claim_shielded", slow)


def wake_during_a_claim_lost(patch: pytest.MonkeyPatch) -> None:
    """A wake that comes while a claim is running is not kept."""
    slow_answers(patch)
    slow = Claimer._claim_shielded

    async def forgetful(self: Claimer, limit: int, scope: anyio.CancelScope) -> Any:
        answer = await slow(self, limit, scope)
        self._waker._is_woken = False
        return answer

    patch.setattr(Claimer, "_claim_shielded", forgetful)


def due_times_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is due later waits for the poll."""
    wake = Waker.wake

    def only_now(self: Waker, due: datetime | None = None) -> None:
        if due is None or due <= self._clock.now():
            wake(self, due)

    patch.setattr(Waker, "wake", only_now)


def cap_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """One delivery more than the cap."""
    open_form, policy = composing.__dict__["open_form"], composing._policy

    def open_larger(*args: Any, cap: int | None, **named: Any) -> Any:
        return open_form(*args, cap=cap and cap + 1, **named)

    def larger(one: Any) -> Policy:
        plain = policy(one)
        return dataclasses.replace(
            plain, max_attempts=plain.max_attempts and plain.max_attempts + 1
        )

    patch.setattr(composing, "open_form", open_larger)
    patch.setattr(composing, "_policy", larger)


def cap_off_by_one_at_settlements(patch: pytest.MonkeyPatch) -> None:
    """The last delivery is retried, and only the next claim finds its row spent."""

    def is_last(attempt: int, policy: Policy) -> bool:
        return policy.max_attempts is not None and attempt > policy.max_attempts

    patch.setattr(settlement, "_is_last", is_last)


def cap_not_looked_at_by_claims(patch: pytest.MonkeyPatch) -> None:
    """Deliveries that nobody could settle do not count to the cap."""
    plain = form_claiming.Claiming._row

    def never_spent(self: Any, *args: Any) -> Any:
        row = plain(self, *args)
        return row and dataclasses.replace(row, spent=False)

    patch.setattr(form_claiming.Claiming, "_row", never_spent)


_COUNTED = ", attempt = q.attempt + 1"


def retry_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """A retried row is counted again at its settlement."""
    statement = lease.SqliteLease._statement

    def counting(self: Any, write: Any, rows: Any, now: Any) -> Any:
        made = statement(self, write, rows, now)
        if write.verb is not Verb.GIVE_BACK:
            return made
        text = made.text.replace(" FROM inboxkit_held", f"{_COUNTED} FROM inboxkit_held")
        return dataclasses.replace(made, text=text)

    patch.setattr(lease.SqliteLease, "_statement", counting)


def retry_takes_its_count_back(patch: pytest.MonkeyPatch) -> None:
    """A row that is to be retried later reads the same attempt again."""
    add = Settler.add

    def uncounted(self: Settler, held: Held, ending: Any) -> None:
        is_later = isinstance(ending, settlement.Settlement) and ending.verb is Verb.POSTPONE
        add(self, held, Release(give_back=True) if is_later else ending)

    patch.setattr(Settler, "add", uncounted)


def holds_never_end(patch: pytest.MonkeyPatch) -> None:
    """A handler runs on when its hold is over."""

    def never(self: Renewer, now: float) -> None:
        """Nothing is due, ever."""

    patch.setattr(Renewer, "end_holds", never)


def group_in_work_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A FIFO claim does not ask whether another row of the group is in work."""
    _change_claims(patch, "NOT EXISTS (SELECT 1 FROM", "2 NOT IN (SELECT 1 FROM")


def head_that_is_not_due_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Of a FIFO group the first due row is taken, not the first."""
    fifo = claim.fifo

    def passing(table: Any, group_name: str, **named: Any) -> Iterator[str]:
        head, free, alone = fifo(table, group_name, **named)
        yield head.replace(" ORDER BY", f" AND {free} ORDER BY", 1)
        yield free
        yield alone

    patch.setattr(claim, "fifo", passing)


def nobody_waits_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    """The next row of a key or group begins whatever became of the one before."""

    def enter(self: Turns, held: Held) -> None:
        """It is everybody's turn."""

    patch.setattr(Turns, "enter", enter)


def unsettled_rows_are_not_bounded(patch: pytest.MonkeyPatch) -> None:
    """However many await their settlement, more are claimed."""
    room = Capacity.room

    def unbounded(self: Capacity, holds: Collection[Held]) -> int:
        return room(self, [held for held in holds if held.stage is not Stage.ENDED])

    init = Capacity.__init__

    def uncounting(self: Capacity, *args: Any, **named: Any) -> None:
        init(self, *args, **{**named, "unsettled": lambda: 0})

    patch.setattr(Capacity, "__init__", uncounting)
    patch.setattr(Capacity, "room", unbounded)


def keys_go_to_any_worker(patch: pytest.MonkeyPatch) -> None:
    """Rows of one key are handed to the workers in turn, each run from the first worker on: it must replay.

    And none waits for the one before: that alone keeps a key's order, wherever its rows are queued.
    """
    nobody_waits_for_an_answer(patch)
    turns: RunVar[Iterator[int]] = RunVar("turns")

    def lane(key: object, count: int) -> int:
        try:
            turn = turns.get()
        except LookupError:
            turns.set(turn := itertools.count())
        return next(turn) % count

    patch.setattr(workers, "_lane", lane)


MUTANTS = [
    Mutant(no_fence, belated_schedules(), NO_ROW_IS_LOST),
    Mutant(no_due_check, calm_schedules(), NO_ROW_IS_LOST),
    Mutant(no_lease_check, *LATE),
    Mutant(holds_never_end, *LATE),
    Mutant(cap_not_looked_at_by_claims, *LATE),
    Mutant(last_in_first_out, *ORDER),
    Mutant(no_priority, *ORDER),
    Mutant(wakes_ignored, *WAIT),
    Mutant(wake_during_a_claim_lost, *PUBLISHED),
    Mutant(due_times_forgotten, *WAIT),
    Mutant(cap_off_by_one, *COUNT),
    Mutant(cap_off_by_one_at_settlements, *COUNT),
    Mutant(retry_counts_twice, *COUNT),
    Mutant(retry_takes_its_count_back, *COUNT),
    Mutant(group_in_work_not_looked_at, *FIFO),
    Mutant(head_that_is_not_due_is_passed_over, *FIFO),
    Mutant(last_in_first_out, *FIFO),
    Mutant(keys_go_to_any_worker, *KEYS),
    Mutant(nobody_waits_for_an_answer, *KEY_ANSWERS),
    Mutant(nobody_waits_for_an_answer, *GROUP_ANSWERS),
    Mutant(unsettled_rows_are_not_bounded, *IN_WORK),
]
