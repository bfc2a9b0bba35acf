"""Loops with open databases, kept over many tests: each test then costs its own statements only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from inboxkit.database import Database
from inboxkit_testing.conformance import Bench, ManualClock

__all__ = ["Host", "Hosts", "run_inline"]


class Host:
    """One database, open in a loop of its own."""

    def __init__(self, portal: BlockingPortal, db: Database) -> None:
        self.db = db
        self.call = portal.call

    @classmethod
    @contextmanager
    def opened(cls, url: str, backend: str) -> Iterator[Host]:
        """Open it, and close it at the end."""
        with start_blocking_portal(backend) as portal:
            db = Database(url, pool_size=20, clock=ManualClock())
            portal.call(db.open)
            try:
                yield cls(portal, db)
            finally:
                portal.call(db.aclose)

    def run(self, bench: Bench, test: Callable[[Any], Awaitable[None]]) -> None:
        """Run a test with a bench on this database, which leaves nothing behind."""
        self.call(on_bench, bench, test)


class Hosts:
    """One host for each database and backend, opened when first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._opened: dict[tuple[str, str], Host] = {}

    def get(self, url: str, backend: str) -> Host:
        """The host of a database and backend."""
        if (url, backend) not in self._opened:
            host = self._stack.enter_context(Host.opened(url, backend))
            self._opened[url, backend] = host
        return self._opened[url, backend]

    def close(self) -> None:
        """Close all."""
        self._stack.close()


async def on_bench(bench: Bench, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test with a bench."""
    async with bench:
        await test(bench)


def run_inline(bench: Bench, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test with a bench that waits for nothing, without a loop."""
    try:
        on_bench(bench, test).send(None)
    except StopIteration:
        return
    raise AssertionError("the model waits for nothing")
