"""Benches for tests of claim forms; see `benches`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests are imported by path, so their helpers are found by plain names.
sys.path.insert(0, str(Path(__file__).parent))

from benches.cells import BACKENDS, COLLECTED
from benches.hosts import Hosts
from benches.on_database import OpenBench


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what was found, for the test that counts."""
    config.stash[COLLECTED] = list(items)


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Open databases of this process's own."""
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture(scope="session")
def shared_sqlite_url() -> Iterator[str]:
    """The URL of a SQLite database of this process's own."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="inboxkit-", dir=memory if memory.is_dir() else None)
    yield f"sqlite:///{folder}/inbox.db"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Where a database is that tests share."""
    return lambda database: _url(request, database)


def _url(request: pytest.FixtureRequest, database: str) -> str:
    if database == "sqlite":
        found: str = request.getfixturevalue("shared_sqlite_url")
        return found
    scheme = "postgresql" if database == "postgres" else database
    return f"{scheme}://{request.getfixturevalue(f'{database}_database')}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Where a test of one form alone runs, in a database that tests share."""
    return _url(request, request.param)


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, hosts: Hosts, url: str, table: str) -> Callable[..., Any]:
    """Run an async test of one form alone with an `OpenBench`: in the lease form, unless the test
    describes its table otherwise."""
    host = hosts.get(url, request.param)
    return lambda test: host.run(OpenBench(host.db, "lease", table), test)


@pytest.fixture
def server(bench: Any, url: str) -> Any:
    """A bench on a server, whose sessions hold the rows."""
    if url.startswith("sqlite"):
        pytest.skip("no session holds the rows")
    return bench


@pytest.fixture
def file(bench: Any, url: str) -> Any:
    """A bench on a file, whose processes hold the rows."""
    if not url.startswith("sqlite"):
        pytest.skip("sessions of the server hold the rows")
    return bench
