"""The pytest case that a machine prints makes all happen in the same order again."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, seed, settings

from inboxkit_testing import CrashAndResume, World
from inboxkit_testing.stateful.running import run_machine
from testing_kit import resuming_services as shop

_GENERATE = settings(
    max_examples=60, database=None, phases=[Phase.generate], report_multiple_bugs=False
)
_MUCH = 60
"""Lines of a timeline."""


class Told(shop.Shop):
    """Tells what happened in an example in which much did."""

    async def check(self, world: World) -> None:
        lines = list(world.timeline.lines())
        if len(world.published) >= 4 or len(lines) > _MUCH:
            raise AssertionError("\n".join(lines))


def compiled(notes: str) -> Callable[[Path], None]:
    """The printed case."""
    case = notes.partition("The same as a test, on ")[2].partition("\n\n")[2].splitlines()
    end = next(n for n, line in enumerate(case) if line.startswith("    run("))
    module = types.ModuleType("pasted")
    exec(compile("\n".join(case[: end + 1]), "pasted.py", "exec"), vars(module))
    test: Callable[[Path], None] = module.__dict__["test_crash_and_resume"]
    return test


@pytest.mark.parametrize("number", [7, 15, 16, 19, 23, 24, 26, 52, 56])
def test_a_printed_case_has_the_timeline_of_its_example(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = {"traffic": Told.traffic, "database": "sqlite-inloop", "backend": "asyncio"}
    made: Any = type("Told", (Told,), {**attributes, "__module__": shop.__name__})
    machine: type[CrashAndResume] = seed(number)(made)
    monkeypatch.setattr(shop, "Told", machine, raising=False)
    with pytest.raises(AssertionError) as found:
        run_machine(machine, _GENERATE)
    with pytest.raises(AssertionError) as again:
        compiled("\n".join(found.value.__notes__))(tmp_path)
    assert str(again.value) == str(found.value)
