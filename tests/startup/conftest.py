"""A service that starts over a real database, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from inboxkit import Broker, Database, Inbox, InboxQueue, InboxSpec, Service, StartupError
from inboxkit import subscriber as subscribe

OnDatabase = Callable[[str, str, Callable[[Database], Awaitable[Any]]], Any]
RefusalOf = Callable[..., Awaitable[StartupError | None]]


@pytest.fixture
def on_database(request: pytest.FixtureRequest, tmp_path: Path) -> OnDatabase:
    """Run an async test with a database of a dialect, on a backend, and return what it returns."""

    def run(dialect: str, backend: str, test: Callable[[Database], Awaitable[Any]]) -> Any:
        url = f"sqlite:///{tmp_path / 'inbox.db'}"
        if dialect == "postgres":
            url = request.getfixturevalue("shared_postgres_url")

        async def main() -> Any:
            async with Database(url) as db:
                return await test(db)

        return anyio.run(main, backend=backend)

    return run


@pytest.fixture
def refusal_of() -> RefusalOf:
    """Start a service over a table; return the error that it refuses with, or None if it serves."""

    async def start(db: Database, row: type[Inbox] | InboxSpec, **settings: Any) -> Any:
        spec = row if isinstance(row, InboxSpec) else row.spec
        queue: InboxQueue[Any, Any] = InboxQueue(
            row,  # type: ignore[arg-type]
            "queue",
            None if spec.payload is None else bytes,
        )

        async def handle(message) -> None:  # type: ignore[no-untyped-def]
            raise AssertionError("nothing was published")

        app = Service("startup", Broker(db))
        app.include(subscribe(queue)(handle), **settings)
        try:
            with anyio.fail_after(20):
                async with app.running():
                    return None
        except StartupError as error:
            return error

    return start
