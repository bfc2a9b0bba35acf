"""Profiles of Hypothesis, and the databases and backends on which each property is run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# The test modules share `worlds`, and are not a package themselves.
sys.path.insert(0, str(Path(__file__).parent))
# And so are the benches of the claim forms.
sys.path.insert(1, str(Path(__file__).parents[1] / "tests" / "forms"))

from worlds.cells import Cell, open_cell

settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,
    print_blob=True,
    phases=set(Phase) - {Phase.explain},  # traces every line; the timeline explains more
)
# The same examples each time, so that a red build says something of the change that it builds; new
# ones are drawn by whoever runs the tests at home, and each night.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2000)
settings.load_profile("ci" if "CI" in os.environ else "default")
settings.register_profile("thorough", max_examples=100)  # else as what is loaded

CELLS = [
    ("inloop", "asyncio", 3),
    ("inloop", "trio", 3),
    ("sqlite", "asyncio", 6),
    ("sqlite", "trio", 6),
    ("postgres", "asyncio", 2),
    ("postgres", "trio", 2),
]
"""Database, backend, and one in how many of the database's examples runs there."""


@pytest.fixture(scope="session", params=CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    """A database, kept over all examples, and a backend."""
    name, backend, share = request.param
    if name == "postgres":
        with request.getfixturevalue("inbox_postgres").database() as url:
            made = open_cell(name, backend, share, url)
            yield made
            made.connection.close()
        return
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="inboxkit-", dir=memory if memory.is_dir() else None)
    try:
        made = open_cell(name, backend, share, folder)
        yield made
        made.connection.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
