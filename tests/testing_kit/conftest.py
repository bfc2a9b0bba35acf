"""The kit's own tests: its loops are under test here, so they call `run` themselves."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from inboxkit_testing.backends import BackendName

CELLS = [
    ("inloop", "asyncio"),
    ("inloop", "trio"),
    ("thread", "asyncio"),
    ("thread", "trio"),
    ("aiosqlite", "asyncio"),
    ("asyncpg", "asyncio"),
    ("psycopg", "asyncio"),
    ("psycopg", "trio"),
    ("asyncmy", "asyncio"),
    ("pymysql", "trio"),
]
"""Drivers with the backends that they run on."""


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> BackendName:
    name: BackendName = request.param
    return name


@pytest.fixture(params=CELLS, ids="-".join)
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, BackendName]:
    """The URL of an empty database, and a backend that its driver runs on."""
    driver, backend = request.param
    return url_for(driver, request, tmp_path), backend


def url_for(driver: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty database behind that driver."""
    if driver in {"asyncmy", "pymysql"}:
        return f"mysql+{driver}://{request.getfixturevalue('emptied_mariadb')}"
    if driver not in {"asyncpg", "psycopg"}:
        return f"sqlite+{driver}:///{folder / 'kit.db'}"
    location = request.getfixturevalue("postgres_database")
    with psycopg.connect(f"postgresql://{location}", autocommit=True) as admin:
        admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return f"postgresql+{driver}://{location}"
