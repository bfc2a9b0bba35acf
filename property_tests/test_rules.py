"""The rules, explored to the end in small worlds; and every form on every database keeps to them.

All that two workers, the clock and a lost request or answer can do to one or two rows is looked at, state
by state. Ways through what was found are then gone on real databases, where the driver port loses what the
rules say was lost: answers and rows must be the same after each step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from benches.cells import BACKENDS, BUILT, Cell
from hypothesis import settings
from worlds import mutants
from worlds.rules_replay import DisagreementError, Stage
from worlds.rules_search import BrokenRuleError, Step, explore
from worlds.rules_worlds import LARGE, WORLDS, explored, itself, situation

from inboxkit.abc import Settled
from inboxkit_testing import VirtualClock, VirtualRunner
from inboxkit_testing.backends import BackendName
from inboxkit_testing.model import ModelForm, ModelRow
from inboxkit_testing.model import lease as model_lease
from inboxkit_testing.model.held import ModelAdvisory, ModelRowLock
from inboxkit_testing.model.lease import ModelLease

IS_NIGHT = settings.get_current_profile_name() == "nightly"
SIZES = {
    "lease two": (3366, 21343),
    "lease one": (598, 3072),
    "lease fifo": (1476, 7839),
    "row lock two": (1092, 7864),
    "row lock one": (354, 1986),
    "row lock fifo": (568, 2956),
    "advisory two": (788, 5710),
    "advisory one": (261, 1484),
}
"""States and steps."""


@pytest.mark.parametrize("name", WORLDS)
def test_every_state_and_step_keeps_the_rules(name: str) -> None:
    graph = explored(name)
    assert (len(graph.steps), graph.transitions) == SIZES[name]
    kinds = Counter(
        (action.kind, action.loss) for steps in graph.steps.values() for action, _ in steps
    )
    expected = {"claim", "settle", "release"} | ({"renew"} if graph.world.is_lease else set())
    assert {(kind, loss) for kind in expected for loss in ("", "request", "reply")} <= set(kinds)
    assert {"crash", "wait"} <= {kind for kind, _ in kinds}
    assert max(len(state.finished) for state in graph.steps) == len(graph.world.rows)


@pytest.mark.skipif(not IS_NIGHT, reason="a minute each: at night")
@pytest.mark.parametrize("name", LARGE)
def test_every_state_and_step_of_a_larger_world_keeps_the_rules(name: str) -> None:
    graph = explored(name)
    print(f"{name}: {len(graph.steps)} states, {graph.transitions} steps")


# Faults that are planted into the rules.


def no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_lease, "_holds", lambda fence, row: True)


def leases_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelLease, "_is_free", lambda self, row, now: True)


def row_locks_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelRowLock, "_is_free", lambda self, row, now: True)


def keys_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelAdvisory, "_is_free", lambda self, row, now: True)


def due_times_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelRow, "is_due", lambda self, now: True)


def priorities_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelRow, "order", property(lambda row: (row.retry_after, row.id)))


def claims_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelForm, "_count", lambda self, row: None)


def the_cap_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelForm, "_is_spent", lambda self, row: False)


def spent_rows_are_counted(patch: pytest.MonkeyPatch) -> None:
    def count(self: ModelForm, row: ModelRow) -> None:
        row.attempt = row.number + 1

    patch.setattr(ModelForm, "_count", count)


def a_release_keeps_the_count(patch: pytest.MonkeyPatch) -> None:
    release = ModelLease._release

    def kept(self: ModelLease, fence: Any, *, give_back: bool) -> Settled:
        return release(self, fence, give_back=False)

    patch.setattr(ModelLease, "_release", kept)


def postponed_rows_keep_their_due_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelForm, "_postpone", lambda self, row, due: Settled("written", due))


def rows_are_not_held_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelLease, "_keep_back", lambda self, row, delay, now: Settled("written", now))


def a_settled_row_stays_leased(patch: pytest.MonkeyPatch) -> None:
    settle = ModelLease._settle

    def leased(self: ModelLease, fence: Any, settlement: Any) -> Settled:
        row = self._table.find(fence.id)
        before = row and row.locked_until
        settled = settle(self, fence, settlement)
        if row is not None:
            row.locked_until = before
        return settled

    patch.setattr(ModelLease, "_settle", leased)


def dead_letters_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelForm, "_move", lambda self, row, to: self._table.rows.remove(row))


def finished_rows_stay(patch: pytest.MonkeyPatch) -> None:
    write = ModelForm._write

    def kept(self: ModelForm, row: ModelRow, settlement: Any, now: datetime) -> Settled:
        settled = write(self, row, settlement, now)
        if row not in self._table.rows:
            self._table.rows.append(row)
        return settled

    patch.setattr(ModelForm, "_write", kept)


def sessions_are_kept(patch: pytest.MonkeyPatch) -> None:
    let_go = ModelRowLock._let_go

    def kept(self: ModelRowLock, fence: Any) -> Any:
        hold = self._database.holds.get(fence.hold or 0)
        row = let_go(self, fence)
        if hold is not None:
            self._database.holds[fence.hold or 0] = hold
        return row

    patch.setattr(ModelRowLock, "_let_go", kept)


def renewals_do_not_prolong(patch: pytest.MonkeyPatch) -> None:
    def start(self: ModelLease, fence: Any, made: Any, reading: Any) -> datetime:
        end: datetime = fence.tokens[0]
        return end - self._lease

    patch.setattr(ModelLease, "_start", start)


def the_last_token_alone_counts(patch: pytest.MonkeyPatch) -> None:
    """An answer to a renewal that was lost is taken for one that came."""
    holds = model_lease._holds

    def newest(fence: Any, row: ModelRow) -> bool:
        return holds(replace(fence, tokens=fence.tokens[-1:]), row)

    patch.setattr(model_lease, "_holds", newest)


def head_that_is_not_due_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    candidates = ModelForm._candidates

    def due(self: ModelForm, now: datetime) -> list[ModelRow]:
        rows = [row for row in self._table.rows if row.group == "a" and row.is_due(now)]
        free = bool(candidates(self, now))
        return sorted(rows, key=lambda row: row.order)[:1] if free else []

    patch.setattr(ModelForm, "_candidates", due)


def group_in_work_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def heads(self: ModelForm, now: datetime) -> list[ModelRow]:
        rows = [row for row in self._table.rows if row.group == "a" and self._is_free(row, now)]
        return sorted(rows, key=lambda row: row.order)[:1]

    patch.setattr(ModelForm, "_candidates", heads)


def group_that_was_taken_over_is_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelLease, "_is_taken_over", lambda self, row, now: False)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, str]] = [
    (no_fence, "lease one", "a settlement was written twice, or without its hold"),
    (leases_are_not_looked_at, "lease one", "a row in work was claimed"),
    (row_locks_are_not_looked_at, "row lock one", "a row in work was claimed"),
    (keys_are_not_looked_at, "advisory one", "a row in work was claimed"),
    (due_times_are_not_looked_at, "lease two", "a row was claimed before it was due"),
    (priorities_are_not_looked_at, "lease two", "a claim tells a wrong attempt, or a wrong order"),
    (claims_do_not_count, "lease one", "a claim miscounted"),
    (claims_do_not_count, "row lock one", "a settlement wrote something else"),
    (the_cap_is_not_looked_at, "lease one", "a claim tells a wrong attempt, or a wrong order"),
    (spent_rows_are_counted, "lease one", "a claim miscounted"),
    (a_release_keeps_the_count, "lease one", "a settlement wrote something else"),
    (postponed_rows_keep_their_due_time, "lease one", "a settlement wrote something else"),
    (rows_are_not_held_back, "lease one", "a row is not held back"),
    (a_settled_row_stays_leased, "lease one", "a settled row is leased"),
    (dead_letters_are_dropped, "lease one", "a row is lost, or there twice"),
    (finished_rows_stay, "lease one", "a finished row is there still"),
    (sessions_are_kept, "row lock one", "a session holds a row that nobody has"),
    (renewals_do_not_prolong, "lease one", "a renewed lease ends too early"),
    (the_last_token_alone_counts, "lease one", "a row was called lost though it was held"),
    (head_that_is_not_due_is_passed_over, "lease fifo", "other rows than the first that are due"),
    (group_in_work_is_not_looked_at, "lease fifo", "two of a FIFO group are in work"),
    (group_that_was_taken_over_is_renewed, "lease fifo", "though its group was taken over"),
]
"""Each with a world in which it shows, and what is then said."""


@pytest.mark.parametrize(
    ("plant", "name", "message"), FAULTS, ids=[f"{p.__name__}-{name}" for p, name, _ in FAULTS]
)
def test_a_fault_that_is_planted_into_the_rules_is_found(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    name: str,
    message: str,
) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenRuleError) as caught:
        explore(WORLDS[name])
    assert message in str(caught.value)


# The same on real databases.


@contextmanager
def database(request: pytest.FixtureRequest, name: str) -> Iterator[str]:
    """The URL of an empty one."""
    with ExitStack() as stack:
        if name != "sqlite":
            yield stack.enter_context(request.getfixturevalue(f"inbox_{name}").database())
            return
        memory = Path("/dev/shm")
        folder = tempfile.mkdtemp(prefix="inboxkit-", dir=memory if memory.is_dir() else None)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield f"sqlite:///{folder}/rules.db"


def go(ways: list[list[Step]], world: str, url: str, backend: BackendName) -> None:
    """Go ways through a world on a database."""
    clock = VirtualClock()
    clock.freeze()
    with VirtualRunner(backend=backend, clock=clock) as runner:
        stage = Stage(WORLDS[world], url, clock)
        runner.call(stage.open)
        try:
            for way in ways:
                runner.call(stage.go, way)
        finally:
            runner.call(stage.aclose)


def worlds_of(cell: Cell) -> list[str]:
    """Those that are gone through by day: the small ones."""
    names = [name for name, world in WORLDS.items() if world.form == cell.form]
    return names if IS_NIGHT else [name for name in names if name != "lease two"]


PLACES = [
    pytest.param(cell, backend, id=f"{cell}-{backend}")
    for number, cell in enumerate(BUILT)
    for place, backend in enumerate(BACKENDS)
    if IS_NIGHT or (number + place) % 2 == 0
]


@pytest.mark.parametrize(("cell", "backend"), PLACES)
def test_every_database_does_what_the_rules_say(
    request: pytest.FixtureRequest, cell: Cell, backend: BackendName
) -> None:
    alike = itself if IS_NIGHT else situation
    with database(request, cell.database) as url:
        for name in worlds_of(cell):
            ways = explored(name).covering(alike, longest=40)
            start = perf_counter()
            go(ways, name, url, backend)
            took = f"{perf_counter() - start:.1f} s"
            print(
                f"{name} on {cell.database}: {len(ways)} ways, {sum(map(len, ways))} steps, {took}"
            )
            lost = {(act.kind, act.loss) for way in ways for _, act, _ in way if act.loss}
            assert len(lost) == (8 if WORLDS[name].is_lease else 6)


def test_a_database_that_does_something_else_is_found(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = explored("lease one")
    ways = graph.covering(situation, longest=40)
    mutants.no_fence(monkeypatch)
    with database(request, "sqlite") as url, pytest.raises(DisagreementError, match="by the rules"):
        go(ways, "lease one", url, "asyncio")
