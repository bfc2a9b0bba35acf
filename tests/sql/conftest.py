"""Real databases, and text that is compared with files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from inboxkit.database import Database

BACKENDS = ("asyncio", "trio")
GOLDEN = Path(__file__).parent / "golden"


PLACES = [
    *((backend, database) for database in ("sqlite", "postgres") for backend in BACKENDS),
    ("asyncio", "mariadb"),
    ("trio", "mysql"),
]
"""MariaDB and MySQL are one dialect, and give the same values through either driver."""


@pytest.fixture(params=PLACES, ids="-".join)
def with_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Callable[[Database], Awaitable[Any]]], Any]:
    """Run an async test with a database, and return what it returns; with either driver."""
    backend, database = request.param
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    if database != "sqlite":
        url = request.getfixturevalue(f"shared_{database}_url")

    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(url) as db:
                return await test(db)

        return anyio.run(main, backend=backend)

    return run


@pytest.fixture(params=["mariadb", "mysql"])
def mysql_url(request: pytest.FixtureRequest) -> str:
    """A shared database of either server that the dialect "mysql" serves."""
    found: str = request.getfixturevalue(f"shared_{request.param}_url")
    return found


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
