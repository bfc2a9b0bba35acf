"""The suite runs whole in every cell, and the table of cells says what is true."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from benches.bench import ManualClock
from benches.cells import CELLS, DATABASES, MODEL, REFUSED, SERVED, UNBUILT, Cell, dialect_of
from benches.on_model import ModelBench
from benches.suite import COLLECTED, places, serves

from inboxkit._core.lease import ExpirySteps
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit.errors import DialectError

HERE = Path(__file__).parent
SUITE = ("test_claims", "test_settlements", "test_attempts", "test_fifo", "test_keys")
TESTS = {"on_every_form": 27, "on_fifo_forms": 8, "on_key_forms": 3}
"""How many tests of each kind a cell has."""


def written(module: str) -> Iterator[tuple[str, str]]:
    """Each test of a module, with its decorator."""
    tree = ast.parse((HERE / f"{module}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, " ".join(map(ast.unparse, node.decorator_list))


def test_no_test_of_the_suite_is_left_out_anywhere() -> None:
    found = [one for module in SUITE for one in written(module)]
    assert [name for name, _ in found if not name.startswith("test_")] == ["by_owner"]
    assert Counter(kind for _, kind in found if kind) == TESTS
    for module in SUITE:
        text = (HERE / f"{module}.py").read_text()
        assert re.findall(r"skip|xfail|is_postgres|dialect|\.cell\b", text) == []


def test_every_cell_collects_the_same_tests(request: pytest.FixtureRequest) -> None:
    collected: defaultdict[str, set[str]] = defaultdict(set)
    expected: defaultdict[str, set[str]] = defaultdict(set)
    items = request.config.stash[COLLECTED]
    items = [item for item in items if item.path.parent == HERE]
    modules = {item.path.stem for item in items} & {*SUITE}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.stem in modules:
            collected[item.callspec.id].add(item.originalname)
    for cell in CELLS:
        for place in places([cell]):
            for name, decorator in (one for module in modules for one in written(module)):
                if decorator and serves(cell, decorator):
                    expected[str(place.id)].add(name)
    # Fewer where single tests were asked for, but the same in every cell.
    asked = {name for names in collected.values() for name in names}
    assert collected == {place: names & asked for place, names in expected.items() if names & asked}


def attempt_to_open(cell: Cell) -> None:
    bench = ModelBench(cell, "jobs", ManualClock())
    open_form(
        None,  # type: ignore[arg-type]
        bench.describe(group=None),
        TableInfo("jobs"),
        get_dialect(dialect_of(cell.database)),
        group=None,
        lease=timedelta(seconds=30),
        cap=None,
        steps=ExpirySteps(0),
    )


def test_cells_are_those_that_are_documented() -> None:
    assert {(form, name) for form, names in SERVED.items() for name in names} == {
        *(("row lock", name) for name in ("postgres", "mariadb", "mysql")),
        *(("lease", name) for name in DATABASES),
        *(("advisory lock", name) for name in DATABASES),
    }
    assert [Cell("row lock", "sqlite")] == REFUSED
    assert [cell.form for cell in CELLS if cell.database == MODEL] == list(SERVED)


@pytest.mark.parametrize("cell", REFUSED + UNBUILT, ids=str)
def test_what_is_refused_or_not_built_says_so(cell: Cell) -> None:
    """When this fails for a cell that has been built since, it belongs into `BUILT`."""
    with pytest.raises(DialectError):
        attempt_to_open(cell)
