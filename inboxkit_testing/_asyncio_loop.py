"""asyncio in virtual time: a selector that asks the timekeeper before it waits.

Public API only: the selector is an argument of `SelectorEventLoop`; `time`, `call_soon`,
`run_in_executor`, `set_default_executor` and `shutdown_default_executor` are overridden.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import selectors
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.lowlevel
from typing_extensions import TypeVarTuple, Unpack

from ._asyncio_host import AsyncioHost
from ._timekeeper import Timekeeper

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from .backends import Choose

__all__ = ["RESOLUTION", "AsyncioBackend", "VirtualLoop", "VirtualSelector"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MOST_PASSES = 16
"""How often the loop turns without a look at I/O while no answer is awaited: a look is a system call."""

RESOLUTION = time.get_clock_info("monotonic").resolution
"""asyncio fires a timer that is due in less than this."""


class AsyncioBackend:
    """A virtual asyncio loop for one run."""

    def __init__(self, choose: Choose | None) -> None:
        self._choose = choose
        self._keeper: Timekeeper | None = None
        self._loop: VirtualLoop | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"backend": "asyncio", "backend_options": {"loop_factory": self.new_loop}}

    def bind(self, keeper: Timekeeper) -> None:
        self._keeper = keeper

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop factory."""
        assert self._keeper is not None
        if self._choose is None:
            self._loop = VirtualLoop(VirtualSelector(self._keeper))
        else:
            from ._asyncio_order import ChosenLoop  # noqa: PLC0415 - it is made of the above

            self._loop = ChosenLoop(self._keeper, self._choose)
        return self._loop

    async def sleep_until(self, when: float) -> None:
        loop, keeper = self._loop, self._keeper
        assert loop is not None
        assert keeper is not None
        if when <= keeper.now_seconds:
            await anyio.lowlevel.checkpoint()
            return
        future = loop.create_future()
        alarm = keeper.alarms.set(when, partial(_wake, future))
        try:
            await future
        except BaseException:
            keeper.alarms.drop(alarm)
            raise

    def goes_first(self, task: asyncio.Task[Any]) -> None:
        """Have this task, which sync code speaks to, go on before others where the order is chosen."""
        assert self._loop is not None
        self._loop.goes_first = task

    def host(self) -> AsyncioHost:
        return AsyncioHost(self)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class VirtualSelector(selectors.BaseSelector):
    """The selector of a virtual loop."""

    def __init__(self, keeper: Timekeeper) -> None:
        self.keeper = keeper
        self._real = selectors.DefaultSelector()
        self._passes = 0

    def poll(self, wait: float) -> list[tuple[selectors.SelectorKey, int]]:
        """What has come, after at most so many real seconds."""
        return self._real.select(wait)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll; where nothing came and nothing can run, do what the timekeeper decides."""
        keeper = self.keeper
        # asyncio passes 0 when callbacks are ready or a timer is due.
        is_ready = timeout is not None and timeout <= 0
        if is_ready and self._passes < _MOST_PASSES and not keeper.is_busy():
            self._passes += 1
            keeper.progress()
            return []
        self._passes = 0
        events = self.poll(0)
        if events or is_ready:
            keeper.progress()
            return events
        deadline = math.inf if timeout is None else _due_at(keeper.now_seconds + timeout)
        wait = keeper.idle(deadline)
        if wait <= 0:
            return []
        events = self.poll(wait)
        if events:
            keeper.progress()
        return events

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def get_key(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def close(self) -> None:
        self._real.close()


def _due_at(when: float) -> float:
    """Where a clock must stand for a timer of that instant to fire.

    asyncio fires it if ``when < time() + resolution``. Above 2**24 seconds (194 days) a nanosecond is
    less than half the distance of two floats, the sum is `time()` itself, and a clock that stands
    exactly on `when` would be asked again and again for a wait of zero.
    """
    return math.nextafter(when, math.inf) if when + RESOLUTION == when else when


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time is a timekeeper's."""

    def __init__(self, selector: VirtualSelector) -> None:
        self._keeper = selector.keeper
        self._executor: concurrent.futures.Executor | None = None
        self.goes_first: asyncio.Task[Any] | None = None
        """The task that sync code speaks to; None: none is known."""
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._keeper.now_seconds

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As usual, but for infinity: `anyio.sleep_forever` is a timer of that instant on asyncio.

        asyncio waits for it a day at a time, so time would run away, a day at a time, for ever.
        """
        if when == math.inf:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(
        self,
        executor: concurrent.futures.Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """As usual (`asyncio.to_thread` and `getaddrinfo` come here too), with time standing still.

        Until the thread has ended *and* its result has been delivered: a cancelled future is done long
        before its thread, and a thread is done before its result has come through the loop.
        """
        if executor is None:
            executor = self._default()
        bracket = self._keeper.external(f"executor: {getattr(func, '__qualname__', func)}")
        work = executor.submit(func, *args)
        future = asyncio.wrap_future(work, loop=self)
        bracket.__enter__()

        def close_if_over(_: object = None) -> None:
            if work.done() and future.done():
                bracket.__exit__(None, None, None)

        def close_from_thread(_: object) -> None:
            # Closed meanwhile: the loop is gone, and so is the run.
            if not self.is_closed():
                self.call_soon_threadsafe(close_if_over)

        future.add_done_callback(close_if_over)
        work.add_done_callback(close_from_thread)
        return future

    def _default(self) -> concurrent.futures.Executor:
        if self._executor is None:
            self.set_default_executor(
                concurrent.futures.ThreadPoolExecutor(thread_name_prefix="asyncio")
            )
        assert self._executor is not None
        return self._executor

    def set_default_executor(self, executor: Any) -> None:
        """As usual."""
        self._executor = executor
        super().set_default_executor(executor)

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """As usual, with time standing still.

        From Python 3.12 on it gives up after 300 s of the loop's time, which would pass at once.
        """
        with self._keeper.external("shutdown of the default executor"):
            await super().shutdown_default_executor(*args, **kwargs)
