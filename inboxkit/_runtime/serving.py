"""Runs subscriptions side by side and stops them in three timed phases."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio

from inboxkit.abc import Clock

from .held import Stage
from .stopping import Phase, Stop
from .subscription import Subscription

__all__ = ["EXIT_STUCK", "serve"]

logger = logging.getLogger("inboxkit")

EXIT_STUCK = 70
"""The process's exit status where a handler swallows its cancellation (EX_SOFTWARE of sysexits.h)."""

_CANCEL_SECONDS = 5.0
_RELEASE_SECONDS = 5.0
_STUCK_LOG_SECONDS = 1.0


async def serve(
    subscriptions: Sequence[Subscription],
    stop: Stop,
    *,
    clock: Clock,
    drain_seconds: float,
    started: Callable[[], None],
    owns_process: bool,
) -> None:
    """Serve until `stop` asks for an end, then drain, cancel and release.

    Args:
        subscriptions: All of them.
        stop: Asks for the end.
        clock: Times the phases.
        drain_seconds: Most time for the first phase.
        started: Called once all claim.
        owns_process: Where a handler swallows its cancellation, end the process; else wait for it.

    Cancellation:
        Taken as a request for the second phase: handlers are cancelled, rows released, and then the
        cancellation passes.
    """
    async with anyio.create_task_group() as outer:
        outer.start_soon(_ask_when_cancelled, stop)
        # The shield keeps the settling and renewing alive while the handlers end.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for subscription in subscriptions:
                    await tasks.start(subscription.run)
                started()
                await stop.wait()
                await _stop(subscriptions, stop, clock, drain_seconds)
                await _see_stuck(subscriptions, clock, owns_process=owns_process)
                tasks.cancel_scope.cancel()
        outer.cancel_scope.cancel()


async def _ask_when_cancelled(stop: Stop) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop.request(Phase.CANCEL)


async def _stop(
    subscriptions: Sequence[Subscription], stop: Stop, clock: Clock, drain_seconds: float
) -> None:
    phases: tuple[tuple[str, float, Phase | None], ...] = (
        ("drain", drain_seconds, Phase.CANCEL),
        ("cancel_handlers", _CANCEL_SECONDS, Phase.RELEASE),
        ("release", _RELEASE_SECONDS, None),
    )
    for name, seconds, skipped_at in phases:
        actions: list[Callable[[], Coroutine[Any, Any, None]]]
        actions = [getattr(subscription, name) for subscription in subscriptions]
        await _phase(actions, seconds, stop, skipped_at, clock)


async def _phase(
    actions: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    seconds: float,
    stop: Stop,
    skipped_at: Phase | None,
    clock: Clock,
) -> None:
    async with anyio.create_task_group() as phase:

        async def act() -> None:
            async with anyio.create_task_group() as acting:
                for action in actions:
                    acting.start_soon(action)
            phase.cancel_scope.cancel()

        async def limit() -> None:
            await clock.sleep(seconds)
            phase.cancel_scope.cancel()

        async def skip(at: Phase) -> None:
            await stop.wait(at)
            phase.cancel_scope.cancel()

        phase.start_soon(act)
        phase.start_soon(limit)
        if skipped_at is not None:
            phase.start_soon(skip, skipped_at)


async def _see_stuck(
    subscriptions: Sequence[Subscription], clock: Clock, *, owns_process: bool
) -> None:
    """A handler that swallows its cancellation keeps its row: nobody may have it beside a live handler."""
    while stuck := [
        (subscription.plan.queue, held.id)
        for subscription in subscriptions
        for held in subscription.in_work
        if held.stage is Stage.RUNNING
    ]:
        rows = ", ".join(f"row {id!r} of queue {queue!r}" for queue, id in stuck)
        logger.critical("handlers do not end although they were cancelled: %s", rows)
        if owns_process:
            logging.shutdown()
            os._exit(EXIT_STUCK)
        await clock.sleep(_STUCK_LOG_SECONDS)
