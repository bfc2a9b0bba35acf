"""Each fault that is planted into the library is found by its property, in each of several fresh runs."""

from __future__ import annotations

from collections.abc import Iterator
from random import SystemRandom

import pytest
from hypothesis import Phase, given, seed, settings
from worlds.cells import Cell, open_cell
from worlds.history import Broken
from worlds.mutants import MUTANTS, PUBLISHED, Mutant, slow_answers
from worlds.schedule import Schedule

RUNS = 5 if settings().max_examples >= 100 else 2
EXAMPLES = 200
"""Of each property on SQLite."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    cell = open_cell("inloop", "asyncio", 1, tmp_path_factory.mktemp("mutants"))
    yield cell
    cell.connection.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{n}-{m.name}" for n, m in enumerate(MUTANTS)])
def test_a_planted_fault_is_found_in_every_run(
    mutant: Mutant, world: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.plant(monkeypatch)
    needed = [_examples_until_found(mutant, world) for _ in range(RUNS)]
    print(f"{mutant.name} was found after {needed} examples")
    assert None not in needed


def _examples_until_found(mutant: Mutant, world: Cell) -> int | None:
    examples, is_found = 0, False

    @seed(SystemRandom().getrandbits(64))
    @settings(
        max_examples=EXAMPLES, database=None, phases=[Phase.generate], report_multiple_bugs=False
    )
    @given(mutant.schedules)
    def holds(schedule: Schedule) -> None:
        nonlocal examples, is_found
        examples += not is_found
        try:
            world.judge(schedule, *mutant.rules)
        except Broken:
            is_found = True
            raise

    try:
        holds()
    except Broken:
        return examples
    return None


def test_slow_answers_alone_break_nothing(world: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_answers(monkeypatch)
    schedules, rules = PUBLISHED

    @settings(max_examples=50)
    @given(schedules)
    def holds(schedule: Schedule) -> None:
        world.judge(schedule, *rules)

    holds()
