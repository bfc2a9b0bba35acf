"""Runs subscriptions side by side and stops them in three timed phases."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence

import anyio

from inboxkit._core.haste import ends_by
from inboxkit.abc import Clock

from .held import Held, Stage
from .records import about, attempt_of, log, place
from .stopping import CANCEL_SECONDS, RELEASE_SECONDS, Phase, Stop, longest_stop
from .subscription import Subscription
from .watchdog import Watchdog

__all__ = ["serve"]

_STUCK_LOG_SECONDS = 1.0


async def serve(
    subscriptions: Sequence[Subscription],
    stop: Stop,
    *,
    clock: Clock,
    drain_seconds: float,
    started: Callable[[], None],
    watchdog: Watchdog | None,
) -> None:
    """Serve until `stop` asks for an end, then drain, cancel and release.

    Args:
        subscriptions: All of them.
        stop: Asks for the end.
        clock: Times the phases.
        drain_seconds: Most time for the first phase.
        started: Called once all claim.
        watchdog: Ends the process where a handler swallows its cancellation; None: wait for it.

    Cancellation:
        Taken as a request for the second phase: handlers are cancelled, rows released, and then the
        cancellation passes. That of asyncio's own `Task.cancel` too.
    """

    if watchdog is not None:
        watchdog.tell = lambda: _tell_all(subscriptions)

    async def to_the_end() -> None:
        # The shield keeps the settling and renewing alive while the handlers end.
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as tasks:
                    for subscription in subscriptions:
                        subscription.start(tasks)
                    started()
                    await stop.wait()
                    await _stop(subscriptions, stop, clock, drain_seconds, watchdog)
                    for subscription in subscriptions:
                        subscription.abandon_claim()
                    tasks.cancel_scope.cancel()
            finally:
                for subscription in subscriptions:
                    await subscription.close()
        outer.cancel_scope.cancel()

    async with anyio.create_task_group() as outer:
        # In a task of its own: Task.cancel of asyncio strikes this one through every shield.
        outer.start_soon(to_the_end)
        try:
            await anyio.sleep_forever()
        finally:
            stop.request(Phase.CANCEL)


async def _stop(
    subscriptions: Sequence[Subscription],
    stop: Stop,
    clock: Clock,
    drain_seconds: float,
    watchdog: Watchdog | None,
) -> None:
    if watchdog is not None and not watchdog.is_awake():
        watchdog.wake(longest_stop(drain_seconds))
    # Each phase is begun, however short it is: what it asks for must have been asked.
    for subscription in subscriptions:
        subscription.drain()
    await _wait(subscriptions, drain_seconds, stop, Phase.CANCEL, clock)
    for subscription in subscriptions:
        subscription.cancel_handlers()
    await _wait(subscriptions, CANCEL_SECONDS, stop, Phase.RELEASE, clock)
    await _release(subscriptions, stop, clock)
    if any(_stuck_rows(subscriptions)):
        if watchdog is not None:
            watchdog.bite()
        ends_by(math.inf)  # what such a handler answers in the end is written as any other
        await _outlast_stuck(subscriptions, clock)
        await _release(subscriptions, stop, clock)
    elif watchdog is not None:
        watchdog.rest()
    for subscription in subscriptions:
        subscription.tell_left()


async def _release(subscriptions: Sequence[Subscription], stop: Stop, clock: Clock) -> None:
    # What is not answered by the end of this phase is not waited for when all is closed.
    ends_by(anyio.current_time() + RELEASE_SECONDS)
    for subscription in subscriptions:
        subscription.release()
    await _wait(subscriptions, RELEASE_SECONDS, stop, None, clock)


async def _wait(
    subscriptions: Sequence[Subscription],
    seconds: float,
    stop: Stop,
    skipped_at: Phase | None,
    clock: Clock,
) -> None:
    """Wait until nothing is in work, so many seconds at most, or until a later phase is asked for."""
    if _are_idle(subscriptions):
        return

    def skip_if_idle() -> None:
        if _are_idle(subscriptions):
            phase.cancel()

    # Whatever ends the wait ends the sleep: a task for each would be most of what a stop costs.
    with anyio.CancelScope() as phase:
        for subscription in subscriptions:
            subscription.when_idle = skip_if_idle
        if skipped_at is not None:
            stop.cancels(phase, skipped_at)
        try:
            await clock.sleep(seconds)
        finally:
            if skipped_at is not None:
                stop.spares(phase)


def _are_idle(subscriptions: Sequence[Subscription]) -> bool:
    return all(subscription.is_idle for subscription in subscriptions)


def _stuck_rows(subscriptions: Sequence[Subscription]) -> Iterator[tuple[str, Held]]:
    for subscription in subscriptions:
        for held in subscription.in_work:
            if held.stage is Stage.RUNNING:
                yield subscription.plan.queue, held


def _tell_stuck(subscriptions: Sequence[Subscription]) -> bool:
    """A record for each row whose handler runs although it was cancelled; returns whether there is one."""
    rows = list(_stuck_rows(subscriptions))
    for queue, held in rows:
        log(
            logging.CRITICAL,
            "handlers do not end although they were cancelled: row %r of %s%s",
            held.id,
            place(queue, held.claimed.group),
            attempt_of(held),
            extra=about(queue, held),
        )
    return bool(rows)


def _tell_all(subscriptions: Sequence[Subscription]) -> None:
    """A record for each row that is in work when the process is ended."""
    _tell_stuck(subscriptions)
    for subscription in subscriptions:
        subscription.tell_left()


async def _outlast_stuck(subscriptions: Sequence[Subscription], clock: Clock) -> None:
    """A handler that swallows its cancellation keeps its row: nobody may have it beside a live handler."""
    while _tell_stuck(subscriptions):
        await clock.sleep(_STUCK_LOG_SECONDS)
