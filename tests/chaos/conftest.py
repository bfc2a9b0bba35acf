"""Chaos: processes that are killed and servers that go away, in real time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos_run import Size


@pytest.fixture(scope="session")
def is_whole(request: pytest.FixtureRequest) -> bool:
    """Whether the command line asks for the whole of it."""
    return bool(request.config.getoption("chaos"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of all that is random."""
    found: int = request.config.getoption("chaos_seed")
    return found


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Path | None:
    """Where the figures go."""
    name = request.config.getoption("chaos_report")
    return Path(request.config.invocation_params.dir, name) if name else None


@pytest.fixture
def size(is_whole: bool) -> Size:
    """How many jobs and how much damage."""
    if is_whole:
        return Size(jobs=20_000, kills=200, outages=20, lease=2.0, away=2.0, workers=3)
    return Size(jobs=200, kills=5, outages=2, lease=2.0, away=0.2)


@pytest.fixture
def own_url(request: pytest.FixtureRequest, inbox_db: str, tmp_path: Path) -> Iterator[str]:
    """An empty database of the test's own, on the server that the other tests use."""
    if inbox_db.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'chaos.db'}"
        return
    with request.getfixturevalue(f"inbox_{inbox_db}").database() as url:
        yield url
