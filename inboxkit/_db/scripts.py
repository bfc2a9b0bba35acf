"""Runs a script's statements one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from inboxkit._sql import server_time
from inboxkit._sql.statement import Answer, Reading, Script, Statement, Steps
from inboxkit.abc import Clock, ServerClock
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError

__all__ = ["READ_CLOCK", "question_of", "step_through"]

T = TypeVar("T")


def _nothing(reading: Reading) -> Steps[Reading]:
    yield from ()
    return reading


READ_CLOCK: Final = Script("clock", _nothing, "none")
"""Answers the reading that a script is given."""


async def step_through(
    script: Script[T], clock: Clock, execute: Callable[[Statement], Awaitable[Answer]]
) -> T:
    """Send each statement of a script and give it the answer; return what the script returns.

    Args:
        script: Begins and ends no transaction here: that is the caller's.
        clock: Read once, now; where it is the server's, by a statement more.
        execute: Sends one statement. A DatabaseError of it is thrown into the script, which may go
            on; not one whose outcome is unknown, since the connection is gone.
    """
    steps = script.steps(await _read(clock, execute))
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


async def _read(clock: Clock, execute: Callable[[Statement], Awaitable[Answer]]) -> Reading:
    if not isinstance(clock, ServerClock):
        return Reading(clock.now(), clock.monotonic())
    # Before it is asked: a hold that is timed from here ends early rather than late.
    monotonic = clock.monotonic()
    try:
        answer = await execute(question_of(clock))
    except OutcomeUnknownError as error:
        raise DatabaseBusyError(f"{error}; nothing else was sent", statement="clock") from error
    return clock.told(server_time.read(answer), monotonic)


def question_of(clock: ServerClock) -> Statement:
    """What the server is asked for its time."""
    assert clock.dialect is not None, "the clock belongs to no Database"
    return server_time.ask(clock.dialect)
