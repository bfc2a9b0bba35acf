"""asyncio in virtual time, in an order that is chosen: which ready task goes next, and when I/O comes.

A run is repeated by the same choices only if they are made from the same things each time. So tasks that
became ready together are sorted by their birth, since anyio and asyncio keep them in sets, which have
another order in each run. And what comes from outside comes when nothing else can happen: one answer
at a time, whether it has been there for long or not.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from typing_extensions import TypeVarTuple, Unpack

from ._asyncio_loop import RESOLUTION, VirtualLoop, VirtualSelector
from ._timekeeper import Timekeeper

if TYPE_CHECKING:
    from .backends import Choose

__all__ = ["ChosenLoop"]

Ts = TypeVarTuple("Ts")

_MOST_PASSES = 1000
"""How many steps go without a look at I/O, lest a task that waits for it by turning never ends."""


class ChosenLoop(VirtualLoop):
    """A virtual loop that runs one ready task after another, each time a chosen one.

    Only steps of tasks are chosen. Other callbacks keep their order, and a step comes after those
    that were called for before it: transports rely on both.
    """

    def __init__(self, keeper: Timekeeper, choose: Choose) -> None:
        self._first: _Step | None = None
        """A step of the task that sync code speaks to, which was called for while the loop stood. It comes
        before all others and is no choice: it goes on with what sync code asked for last, as if there had
        been no return to it."""
        self._are_steps_soon = False
        """Whether the loop was asked for `_run_steps`."""
        self._choose = choose
        self._ready_steps: list[_Step] = []
        self._last_called: list[_Step] | None = None
        """Steps called for one right after the other, which become ready together; None: the last that
        was called for is something else."""
        self._births: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._born = 0
        self._chosen = 0
        self._from_threads: deque[_Call] = deque()
        self._is_alone = False
        """Whether `_run_steps` is the last thing that the loop was asked for, but for more steps."""
        self._later: list[_Step] | None = None
        """Steps called for since, which become ready after the one that runs."""
        self._io = _ChosenSelector(keeper, self._take_from_threads)
        super().__init__(self._io)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As usual, but for the steps of tasks."""
        task = getattr(callback, "__self__", None)
        if not isinstance(task, asyncio.Task):
            self._io.is_idle = False
            self._go_by_the_loop()
            self._last_called = None
            return super().call_soon(callback, *args, context=context)
        if (birth := self._births.get(task)) is None:
            # Its first step is called for when it is made.
            self._born = self._births[task] = birth = self._born + 1
        step = _Step(birth, callback, args, context)
        handle: asyncio.Handle = cast(Any, step)
        if task is self.goes_first and not self.is_running():
            self._first = step
            self._run_steps_soon()
            return handle
        if self._last_called is not None:
            self._last_called.append(step)
            return handle
        if self._io.is_idle:  # and so is the loop: these become ready at once, and together
            self._add_ready((step,))
            if len(self._ready_steps) == 1:
                self._run_steps_soon()
            return handle
        self._last_called = [step]
        if self._is_alone:
            self._later = self._last_called
        else:
            super().call_soon(self._are_ready, self._last_called)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As usual."""
        if when <= self.time() + RESOLUTION:
            self._go_by_the_loop()  # it is due already
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        """As usual."""
        self._go_by_the_loop()
        super().stop()

    def _go_by_the_loop(self) -> None:
        """It has something else to do before the next step."""
        self._is_alone = False
        if (later := self._later) is not None:
            self._later = None
            super().call_soon(self._are_ready, later)

    def _are_ready(self, steps: list[_Step]) -> None:
        if steps is self._last_called:
            self._last_called = None
        self._add_ready(steps)
        if len(steps) == len(self._ready_steps):
            self._run_steps_soon()

    def _add_ready(self, steps: Iterable[_Step]) -> None:
        for step in steps:
            step.ready_since = self._chosen
        self._ready_steps += steps

    def _run_steps_soon(self) -> None:
        if self._are_steps_soon:
            return
        self._are_steps_soon = True
        self._last_called = None
        super().call_soon(self._run_steps)
        self._is_alone = True

    def _run_steps(self) -> None:
        """Run a step, and then the next one, as long as the loop would do nothing in between.

        To turn for each would cost as much again as the steps.
        """
        ready = self._ready_steps
        self._are_steps_soon = False
        try:
            while True:
                self._chosen += 1
                if self._first is not None:
                    step, self._first = self._first, None
                elif len(ready) == 1:
                    step = ready.pop()
                else:
                    ready.sort(key=_age)
                    step = ready.pop(self._choose(len(ready)))
                step.run()
                if not (self._is_alone and self._io.may_pass()):
                    break
                self._last_called = None
                if (later := self._later) is not None:
                    self._later = None
                    self._add_ready(later)
                if not ready:
                    break
        finally:
            self._go_by_the_loop()
            if ready:  # after those that the last one has made ready
                self._run_steps_soon()

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As usual, but when nothing else can happen."""
        call = _Call(callback, args, self, context or copy_context())
        self._from_threads.append(call)
        super().call_soon_threadsafe(_wake)
        return call

    def _take_from_threads(self) -> bool:
        if not self._from_threads:
            return False
        self._last_called = None
        super().call_soon(self._from_threads.popleft().run)
        return True


class _ChosenSelector(VirtualSelector):
    """Looks at I/O when nothing can run, and lets one thing come at a time.

    Args:
        keeper: The run's.
        take_from_threads: Lets one call of a thread go on; whether there was one.
    """

    def __init__(self, keeper: Timekeeper, take_from_threads: Callable[[], bool]) -> None:
        super().__init__(keeper)
        self._take_from_threads = take_from_threads
        self._passes = 0
        self.is_idle = False
        """Whether the loop waits, and what the timekeeper lets go on is all that it is asked for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As in any virtual loop, where nothing can run."""
        if timeout is not None and timeout <= 0 and self.may_pass():
            self.keeper.progress()
            return []
        self._passes = 0
        if self._take_from_threads():
            self.keeper.progress()
            return []
        self.is_idle = True
        try:
            return super().select(timeout)
        finally:
            self.is_idle = False

    def may_pass(self) -> bool:
        """Whether I/O may go unseen once more."""
        self._passes += 1
        return self._passes <= _MOST_PASSES

    def poll(self, wait: float) -> list[tuple[selectors.SelectorKey, int]]:
        """The first that has come, by the age of its file; the others will be there again."""
        return sorted(super().poll(wait), key=lambda event: event[0].fd)[:1]


class _Call(asyncio.Handle):
    """A thread's callback, which waits until nothing else can happen."""

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(callback, args, loop, context)
        self._what: tuple[Callable[..., object], tuple[Any, ...], Context | None]
        self._what = (callback, args, context)

    def run(self) -> None:
        """Do it, unless it was cancelled."""
        if self.cancelled():
            return
        callback, args, context = self._what
        if context is None:
            callback(*args)
        else:
            context.run(callback, *args)


class _Step:
    """A step of a task that waits until it is chosen. Nobody cancels one, so it is no handle."""

    __slots__ = ("_args", "_callback", "_context", "birth", "ready_since")

    def __init__(
        self,
        birth: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self.birth = birth
        """Of its task, from 1, in the order in which tasks are made."""
        self.ready_since = 0
        """How many steps had been chosen when it became ready."""
        self._callback = callback
        self._args = args
        self._context = context

    def run(self) -> None:
        """Make it."""
        if self._context is None:
            self._callback(*self._args)
        else:
            self._context.run(self._callback, *self._args)


def _age(step: _Step) -> tuple[int, int]:
    return step.ready_since, step.birth


def _wake() -> None:
    """Called for the sake of the loop that turns."""
