"""Real databases for these tests: a SQLite file, and a PostgreSQL database made and dropped here."""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from inboxkit.database import Database

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


GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare text with a file, so that a change of SQL is seen in review.

    INBOXKIT_UPDATE_GOLDEN=1 writes the files anew.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("INBOXKIT_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        kept = path.read_text() if path.exists() else ""
        if kept != text:
            lines = (kept.splitlines(), text.splitlines())
            diff = "\n".join(difflib.unified_diff(*lines, str(path), "now", lineterm=""))
            pytest.fail(f"{name} has changed; INBOXKIT_UPDATE_GOLDEN=1 accepts it\n{diff}")

    return compare


@pytest.fixture(params=["asyncio", "trio"])
def with_database(
    request: pytest.FixtureRequest, url: str
) -> Callable[[Callable[[Database], Awaitable[Any]]], Any]:
    """Run an async test with a database, and return what it returns; with either driver."""

    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(url) as db:
                return await test(db)

        return anyio.run(main, backend=request.param)

    return run
