"""trio in virtual time: a clock that is also an instrument.

Public API only, but for the order of a run with a seed. trio asks its clock for a wait once in each pass
of its loop, and only when no task is runnable; it passes the absolute deadline, so a jump lands exactly on it.
"""

from __future__ import annotations

from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from ._timekeeper import Timekeeper
from ._trio_host import TrioHost
from ._trio_order import ChosenOrder

if TYPE_CHECKING:
    from .backends import Choose

__all__ = ["TrioBackend"]

_WAIT_ALL_TASKS_BLOCKED = trio.testing.wait_all_tasks_blocked.__code__


class TrioBackend:
    """A virtual trio run."""

    def __init__(self, choose: Choose | None) -> None:
        self.order = ChosenOrder(choose) if choose is not None else None
        """Which ready task goes next; None: trio's own order."""
        self._clock: TrioClock | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"backend": "trio", "backend_options": self.run_options}

    @property
    def run_options(self) -> dict[str, Any]:
        """What `trio.run` and `trio.lowlevel.start_guest_run` take."""
        assert self._clock is not None
        instruments = [self._clock] if self.order is None else [self._clock, self.order]
        return {"clock": self._clock, "instruments": instruments}

    def bind(self, keeper: Timekeeper) -> None:
        self._clock = TrioClock(keeper, self.order)
        if self.order is not None:
            self.order.fail = keeper.fail

    async def sleep_until(self, when: float) -> None:
        assert self._clock is not None
        keeper = self._clock.keeper
        if when <= keeper.now_seconds:
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        alarm = keeper.alarms.set(when, partial(trio.lowlevel.reschedule, task))

        def abort(_: object) -> trio.lowlevel.Abort:
            keeper.alarms.drop(alarm)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def host(self) -> TrioHost:
        return TrioHost(self)


class TrioClock(trio.abc.Clock, trio.abc.Instrument):
    """Given to trio as ``clock=`` and in ``instruments=``."""

    def __init__(self, keeper: Timekeeper, order: ChosenOrder | None) -> None:
        self.keeper = keeper
        self._order = order
        self._polled = False
        self._stepped: set[trio.lowlevel.Task] = set()
        self._wait_for_all: set[trio.lowlevel.Task] = set()

    def start_clock(self) -> None:
        self._polled = False

    def current_time(self) -> float:
        return self.keeper.now_seconds

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._polled = False
        self._stepped.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._stepped.discard(task)
        self._wait_for_all.discard(task)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if deadline <= self.keeper.now_seconds:
            return 0.0
        if self._order is not None and self._order.is_held_back():
            return 0.0
        if self._is_all_blocked_awaited():
            # trio wakes these when a wait reaches their cushion, and a jump would overtake them. So
            # offer a wait that is longer than any cushion: trio cuts it down to the shortest.
            return 3600.0
        if not self._polled:
            # The first look after a step: I/O that is there already must come before time moves.
            self._polled = True
            self.keeper.progress()
            return 0.0
        return self.keeper.idle(deadline)

    def _is_all_blocked_awaited(self) -> bool:
        for task in self._stepped:
            if _waits_for_all(task):
                self._wait_for_all.add(task)
            else:
                self._wait_for_all.discard(task)
        self._stepped.clear()
        return bool(self._wait_for_all)


def _waits_for_all(task: trio.lowlevel.Task) -> bool:
    """Whether `wait_all_tasks_blocked` is among what it awaits."""
    awaited: Any = task.coro
    while isinstance(awaited, CoroutineType):  # most are this all along
        if awaited.cr_code is _WAIT_ALL_TASKS_BLOCKED:
            return True
        awaited = awaited.cr_await
    if awaited is None or (isinstance(awaited, GeneratorType) and awaited.gi_yieldfrom is None):
        return False
    return any(frame.f_code is _WAIT_ALL_TASKS_BLOCKED for frame, _ in task.iter_await_frames())
