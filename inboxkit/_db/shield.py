"""Waiting on although the task is cancelled, and for how long at most."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from inboxkit._core.haste import hasty

__all__ = ["LAST_WORD", "outlast"]

LAST_WORD: Final = 1.0
"""Seconds that a statement which was asked to stop, a ROLLBACK or a closing session may still take."""


async def outlast(
    wait: Callable[[], Awaitable[object]],
    done: Callable[[], bool],
    *,
    seconds: float,
    is_hasty: bool = False,
) -> BaseException | None:
    """Call `wait` until `done()`, at most so many seconds, whatever cancels the task meanwhile.

    A shielded scope keeps anyio's and trio's cancellations out, but not `Task.cancel` of asyncio
    (`asyncio.timeout`, `asyncio.TaskGroup`): that one is caught, and handed back.

    Args:
        wait: Waits for some progress; called again after a cancellation, so it must bear that.
        done: Whether the end has come.
        seconds: After these it gives up; `done()` then is still false.
        is_hasty: Whether it gives up sooner where the task's service has no time left: what waits for
            a server does, and what waits for a thread or a task of this process does not.

    Returns:
        A cancellation that came from outside, which the caller raises again once it has put
        everything right; None where there was none.
    """
    interruption: BaseException | None = None
    bound = anyio.move_on_after(seconds, shield=True)
    with hasty(bound) if is_hasty else bound as scope:
        while not done():
            try:
                await wait()
            except anyio.get_cancelled_exc_class() as error:
                if scope.cancel_called:
                    raise
                interruption = error
    return interruption
