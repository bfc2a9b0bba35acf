"""Turns a virtual trio run from sync code: a guest whose host is a queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any

import trio.lowlevel

if TYPE_CHECKING:
    from outcome import Outcome

    from ._trio_clock import TrioBackend
    from .backends import Call

__all__ = ["TrioHost"]


class TrioHost:
    """A guest run that goes on only while somebody empties its queue."""

    def __init__(self, backend: TrioBackend) -> None:
        self._options = backend.run_options
        self._order = backend.order
        self._main: trio.lowlevel.Task | None = None
        # trio's wait for I/O puts its continuation here from a thread.
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._outcome: Outcome[None] | None = None

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        @wraps(main)  # for the task's name
        async def noted() -> None:
            self._main = trio.lowlevel.current_task()
            await main()

        trio.lowlevel.start_guest_run(
            noted,
            run_sync_soon_threadsafe=self._todo.put,
            done_callback=self._done,
            **self._options,
        )

    def turn_until(self, call: Call) -> None:
        if self._order is not None:
            # It goes on with what sync code asked for last, as if there had been no return to it.
            self._order.goes_first = self._main
        while not call.is_done and self._outcome is None:
            self._todo.get()()

    def stop(self) -> None:
        while self._outcome is None:
            self._todo.get()()
        self._outcome.unwrap()

    def _done(self, outcome: Outcome[None]) -> None:
        self._outcome = outcome
