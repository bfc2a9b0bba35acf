"""A main in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from typing_extensions import TypeVarTuple, Unpack

from ._timekeeper import Timekeeper
from .backends import BackendName
from .clock import VirtualClock
from .runner import seeded

__all__ = ["run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(
    async_fn: Callable[[Unpack[Ts]], Awaitable[T]],
    *args: *Ts,
    backend: BackendName = "asyncio",
    clock: VirtualClock | None = None,
    seed: int | None = None,
) -> T:
    """Run an async function in virtual time, in a loop of its own, and return its value.

    Args:
        async_fn: The main.
        args: Its positional arguments.
        backend: ``"asyncio"`` or ``"trio"``.
        clock: The time; it starts anew. None: a fresh `VirtualClock`, as good where the main needs
            only `anyio.sleep`.
        seed: Chooses what goes first, statement by statement, by a `StatementGate` over the databases
            that `open_test_database` opened on this clock (in place of the clock's own gate), and
            task by task: which of those that are ready takes its next step. What comes from outside,
            answers and threads, comes when nothing else can happen. So the same seed gives the same
            run again on the same backend, in any process, if the main keeps to the rules: no real
            time, no chance that is not seeded, no threads that tell each other. The order of
            statements that wait is the same on the other backend too, where it does not come of
            tasks that race each other in memory. None: all go as they come, or in the one order
            of the clock's own gate.

    Raises:
        StartupError: This version of trio keeps the order of its tasks to itself.
        ClockStalledError: Neither I/O nor time brought anything for the clock's `stall`.
        SleepInTransactionError: Time would have passed inside a transaction of the service's own.
        ClosedError: The clock is in use by another run.
        DeclarationError: freezegun or time-machine has taken over the time.
        BaseException: Whatever the main raised, as it is.
    """
    clock = clock or VirtualClock()
    loop, gate = seeded(backend, seed, clock)
    with clock.driven(loop, gate) as keeper:
        loop.bind(keeper)
        try:
            result = anyio.run(_main, keeper, async_fn, args, **loop.options)
        except BaseException as error:
            failure = keeper.failure
            if failure is None or failure is error or isinstance(error, KeyboardInterrupt):
                raise
            raise failure from (None if _is_in(failure, error) else error)
        if keeper.failure is not None:
            raise keeper.failure
        return result[0]


async def _main(
    keeper: Timekeeper, async_fn: Callable[[Unpack[Ts]], Awaitable[T]], args: tuple[*Ts]
) -> list[T]:
    keeper.limiters.append(anyio.to_thread.current_default_thread_limiter())
    with keeper.root():
        return [await async_fn(*args)]
    return []  # cancelled by a failure, which is raised after the run


def _is_in(error: BaseException, group: BaseException) -> bool:
    if isinstance(group, BaseExceptionGroup):
        return any(_is_in(error, each) for each in group.exceptions)
    return error is group
