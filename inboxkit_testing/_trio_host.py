"""Turns a virtual trio run from sync code: a guest whose host is a queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Coroutine
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
        # trio's wait for I/O puts its continuation here from a thread.
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._outcome: Outcome[None] | None = None

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=self._todo.put,
            done_callback=self._done,
            **self._options,
        )

    def turn_until(self, call: Call) -> None:
        while not call.is_done and self._outcome is None:
            self._todo.get()()

    def stop(self) -> None:
        while self._outcome is None:
            self._todo.get()()
        self._outcome.unwrap()

    def _done(self, outcome: Outcome[None]) -> None:
        self._outcome = outcome
