"""A service that starts over a real database, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from inboxkit import Broker, Database, Inbox, InboxQueue, InboxSpec, Service, StartupError
from inboxkit import subscriber as subscribe

RefusalOf = Callable[..., Awaitable[StartupError | None]]


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
