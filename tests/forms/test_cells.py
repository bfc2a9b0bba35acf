"""The suite runs whole in every cell, and the table of cells says what is true."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from benches.cells import (
    CELLS,
    COLLECTED,
    DATABASES,
    MODEL,
    REFUSED,
    SERVED,
    UNBUILT,
    Cell,
    dialect_of,
    places,
)

from inboxkit._core.lease import ExpirySteps
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit.abc import ClaimFormName
from inboxkit.errors import DialectError
from inboxkit_testing import conformance
from inboxkit_testing.conformance import ModelBench

HERE = Path(__file__).parent
SUITE: dict[ClaimFormName, type] = {
    "lease": conformance.LeaseConformance,
    "row lock": conformance.RowLockConformance,
    "advisory lock": conformance.AdvisoryLockConformance,
}
TESTS = {"lease": 35, "row lock": 35, "advisory lock": 30}
"""How many tests a cell has, on each backend."""


def names_of(form: ClaimFormName) -> set[str]:
    """The names of the tests that a form has to pass."""
    return {name for name in dir(SUITE[form]) if name.startswith("test_")}


def test_the_suite_asks_the_same_of_every_form_but_for_groups_and_keys() -> None:
    assert {form: len(names_of(form)) for form in SUITE} == TESTS
    assert len(names_of("lease") & names_of("advisory lock")) == 27
    assert names_of("lease") == names_of("row lock")


def test_the_suite_leaves_nothing_out_and_knows_the_port_alone() -> None:
    written = 0
    for file in sorted(Path(str(conformance.__file__)).parent.glob("*.py")):
        text = file.read_text()
        tests = len(re.findall(r"(?m)^    async def test_", text))
        assert len(re.findall(r"\n    @on_bench\n    async def test_", text)) == tests
        if tests:
            written += tests
            assert re.findall(r"skip|xfail|dialect|form_name|has_fifo|has_keys", text) == []
            froms = set(re.findall(r"from (inboxkit\S*) import", text))
            assert froms <= {"inboxkit", "inboxkit.abc", "inboxkit.errors"}
    assert written == 27 + 8 + 3


def test_every_cell_collects_the_same_tests(request: pytest.FixtureRequest) -> None:
    collected: defaultdict[str, set[str]] = defaultdict(set)
    for item in request.config.stash[COLLECTED]:
        if isinstance(item, pytest.Function) and item.path == HERE / "test_conformance.py":
            collected[item.callspec.id].add(item.originalname)
    # Fewer where single tests were asked for, but the same in every cell.
    asked = {name for names in collected.values() for name in names}
    expected = {str(place.id): names_of(form) & asked for form in SUITE for place in places(form)}
    assert collected == {place: names for place, names in expected.items() if names}


def attempt_to_open(cell: Cell) -> None:
    bench = ModelBench(cell.form, "jobs")
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
