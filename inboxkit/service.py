"""The service: subscriptions over one broker, started, run and stopped together."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, overload

import anyio
from anyio.abc import TaskStatus

from ._core.backoff import Backoff
from ._core.handler import is_async
from ._core.settlement import FailurePolicy
from ._core.spec import InboxSpec
from ._db.blocks import Block
from ._including import Included, check_included
from ._including_together import check_middleware, check_together
from ._runtime.listeners import Listener
from ._runtime.plan import BatchMiddleware, Middleware, Wrapping
from ._runtime.running import bare_errors, stop_at_signals
from ._runtime.stopping import Phase, Stop
from ._runtime.watchdog import Watchdog
from ._sql.control import control_spec
from ._starting import Program, StartupHook
from .broker import Broker
from .clock import SystemClock
from .errors import ClosedError, DeclarationError
from .queue import InboxQueue
from .subscriber import Subscriber

__all__ = ["Handle", "Service"]

Lifespan: TypeAlias = Callable[["Service"], AbstractAsyncContextManager[Any]]
Beside: TypeAlias = Callable[["Service"], Awaitable[None]]

_BACKOFF = Backoff.exponential()


@dataclass(frozen=True, slots=True)
class Handle:
    """A service that runs in the caller's task group."""

    ready: anyio.Event
    """Set once all subscriptions claim."""
    _stop: Stop

    def stop(self) -> None:
        """Claim no more, and end once the handlers in work have; the block waits for that."""
        self._stop.request(Phase.DRAIN)

    def cancel(self) -> None:
        """Cancel the handlers in work and give their rows back."""
        self._stop.request(Phase.CANCEL)


class Service:
    """Handlers over queues, run together.

    Args:
        name: Its name, in logs and events.
        broker: What it serves. Opened when the service starts, and closed again if it was not open.
        lifespan: Opens what one running instance needs (clients, settings); its value is each
            delivery's `state`. Entered after the start-up hooks, left when all handlers have ended.
        drain_timeout: How long a stop waits for the handlers in work before it cancels them.
        control_table: A table, as ``table`` or ``schema.table``, in which `inboxkit pause` notes the
            queues to pause, by their names; `inboxkit ddl` prints it. All instances look at it once
            each `poll_interval` of the broker, and a pause outlives restarts. None: no queue can be
            paused.

    Raises:
        DeclarationError: A setting is of the wrong type.
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        *,
        lifespan: Lifespan | None = None,
        drain_timeout: timedelta = timedelta(seconds=30),
        control_table: str | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"Service: name must be a non-empty str, not {name!r}")
        if not isinstance(broker, Broker):
            raise DeclarationError(f"Service {name!r} takes a Broker, not {broker!r}")
        if not isinstance(drain_timeout, timedelta) or drain_timeout < timedelta(0):
            raise DeclarationError(
                f"Service {name!r}: drain_timeout must be a timedelta of zero or more, not {drain_timeout!r}"
            )
        if lifespan is not None and (is_async(lifespan) or inspect.isasyncgenfunction(lifespan)):
            raise DeclarationError(
                f"Service {name!r}: lifespan returns an async context manager; decorate {lifespan!r} by "
                "contextlib.asynccontextmanager, and yield the state"
            )
        self.name = name
        self.broker = broker
        broker.instance = name
        self._lifespan = lifespan
        self._drain_timeout = drain_timeout
        self._control = None if control_table is None else control_spec(control_table)
        self._included: list[Included] = []
        self._startup: list[StartupHook] = []
        self._middleware: list[Wrapping] = []
        self._beside: list[Beside] = []
        self._is_running = False

    @property
    def included(self) -> tuple[Included, ...]:
        """The subscriptions as they were declared, in order."""
        return tuple(self._included)

    @property
    def control(self) -> InboxSpec | None:
        """The description of the control table; None: there is none."""
        return self._control

    @property
    def drain_timeout(self) -> timedelta:
        """How long a stop waits for the handlers in work."""
        return self._drain_timeout

    @property
    def startup_hooks(self) -> tuple[StartupHook, ...]:
        """What runs before the tables are checked, in order."""
        return tuple(self._startup)

    @property
    def subscribers(self) -> tuple[Subscriber[Any, Any], ...]:
        """The included handlers, in order."""
        return tuple(one.subscriber for one in self._included)

    @property
    def dead_letter_groups(self) -> frozenset[tuple[str, str]]:
        """Table and group of each dead letter that is one group."""
        keys = (one.dead_key for one in self._included)
        return frozenset((key[0], key[1]) for key in keys if key is not None and key[1] is not None)

    def is_dead_letter(self, table: str, group: str) -> bool:
        """Whether a group of a table is the dead letter of some subscription."""
        return (table, group) in self.dead_letter_groups or any(
            one.spec.name == table and one.dead_shape is not None and one.dead_shape.fits(group)
            for one in self._included
        )

    @property
    def dead_letter_tables(self) -> frozenset[str]:
        """Names of the tables that dead letters go to."""
        keys = (one.dead_key for one in self._included)
        return frozenset(key[0] for key in keys if key is not None and key[1] is None)

    @overload
    def include(
        self,
        subscriber: Subscriber[Any, Any],
        *,
        workers: int = 1,
        workers_by_key: int | None = None,
        on_error: FailurePolicy = ...,
        on_decode_error: FailurePolicy = ...,
        timeout: timedelta | None = None,
        prefetch: int = 0,
    ) -> None: ...
    @overload
    def include(
        self,
        subscriber: Subscriber[Any, Any],
        *,
        workers: int = 1,
        workers_by_key: int | None = None,
        max_attempts: int,
        dead_letter: str | InboxQueue[Any, Any],
        on_error: FailurePolicy = ...,
        on_decode_error: FailurePolicy = ...,
        timeout: timedelta | None = None,
        prefetch: int = 0,
    ) -> None: ...
    def include(
        self,
        subscriber: Subscriber[Any, Any],
        *,
        workers: int = 1,
        workers_by_key: int | None = None,
        max_attempts: int | None = None,
        dead_letter: str | InboxQueue[Any, Any] | None = None,
        on_error: FailurePolicy = _BACKOFF,
        on_decode_error: FailurePolicy = _BACKOFF,
        timeout: timedelta | None = None,
        prefetch: int = 0,
    ) -> None:
        """Serve a subscriber's queue, and route publishing to it.

        Args:
            subscriber: A function decorated by `@subscriber(queue)`.
            workers: Handlers at a time, each with a row or a batch. A FIFO queue is served by one, whatever
                this says; every group of a FIFO table by so many, each at another group.
            workers_by_key: In place of `workers`: so many, one partition key always at the same one. Not
                with batches, which have rows of many keys.
            max_attempts: The delivery of this number is the last: a retry or failure of it goes to
                the dead letter. Comes with `dead_letter`.
            dead_letter: A group of the same table (or a queue); for every group of a table a name with
                ``{group}`` in it, such as ``"{group}.dead"``; for a table without groups the name of
                a table with the same columns.
            on_error: What a handler's exception leads to: a `Backoff`, ``"drop"`` or ``"stop"``.
            on_decode_error: The same for a payload that cannot be read.
            timeout: Most time for one delivery, or one batch; past it the handler is cancelled, and it
                failed.
            prefetch: Rows to claim beyond those that free workers take, at least 0: for handlers that are
                much faster than a claim. They are in work, renewed, and given back at a stop; an urgent
                row comes after them. In the lease form, without FIFO groups, `workers_by_key` and
                transactional handlers.

        Raises:
            DeclarationError: The settings contradict each other, the table or another subscription.
        """
        if self._is_running:
            raise ClosedError(f"service {self.name!r} is running; include before it starts")
        one = check_included(
            subscriber,
            workers=workers,
            workers_by_key=workers_by_key,
            prefetch=prefetch,
            max_attempts=max_attempts,
            dead_letter=dead_letter,
            on_error=on_error,
            on_decode_error=on_decode_error,
            timeout=timeout,
        )
        check_together([*self._included, one])
        check_middleware([one], self._middleware)
        self._included.append(one)
        self.broker.add_queue(one.queue, subscriber.message_type)

    def on_startup(self, hook: StartupHook) -> StartupHook:
        """Call an async function with the open database before the tables are checked.

        Returns:
            The hook, so that this can decorate it.
        """
        if not is_async(hook):
            raise DeclarationError(
                f"service {self.name!r}: on_startup takes an async function of the open Database, not "
                f"{hook!r}; write async def"
            )
        self._startup.append(hook)
        return hook

    def use(self, middleware: Middleware, *, batch: BatchMiddleware | None = None) -> Middleware:
        """Wrap every handler: ``async (delivery, call_next) -> Outcome``; the first used is outermost.

        `call_next(delivery)` returns the handler's outcome, or raises what it raised; LeaseLostError
        where the hold was lost, ClosedError where the service cancelled it.

        Args:
            middleware: Goes around handlers of single deliveries.
            batch: Goes around handlers of batches in its place, once a batch:
                ``async (deliveries, call_next)`` that returns what such a handler may.
                `call_next(deliveries)` returns a list with one outcome for each, or raises.

        Raises:
            DeclarationError: One is no async function; or there is no `batch`, and a handler that was
                included takes batches: it would go without.
        """
        for function, what in ((middleware, "a delivery"), (batch, "a list of deliveries")):
            if function is not None and not is_async(function):
                raise DeclarationError(
                    f"service {self.name!r}: use() takes an async function of {what} and call_next, not "
                    f"{function!r}; write async def"
                )
        wrapping = Wrapping(middleware, batch)
        check_middleware(self._included, [wrapping])
        self._middleware.append(wrapping)
        return middleware

    def on_event(self, listener: Listener) -> Listener:
        """Call a function with each event of this service, and of its broker.

        It is called on the event loop, where the event happens, whatever the level of the log; it must
        not wait. One that raises changes nothing: the first time is logged.

        Returns:
            The function, so that this can decorate it.

        Raises:
            DeclarationError: It is async.
        """
        if not callable(listener) or is_async(listener):
            raise DeclarationError(
                f"service {self.name!r}: on_event takes a plain function of an event, not {listener!r}; it "
                "is called where the event happens, and must not wait"
            )
        self.broker.listeners.add(listener)
        return listener

    def beside(self, function: Beside) -> Beside:
        """Run an async function beside the subscriptions, for as long as the service runs.

        It starts once the tables are checked, and is cancelled when all handlers have ended. What it
        raises ends the service.

        Args:
            function: ``async (Service) -> None``.

        Returns:
            The function, so that this can decorate it.

        Raises:
            DeclarationError: It is no async function.
            ClosedError: The service is running.
        """
        if not is_async(function):
            raise DeclarationError(
                f"service {self.name!r}: beside takes an async function of the service, not {function!r}; "
                "write async def"
            )
        if self._is_running:
            raise ClosedError(f"service {self.name!r} is running; call beside() before it starts")
        self._beside.append(function)
        return function

    async def run(self) -> None:
        """Serve until cancelled, SIGINT or SIGTERM.

        A signal drains: no new claims, and the handlers in work have `drain_timeout`; then they are
        cancelled (5 s), then what is unsettled is released (5 s). A second signal releases at once.

        Raises:
            StartupError: It cannot start; the message names subscription, table and cure.
            Exception: What ended it: a handler's error under the policy ``"stop"``, or what is no
                Exception (SystemExit, KeyboardInterrupt) from a handler.

        Cancellation:
            Handlers are cancelled and their rows released before it passes. A handler that swallows
            its cancellation ends the process with status 70.
        """
        is_real = isinstance(self.broker.database.clock, SystemClock)
        stop, watchdog = Stop(), Watchdog(has_timer=is_real)
        drain_seconds = self._drain_timeout.total_seconds()
        try:
            with bare_errors():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(
                        partial(stop_at_signals, stop, watchdog, drain_seconds=drain_seconds)
                    )
                    await self._run(stop, watchdog, started=lambda: None)
                    tasks.cancel_scope.cancel()
        finally:
            watchdog.rest()
        if stop.error is not None:
            raise stop.error

    def running(self) -> AbstractAsyncContextManager[Handle]:
        """Serve beside the block's body, which starts once all subscriptions claim.

        For a caller's own task group: no signal handlers are installed. Leaving the block stops the
        service as a signal would, and waits for it.

        Raises:
            StartupError: It cannot start.
            Exception: What ended it, as for `run`; the body is cancelled then.
        """
        return Block(self._running(), "running", cure="async with service.running(): …")

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Handle]:
        stop = Stop()
        handle = Handle(anyio.Event(), stop)
        body_error: BaseException | None = None
        try:
            with bare_errors():
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._run_beside, stop, handle.ready, tasks.cancel_scope)
                    try:
                        if stop.error is None:
                            yield handle
                    except BaseException as error:
                        body_error = error
                        raise
                    stop.request(Phase.DRAIN)
        except BaseException:
            if isinstance(body_error, Exception):
                raise body_error  # noqa: B904 - as the body raised it, not as the group wrapped it
            raise
        if stop.error is not None:
            raise stop.error

    async def _run_beside(
        self,
        stop: Stop,
        ready: anyio.Event,
        body: anyio.CancelScope,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        def started() -> None:
            ready.set()
            task_status.started()

        try:
            await self._run(stop, None, started=started)
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised in a task they would tear asyncio's loop down, not end the block.
            stop.fail(error)
            if not ready.is_set():
                task_status.started()
        if stop.error is not None:
            body.cancel()

    async def _run(
        self, stop: Stop, watchdog: Watchdog | None, *, started: Callable[[], None]
    ) -> None:
        if self._is_running:
            raise ClosedError(f"service {self.name!r} is running already; make a second one")
        program = Program(
            name=self.name,
            broker=self.broker,
            included=tuple(self._included),
            startup=tuple(self._startup),
            lifespan=partial(self._lifespan, self) if self._lifespan is not None else None,
            middleware=tuple(self._middleware),
            drain_seconds=self._drain_timeout.total_seconds(),
            control=self._control,
            beside=tuple(partial(function, self) for function in self._beside),
        )
        self._is_running = True
        try:
            await program.run(stop, watchdog, started=started)
        finally:
            self._is_running = False

    def __repr__(self) -> str:
        return f"Service({self.name!r}, {self.broker!r})"
