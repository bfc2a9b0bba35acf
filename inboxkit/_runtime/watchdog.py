"""Ends a process whose handlers do not end, also where they block its loop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from .records import log

__all__ = ["EXIT_STUCK", "Watchdog"]

EXIT_STUCK = 70
"""The process's exit status where a handler swallows its cancellation (EX_SOFTWARE of sysexits.h)."""


class Watchdog:
    """Bites when a stop takes longer than its phases may, in real seconds and in a thread of its own.

    A handler that sleeps in a loop without `await` keeps the event loop from doing anything about it;
    only another thread can.

    Args:
        has_timer: Whether it may bite by itself. Not where the service keeps another time than the
            host's: in virtual time a stop may take any number of real seconds.
    """

    def __init__(self, *, has_timer: bool = True) -> None:
        self._has_timer = has_timer
        self._timer: threading.Timer | None = None
        self._is_over = False
        self.tell: Callable[[], object] = lambda: None
        """Logs the rows whose handlers run; called in the watchdog's thread."""

    def wake(self, seconds: float) -> None:
        """Bite in so many seconds from now, in place of any other time."""
        if self._is_over or not self._has_timer:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._check)
        self._timer.daemon = True
        self._timer.start()

    def bite(self) -> None:
        """Log the stuck rows and end the process with `EXIT_STUCK`."""
        self.tell()
        log(logging.CRITICAL, "handlers do not end: the process does, with status %d", EXIT_STUCK)
        logging.shutdown()
        os._exit(EXIT_STUCK)

    def is_awake(self) -> bool:
        """Whether it was told to bite some time."""
        return self._timer is not None

    def rest(self) -> None:
        """No handler runs any more: never bite."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if not self._is_over:
            self.bite()
