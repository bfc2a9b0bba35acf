"""Real databases for these tests: a SQLite file, and a PostgreSQL database made and dropped here."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

SERVER = os.environ.get(
    "INBOXKIT_TEST_POSTGRES_URL", "postgresql://postgres@127.0.0.1:5432/postgres"
)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A database of this run's own."""
    name = f"inboxkit_{uuid.uuid4().hex}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    base, _, query = SERVER.partition("?")
    host = base.split("://", 1)[1].split("/", 1)[0]
    yield f"postgresql://{host}/{name}" + (f"?{query}" if query else "")
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the test's database is."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"sqlite:///{tmp_path / 'inbox.db'}"


@pytest.fixture
def table() -> str:
    """A table's name that no other test uses."""
    return f"jobs {uuid.uuid4().hex[:12]}"
