"""The documentation's drawings of states: what is drawn is what the code does, on every database."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from benches.cells import MODEL, SERVED, Cell, places
from benches.hosts import Hosts, run_inline

from inboxkit.abc import ClaimFormName
from inboxkit_testing.conformance import Bench, DatabaseBench, ModelBench

SCRIPT = Path(__file__).parents[2] / "docs" / "explanation" / "_states.py"
DATABASES = [place for form in SERVED for place in places(form) if "model" not in (place.id or "")]


def load() -> ModuleType:
    """The script that draws."""
    spec = importlib.util.spec_from_file_location("documentation_states", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def states() -> ModuleType:
    return load()


def test_drawings_and_tables_say_what_the_code_does(states: ModuleType) -> None:
    assert states.outdated() == [], "run docs/explanation/_states.py"


@pytest.mark.parametrize("form", SERVED)
def test_finished_rows_that_stay_take_the_place_of_deleted_ones(
    states: ModuleType, form: ClaimFormName
) -> None:
    found = {}

    async def look(bench: Bench, stay: bool) -> None:
        found[stay] = await states.transitions(bench, finished_rows_stay=stay)

    for stay in (False, True):
        run_inline(ModelBench(form), partial(look, stay=stay))
    there = {(one.before, one.event, one.after) for one in found[False]}
    stamped = {
        (before, event, after.replace("deleted", "finished")) for before, event, after in there
    }
    assert {(one.before, one.event, one.after) for one in found[True]} == stamped
    assert stamped != there


@pytest.mark.parametrize("place", DATABASES)
def test_rows_go_from_state_to_state_as_drawn(
    states: ModuleType,
    place: tuple[Cell, str],
    hosts: Hosts,
    url_of: Callable[[str], str],
    table: str,
) -> None:
    cell, backend = place
    assert cell.database != MODEL
    found: dict[str, list[object]] = {}

    async def look(bench: Bench, name: str) -> None:
        found[name] = await states.transitions(bench)

    run_inline(ModelBench(cell.form), partial(look, name="drawn"))
    host = hosts.get(url_of(cell.database), backend)
    host.run(DatabaseBench(host.db, cell.form, table), partial(look, name="seen"))
    assert found["seen"] == found["drawn"]
    assert len(found["seen"]) > 10
