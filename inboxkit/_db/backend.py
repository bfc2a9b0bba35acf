"""Which event loop runs here, and how a thread wakes it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

__all__ = ["BackendName", "current_task_id", "current_task_name", "running_backend", "waker"]

BackendName = Literal["asyncio", "trio"]

Waker: TypeAlias = Callable[[Callable[[], object]], None]


def running_backend() -> BackendName:
    """The library of the running task.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    if "trio" in sys.modules:  # without it trio cannot be running, and need not be installed
        import trio  # noqa: PLC0415

        if trio.lowlevel.in_trio_task():
            return "trio"
    asyncio.get_running_loop()
    return "asyncio"


def current_task_id() -> int:
    """The number that `anyio.get_current_task` gives the running task, without what else it looks up.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    if (trio := sys.modules.get("trio")) is not None and trio.lowlevel.in_trio_task():
        return id(trio.lowlevel.current_task())
    return id(asyncio.current_task())


def current_task_name() -> str:
    """The name that `anyio.get_current_task` gives the running task; empty: it has none.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    if (trio := sys.modules.get("trio")) is not None and trio.lowlevel.in_trio_task():
        return str(trio.lowlevel.current_task().name or "")
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


def waker() -> Waker:
    """A function that runs another one soon in this event loop, and may be called from any thread.

    What it is given is dropped where the loop has ended: nobody waits for it then.
    """
    if running_backend() == "trio":
        return _trio_waker()
    loop = asyncio.get_running_loop()

    def wake(function: Callable[[], object]) -> None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not loop.is_closed():
                raise

    return wake


def _trio_waker() -> Waker:
    import trio  # noqa: PLC0415

    token = trio.lowlevel.current_trio_token()

    def wake(function: Callable[[], object]) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(function)

    return wake
