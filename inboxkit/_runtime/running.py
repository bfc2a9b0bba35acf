"""Errors and signals around a running service."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio

from .reporting import log
from .stopping import Phase, Stop, longest_stop
from .watchdog import Watchdog

__all__ = ["bare_errors", "stop_at_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def bare_errors() -> Iterator[None]:
    """Raise what our own task groups wrapped as it was, where it is one error alone."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is group:
            raise
        raise error from error.__cause__


async def stop_at_signals(stop: Stop, watchdog: Watchdog, *, drain_seconds: float) -> None:
    """Drain at the first SIGINT or SIGTERM, release at once at the second. Runs until cancelled.

    Outside the main thread Python delivers no signals, and this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        _wake_at_signals(watchdog, drain_seconds)
        async for number in received:
            name = signal.Signals(number).name
            if stop.is_requested():
                log(logging.WARNING, "%s again: rows in work are released now", name)
                stop.request(Phase.RELEASE)
            else:
                log(logging.INFO, "%s: no new claims; waiting for the handlers in work", name)
                stop.request(Phase.DRAIN)


def _wake_at_signals(watchdog: Watchdog, drain_seconds: float) -> None:
    """Wake the watchdog beside what the event loop does, which a handler may be blocking."""
    for number in _SIGNALS:
        before = signal.getsignal(number)

        def wake(number: int, frame: FrameType | None, before: Any = before) -> None:
            watchdog.wake(longest_stop(0.0 if watchdog.is_awake() else drain_seconds))
            if callable(before):
                before(number, frame)

        signal.signal(number, wake)
        signal.siginterrupt(number, False)  # as asyncio had it
