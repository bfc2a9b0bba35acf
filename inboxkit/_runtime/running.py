"""Errors and signals around a running service."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from .stopping import Phase, Stop

__all__ = ["bare_errors", "stop_at_signals"]

logger = logging.getLogger("inboxkit")


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


async def stop_at_signals(stop: Stop) -> None:
    """Drain at the first SIGINT or SIGTERM, release at once at the second. Runs until cancelled.

    Outside the main thread Python delivers no signals, and this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            name = signal.Signals(number).name
            if stop.is_requested():
                logger.warning("%s again: rows in work are released now", name)
                stop.request(Phase.RELEASE)
            else:
                logger.info("%s: no new claims; waiting for the handlers in work", name)
                stop.request(Phase.DRAIN)
