"""The pytest case that a machine prints makes all happen in the same order again."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup
from hypothesis import Phase, seed, settings

from inboxkit_testing import CrashAndResume, StatementGate, VirtualClock, VirtualRunner, World, run
from inboxkit_testing.backends import BackendName
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


CASES = [
    *(("asyncio", number) for number in (7, 15, 16, 19, 23, 24, 26, 52, 56)),
    # An instance that is told to stop has ready tasks when the next step is made.
    *(("trio", number) for number in (11, 17, 57)),
]


@pytest.mark.parametrize(("backend", "number"), CASES)
def test_a_printed_case_has_the_timeline_of_its_example(
    backend: BackendName, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = {"traffic": Told.traffic, "database": "sqlite-inloop", "backend": backend}
    made: Any = type("Told", (Told,), {**attributes, "__module__": shop.__name__})
    machine: type[CrashAndResume] = seed(number)(made)
    monkeypatch.setattr(shop, "Told", machine, raising=False)
    with pytest.raises(AssertionError) as found:
        run_machine(machine, _GENERATE)
    with pytest.raises(AssertionError) as again:
        compiled("\n".join(found.value.__notes__))(tmp_path)
    assert str(again.value) == str(found.value)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_calls_of_a_runner_follow_each_other_as_the_lines_of_one_function(
    backend: BackendName, seed: int | None
) -> None:
    """No other task makes a step between two calls that wait for nothing."""

    class Steps:
        def __init__(self) -> None:
            self.happened: list[str] = []
            self.bell = anyio.Event()

        async def wait_for_bell(self, name: str) -> None:
            await self.bell.wait()
            for n in range(3):
                self.happened.append(f"{name} {n}")
                await anyio.lowlevel.checkpoint()

        async def ring(self) -> None:
            self.happened.append("rung")
            self.bell.set()

        async def note(self, what: str) -> None:
            self.happened.append(what)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for name in "ab":
                tasks.start_soon(lines.wait_for_bell, name, name=name)
            await clock.settle()
            await lines.ring()
            await lines.note("first")
            await lines.note("second")
            await clock.settle()
            await lines.note("settled")

    lines, calls = Steps(), Steps()
    clock = VirtualClock(gate=StatementGate())
    run(main, backend=backend, clock=clock, seed=seed)
    with VirtualRunner(
        backend=backend, clock=VirtualClock(gate=StatementGate()), seed=seed
    ) as runner:
        tasks = Tasks(runner)
        for name in "ab":
            runner.call(tasks.start, calls.wait_for_bell, name)
        runner.call(runner.clock.settle)
        runner.call(calls.ring)
        runner.call(calls.note, "first")
        runner.call(calls.note, "second")
        runner.call(runner.clock.settle)
        runner.call(calls.note, "settled")
        runner.call(tasks.close)
    assert calls.happened[:3] == lines.happened[:3] == ["rung", "first", "second"]
    assert calls.happened[-1] == lines.happened[-1] == "settled"
    if seed is None:
        assert calls.happened == lines.happened


class Tasks:
    """A task group that calls of a runner open, fill and close."""

    def __init__(self, runner: VirtualRunner) -> None:
        self._group = runner.call(self._open)

    async def _open(self) -> TaskGroup:
        return await anyio.create_task_group().__aenter__()

    async def start(self, function: Callable[[str], Awaitable[None]], name: str) -> None:
        self._group.start_soon(function, name, name=name)

    async def close(self) -> None:
        await self._group.__aexit__(None, None, None)
