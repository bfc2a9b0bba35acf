"""One run of a service: opens what it needs, serves, and closes what it opened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from . import events
from ._composing import compose
from ._core.haste import keeping_time
from ._core.spec import InboxSpec
from ._including import Included
from ._notifying import listener_of
from ._pausing import pause_watch
from ._runtime.listening import listening
from ._runtime.plan import Wrapping
from ._runtime.records import log
from ._runtime.running import running_beside
from ._runtime.serving import serve
from ._runtime.skew import watching
from ._runtime.stopping import Stop
from ._runtime.subscription import Subscription
from ._runtime.watchdog import Watchdog
from ._skew import skew_watch
from .broker import Broker
from .database import Database

__all__ = ["Program", "StartupHook"]

StartupHook: TypeAlias = Callable[[Database], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a service was told to do."""

    name: str
    broker: Broker
    included: Sequence[Included]
    startup: Sequence[StartupHook]
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None
    """Its value is the deliveries' state."""
    middleware: tuple[Wrapping, ...]
    drain_seconds: float
    control: InboxSpec | None = None
    """The control table."""
    beside: Sequence[Callable[[], Awaitable[None]]] = ()
    """What runs beside the subscriptions."""

    async def run(
        self, stop: Stop, watchdog: Watchdog | None, *, started: Callable[[], None]
    ) -> None:
        """Start, serve until `stop` asks for an end, and close what was opened.

        Args:
            stop: Asks for the end; while this starts, that cancels it.
            watchdog: Ends the process where a handler swallows its cancellation; None: wait for it.
            started: Called once all subscriptions claim, or when a stop came before.

        Raises:
            StartupError: It cannot start; nothing is left open.
        """
        has_started = False

        def tell_started() -> None:
            nonlocal has_started
            has_started = True
            self._tell(events.Started, "started")
            started()

        try:
            # Around everything, since a lifespan may hold scopes of its own open until the end; a stop
            # cancels it only while the service starts.
            with keeping_time(), anyio.CancelScope() as starting:
                stop.cancels(starting)
                async with AsyncExitStack() as resources:
                    subscriptions = await self._start(resources, stop)
                    stop.spares(starting)
                    await serve(
                        subscriptions,
                        stop,
                        clock=self.broker.database.clock,
                        drain_seconds=self.drain_seconds,
                        started=tell_started,
                        watchdog=watchdog,
                    )
            if starting.cancelled_caught:
                started()
        finally:
            if has_started:
                self._tell(events.Stopped, "stopped")

    async def _start(self, resources: AsyncExitStack, stop: Stop) -> list[Subscription]:
        if not self.broker.is_open:
            await resources.enter_async_context(self.broker)
        self.broker.database.check_writable()
        for hook in self.startup:
            await hook(self.broker.database)
        state = None
        if self.lifespan is not None:
            state = await resources.enter_async_context(self.lifespan())
        subscriptions = await compose(
            self.included,
            broker=self.broker,
            instance=self.name,
            state=state,
            middleware=self.middleware,
            fail=stop.fail,
            resources=resources,
        )
        if self.broker.listen_notify:
            listener = await listener_of(self.broker.database, self.included)
            await resources.enter_async_context(listening(listener))
        if self.control is not None:
            pauses = await pause_watch(self.broker, self.control, subscriptions)
            await resources.enter_async_context(watching(pauses))
        if (watch := skew_watch(self.broker, self.included)) is not None:
            await resources.enter_async_context(watching(watch))
        if self.beside:
            await resources.enter_async_context(running_beside(self.beside, stop.fail))
        return subscriptions

    def _tell(self, kind: type[events.Started | events.Stopped], what: str) -> None:
        event = kind(at=self.broker.database.clock.now(), instance=self.name, queue="")
        self.broker.listeners.tell(event)
        log(logging.INFO, "service %r %s", self.name, what, extra={"event": event})
