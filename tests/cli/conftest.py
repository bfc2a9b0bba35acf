"""The command line, in this process and in one of its own, over every database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

# Tests are imported by path, so their helpers are found by plain names.
sys.path.insert(0, str(Path(__file__).parent))

from cli_kit import Cli

DATABASES = ("sqlite", "postgres", "mariadb", "mysql")


@pytest.fixture(params=DATABASES)
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind; on servers it is shared, so that tables need names of their own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'inbox.db'}"
    found: str = request.getfixturevalue(f"shared_{request.param}_url")
    return found


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Where the database is all one."""
    return f"sqlite:///{tmp_path / 'inbox.db'}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's."""
    with TemporaryDirectory(prefix="inboxkit-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cli]:
    """Runs commands, in an empty folder and without a URL in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INBOXKIT_URL", raising=False)
    path = list(sys.path)
    yield Cli(monkeypatch)
    sys.path[:] = path
