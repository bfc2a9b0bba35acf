"""Errors and signals around a running service."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import anyio

from .records import log
from .stopping import Phase, Stop, longest_stop
from .watchdog import Watchdog

__all__ = ["bare_errors", "running_beside", "stop_at_signals"]

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


@asynccontextmanager
async def running_beside(
    functions: Sequence[Callable[[], Awaitable[None]]], fail: Callable[[BaseException], None]
) -> AsyncIterator[None]:
    """Run functions for the length of a block; what one raises is given to `fail`."""

    async def run(function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except Exception as error:  # noqa: BLE001 - it ends the service, in order
            fail(error)

    with bare_errors():
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(run, function)
            yield
            tasks.cancel_scope.cancel()


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
