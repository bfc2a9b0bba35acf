"""asyncio's way to keep a piece of work from every cancellation: a task of its own.

`Task.cancel` of asyncio reaches into shielded scopes of anyio, and into what the task awaits. The
tasks made here have ended when the function that made them returns, but for work that ignores its
own cancellation for a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inboxkit._db.shield import LAST_WORD, outlast

__all__ = ["finished", "opened", "stopped"]

T = TypeVar("T")


async def finished(
    work: Coroutine[Any, Any, T], *, seconds: float
) -> tuple[asyncio.Task[T], BaseException | None]:
    """Run `work` to its end, whatever cancels this task, but for so many seconds at most.

    Returns:
        Its task, not done where the seconds did not suffice; and the cancellation that came from
        outside meanwhile, if one did.
    """
    task = asyncio.get_running_loop().create_task(work)
    interruption = await outlast(
        lambda: asyncio.wait([task]), task.done, seconds=seconds, is_hasty=True
    )
    return task, interruption


async def opened(opening: Coroutine[Any, Any, T], drop: Callable[[T], object]) -> T:
    """Open a connection; after a cancellation it is opened to the end, and dropped, in a second.

    A connect that is cancelled half-way leaves futures of the library behind, which the loop then
    reports as errors that nobody looked at.
    """
    task = asyncio.get_running_loop().create_task(opening)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await stopped(task)
        if task.done() and not task.cancelled() and task.exception() is None:
            drop(task.result())
        raise
    return task.result()


async def stopped(task: asyncio.Task[Any]) -> None:
    """Wait a second for the end of a task that was told to end by other means, then cancel it."""
    await outlast(lambda: asyncio.wait([task]), task.done, seconds=LAST_WORD, is_hasty=True)
    if task.cancel():
        await outlast(lambda: asyncio.wait([task]), task.done, seconds=LAST_WORD)
    if task.done() and not task.cancelled():
        task.exception()  # looked at, or the loop would report it
