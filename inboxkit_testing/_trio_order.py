"""trio in an order that is chosen: which ready task goes next, and when I/O comes.

trio runs all that is ready in one batch, in an order of its own which no public name changes. But under
Hypothesis it sorts the batch by the age of the tasks and gives it to a `random.Random`, which
Hypothesis seeds: `trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING` and ``_r``. Both stand in for ours
here while a batch is made, and only then, so that other runs keep their order. What trio's own tests and
Hypothesis count on is thereby all that is used; a trio without it is refused.

To shuffle is to choose one and keep the others for later batches: else each ready task would take one
step in each batch, and none could overtake another by two.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, MutableSequence
from typing import TYPE_CHECKING, Any

import trio

from inboxkit.errors import StartupError

if TYPE_CHECKING:
    from .backends import Choose

__all__ = ["ChosenOrder"]

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_SOURCE = "_r"
_MOST_STEPS = 1000
"""How many steps go before an answer that is there, lest a task that waits for it by turning never ends."""


class ChosenOrder(trio.abc.Instrument):
    """Given to one run in ``instruments=``.

    Args:
        choose: Picks among those that are ready, oldest first.

    Raises:
        StartupError: trio does not have the two names.
    """

    def __init__(self, choose: Choose) -> None:
        self.fail: Callable[[BaseException], None] = _raise
        """Ends the run with an error."""
        self.goes_first: trio.lowlevel.Task | None = None
        """Comes before all others when it is next ready, and is no choice: sync code has asked it to go on."""
        self._choose = choose
        self._ready: list[trio.lowlevel.Task] = []
        self._from_outside: deque[trio.lowlevel.Task] = deque()
        """Woken by I/O or by a thread; they go on, one at a time, when nobody else can."""
        self._woken_outside: set[trio.lowlevel.Task] = set()
        self._steps = 0
        """Since the last answer."""
        self._is_io = False
        self._module = sys.modules["trio._core._run"]
        self._source = _Chooser(self._take_one)
        self._saved: tuple[Any, Any] | None = None
        names = vars(self._module)
        if not (isinstance(names.get(_SOURCE), random.Random) and _FLAG in names):
            raise _unknown_trio()

    def is_held_back(self) -> bool:
        """Whether there are ready tasks that trio does not know of as such."""
        return bool(self._ready or self._from_outside)

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        self._give_back()  # no task was ready
        self._is_io = True

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if self._is_io:
            self._woken_outside.add(task)

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        """The batch is made next."""
        self._is_io = False
        self._saved = getattr(self._module, _FLAG), getattr(self._module, _SOURCE)
        setattr(self._module, _FLAG, True)
        setattr(self._module, _SOURCE, self._source)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        if self._saved is not None:
            self._give_back()
            if not self._source.was_asked:
                self.fail(_unknown_trio())
        self._source.was_asked = False

    def after_run(self) -> None:
        self._give_back()

    def _give_back(self) -> None:
        if self._saved is not None:
            setattr(self._module, _FLAG, self._saved[0])
            setattr(self._module, _SOURCE, self._saved[1])
            self._saved = None

    def _take_one(self, batch: MutableSequence[Any]) -> None:
        for task in batch:
            if task in self._woken_outside:
                self._from_outside.append(task)
            else:
                self._ready.append(task)
        self._woken_outside.clear()
        if (first := self.goes_first) is not None:
            for tasks in (self._ready, self._from_outside):
                if first in tasks:
                    tasks.remove(first)
                    self.goes_first = None
                    batch[:] = [first]
                    return
        count = len(self._ready)
        if self._from_outside and (not count or self._steps >= _MOST_STEPS):
            self._steps = 0
            batch[:] = [self._from_outside.popleft()]
        elif count:
            self._steps += 1
            batch[:] = [self._ready.pop(self._choose(count) if count > 1 else 0)]


class _Chooser(random.Random):
    """Stands in for trio's source of chance."""

    def __init__(self, take_one: Callable[[MutableSequence[Any]], None]) -> None:
        super().__init__(0)
        self.was_asked = False
        self._take_one = take_one

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Leave one."""
        self.was_asked = True
        self._take_one(x)


def _unknown_trio() -> StartupError:
    return StartupError(
        f"trio {trio.__version__} does not let its order of ready tasks be chosen in the way that "
        "inboxkit_testing knows, so a seed cannot be honoured on it: run with --inbox-backend=asyncio, "
        "or without a seed, or with an older trio"
    )


def _raise(error: BaseException) -> None:
    raise error
