"""Runs a script's statements one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.abc import Clock
from inboxkit.errors import DatabaseError, OutcomeUnknownError

__all__ = ["step_through"]

T = TypeVar("T")


async def step_through(
    script: Script[T], clock: Clock, execute: Callable[[Statement], Awaitable[Answer]]
) -> T:
    """Send each statement of a script and give it the answer; return what the script returns.

    Args:
        script: Begins and ends no transaction here: that is the caller's.
        clock: Read once, now.
        execute: Sends one statement. A DatabaseError of it is thrown into the script, which may go
            on; not one whose outcome is unknown, since the connection is gone.
    """
    steps = script.steps(Reading(clock.now(), clock.monotonic()))
    try:
        statement = next(steps)
        while True:
            try:
                answer = await execute(statement)
            except OutcomeUnknownError:
                raise
            except DatabaseError as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        steps.close()
