"""Every claim form on every database does what the model does, whatever the steps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from benches.cells import BACKENDS, BUILT, Cell
from benches.hosts import Host
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from worlds import mutants
from worlds.agreement import (
    DisagreementError,
    Schedule,
    Shape,
    agree,
    create,
    schedules,
    shapes_of,
)

from inboxkit.abc import Settled
from inboxkit_testing.conformance import DatabaseBench, ModelBench
from inboxkit_testing.model import ModelForm, ModelRow
from inboxkit_testing.model.lease import ModelLease


class Pair:
    """A table of each shape on a database, and on the model."""

    def __init__(self, cell: Cell, host: Host) -> None:
        self.cell = cell
        self._host = host
        self._benches: dict[str, tuple[DatabaseBench, ModelBench]] = {}

    def compare(self, shape: Shape, schedule: Schedule) -> None:
        """Run a schedule on both.

        Raises:
            DisagreementError: They differ.
        """
        self._host.call(self._compare, shape, schedule)

    async def _compare(self, shape: Shape, schedule: Schedule) -> None:
        if shape.name not in self._benches:
            real = DatabaseBench(self._host.db, self.cell.form, f"{shape.name} jobs")
            # Its own clock: each side lets the time of its steps pass.
            self._benches[shape.name] = real, ModelBench(self.cell.form, real.table)
            for bench in self._benches[shape.name]:
                await create(bench, shape)
        try:
            await agree(schedule, *self._benches[shape.name], shape)
        finally:
            # At once: tables of the other shapes need the sessions that still hold rows of this one.
            for bench in self._benches[shape.name]:
                await bench.let_go()
                await bench.delete_all()


@contextmanager
def opened(request: pytest.FixtureRequest, cell: Cell, backend: str) -> Iterator[Pair]:
    """A database of its own for a cell, kept over all examples."""
    with ExitStack() as stack:
        if cell.database == "sqlite":
            memory = Path("/dev/shm")
            folder = tempfile.mkdtemp(prefix="inboxkit-", dir=memory if memory.is_dir() else None)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            url = f"sqlite:///{folder}/forms.db"
        else:
            server = request.getfixturevalue(f"inbox_{cell.database}")
            url = stack.enter_context(server.database())
        yield Pair(cell, stack.enter_context(Host.opened(url, backend)))


@st.composite
def worlds_of(draw: st.DrawFn, shapes: list[Shape]) -> tuple[Shape, Schedule]:
    """A kind of table, and what happens to it."""
    shape = draw(st.sampled_from(shapes))
    return shape, draw(schedules(shape))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", BUILT, ids=str)
def test_form_and_model_agree(request: pytest.FixtureRequest, cell: Cell, backend: str) -> None:
    with opened(request, cell, backend) as pair:

        @settings(max_examples=settings().max_examples * 3 // 20)
        @given(worlds_of(shapes_of(cell)))
        def holds(world: tuple[Shape, Schedule]) -> None:
            pair.compare(*world)

        holds()


def count_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The model's lease form does not count a row that goes out a second time."""
    count = ModelLease._count
    patch.setattr(ModelLease, "_count", lambda self, row: row.number == 1 and count(self, row))


def last_in_first_out(patch: pytest.MonkeyPatch) -> None:
    """Of equals the model's last goes first."""
    patch.setattr(ModelRow, "order", property(lambda row: (0, 0, -row.id)))


def due_time_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The model's postponed rows keep their due time."""
    patch.setattr(ModelForm, "_postpone", lambda self, row, due: Settled("written", due))


def head_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Of a FIFO group the model takes the first row that is due, not the first."""
    candidates = ModelForm._candidates

    def due_alone(self: ModelForm, now: datetime) -> list[ModelRow]:
        spec, self._table.spec = self._table.spec, replace(self._table.spec, fifo=False)
        try:
            return candidates(self, now)
        finally:
            self._table.spec = spec

    patch.setattr(ModelForm, "_candidates", due_alone)


FAULTS = [
    (mutants.no_fence, "plain"),
    (last_in_first_out, "kept"),
    (head_passed_over, "fifo"),
    (count_forgotten, "plain"),
    (due_time_forgotten, "ungrouped"),
]
"""Each with a kind of table on which it shows."""


@pytest.mark.parametrize(("plant", "name"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_a_planted_fault_is_found(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    name: str,
) -> None:
    plant(monkeypatch)
    cell = Cell("lease", "sqlite")
    shapes = [shape for shape in shapes_of(cell) if shape.name == name]
    examples = 0
    with opened(request, cell, "asyncio") as pair:

        @settings(max_examples=400, database=None, phases=[Phase.generate])
        @given(worlds_of(shapes))
        def holds(world: tuple[Shape, Schedule]) -> None:
            nonlocal examples
            examples += 1
            pair.compare(*world)

        with pytest.raises(DisagreementError):
            holds()
    print(f"{plant.__name__} was found after {examples} examples")
