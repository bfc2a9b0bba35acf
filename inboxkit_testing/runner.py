"""A virtual loop that sync code enters call by call: for fixtures and for stateful machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
from typing_extensions import TypeVarTuple, Unpack

from inboxkit.errors import ClosedError

from ._timekeeper import Timekeeper
from .backends import BackendName, Host, VirtualBackend, open_backend
from .clock import VirtualClock
from .gate import StatementGate

__all__ = ["VirtualRunner"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualRunner:
    """One run in virtual time, entered from sync code in the same thread.

    The loop turns only inside `call`, so neither time nor any task moves between calls. One task
    makes all calls, so a task group or a cancel scope that one call enters may be left by another.

    Args:
        backend: ``"asyncio"`` or ``"trio"``.
        clock: The time; None: a fresh `VirtualClock`.
        seed: As for `run`.
    """

    def __init__(
        self,
        *,
        backend: BackendName = "asyncio",
        clock: VirtualClock | None = None,
        seed: int | None = None,
    ) -> None:
        self.clock: VirtualClock = clock or VirtualClock()
        """The time of this run."""
        self._loop, self._gate = seeded(backend, seed, self.clock)
        self._driven: AbstractContextManager[Timekeeper] | None = None
        self._host: Host | None = None
        self._keeper: Timekeeper | None = None
        self._requests: list[_Call] = []
        self._asked: anyio.Event | None = None
        self._is_ending = False

    def start(self) -> Self:
        """Open the loop.

        Raises:
            ClosedError: The clock is in use by another run.
        """
        driven = self.clock.driven(self._loop, self._gate)
        self._keeper = driven.__enter__()
        self._driven = driven
        self._loop.bind(self._keeper)
        self._host = self._loop.host()
        self._host.start(self._serve)
        return self

    def call(self, async_fn: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """Make a call in the loop, let it turn until the call returns, and return its value.

        Raises:
            BaseException: What the call raised; or the error that ended the run, in this call or
                in an earlier one.
        """
        if self._host is None or self._keeper is None:
            raise ClosedError(
                "this VirtualRunner is not open: use `with VirtualRunner(...)`, or `start()`"
            )
        if self._keeper.failure is not None:
            raise self._keeper.failure
        call = _Call(lambda: async_fn(*args))
        self._requests.append(call)
        if self._asked is not None:
            self._asked.set()
        # However long the sync code took, the loop has not stalled.
        self._keeper.progress()
        self._host.turn_until(call)
        if self._keeper.failure is not None:
            raise self._keeper.failure
        if call.error is not None:
            raise call.error
        result: T = call.value
        return result

    def stop(self) -> None:
        """Close the loop; what still runs in it is cancelled. More than once does nothing."""
        host, self._host = self._host, None
        if host is None:
            return
        try:
            self._is_ending = True
            if self._asked is not None:
                self._asked.set()
            host.stop()
        finally:
            if self._driven is not None:
                self._driven.__exit__(None, None, None)

    async def _serve(self) -> None:
        assert self._keeper is not None
        self._keeper.limiters.append(anyio.to_thread.current_default_thread_limiter())
        try:
            with self._keeper.root():
                while not self._is_ending:
                    if self._requests:
                        await self._requests[0].make()
                        del self._requests[0]
                    else:
                        self._asked = anyio.Event()
                        await self._asked.wait()
        finally:
            for call in self._requests:
                call.finish()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def seeded(
    backend: BackendName, seed: int | None, clock: VirtualClock
) -> tuple[VirtualBackend, StatementGate | None]:
    """A loop, and a gate if there is a seed, for one run.

    Two sources of chance: the gate's schedule must not depend on how many ready tasks a loop had to
    choose from, or it would not be the same on both backends.
    """
    if seed is None:
        # The choices of a gate repeat a run only if there is no other choice in it.
        return open_backend(backend, choose=None if clock.own_gate is None else _first), None
    steps = Random(f"{seed} steps").randrange  # noqa: S311
    statements = Random(f"{seed} statements").randrange  # noqa: S311
    return open_backend(backend, choose=steps), StatementGate(statements)


def _first(_count: int) -> int:
    return 0


class _Call:
    """One call on its way through the loop."""

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        self._make = make
        self.is_done = False
        self.when_done: Callable[[], None] = lambda: None
        self.value: Any = None
        self.error: BaseException | None = None

    async def make(self) -> None:
        try:
            self.value = await self._make()
        except Exception as error:  # noqa: BLE001 - the caller's
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.finish()

    def finish(self) -> None:
        self.is_done = True
        self.when_done()
