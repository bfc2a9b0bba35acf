"""A thread of our own for a blocking library, on either backend; SQLite in one: ``sqlite+thread://``.

One small actor a connection. The awaiting task is woken by its event loop's own means, which costs
about half of a hop through a pool of worker threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

import anyio

from inboxkit._db.backend import waker
from inboxkit._db.sqlite import SqliteDriver
from inboxkit._db.turnstile import Turnstile
from inboxkit.abc import Clock

__all__ = ["ThreadWorker", "sqlite_in_a_thread"]

_numbers = itertools.count(1)


class Session(Protocol):
    """What a thread keeps."""

    def open(self) -> object:
        """Open it, in its thread."""
        ...

    def close(self) -> None:
        """Close it, in its thread, when all work is done."""
        ...


class ThreadWorker:
    """A thread that runs one session's work, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon: a connection that nobody closed must not keep the interpreter from ending.
        self._thread = Thread(
            target=self._run, name=f"inboxkit-session-{next(_numbers)}", daemon=True
        )
        self._wake = waker()
        self._ended = anyio.Event()
        self._has_started = False

    async def open(self) -> None:
        """Start the thread and open the session in it."""
        errors: list[BaseException] = []

        def open_session() -> None:
            try:
                self._session.open()
            except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
                errors.append(error)

        self._has_started = True
        self._thread.start()
        await self.call(open_session)
        if errors:
            raise errors[0]

    def post(self, work: Callable[[], object]) -> None:
        """Have `work`, which may not raise, run after all that was given before."""
        self._work.put(work)

    async def call(self, work: Callable[[], None]) -> None:
        """Run `work`, which may not raise, and return when it has ended."""
        ended = anyio.Event()

        def run() -> None:
            work()
            self._wake(ended.set)

        self.post(run)
        await ended.wait()

    def stop(self) -> None:
        """After the work at hand, close the session and end the thread."""
        self._work.put(None)

    async def ended(self) -> None:
        """Wait until a thread that was told to stop has ended."""
        if self._has_started:
            await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        """True once the thread has ended, or never began."""
        return not self._has_started or self._ended.is_set()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        self._session.close()
        self._wake(self._ended.set)


def sqlite_in_a_thread(
    path: str, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
) -> SqliteDriver:
    """The driver ``sqlite+thread``."""
    return SqliteDriver(
        "thread", path, worker=ThreadWorker, clock=clock, timeout=timeout, turnstile=turnstile
    )
