"""Lets statements through one at a time, in an order that a test chooses.

Brackets alone give the right time, not a reproducible order: replies of several connections race.
So each statement parks here before it is sent. When all is idle and nothing is in flight, one of
those that wait is chosen and goes to the database alone; whatever it makes happen happens before the
next is chosen. The schedule that comes of it is a list of small integers, the same on asyncio and on
trio, and can be given to another gate to see the same run again.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache

import anyio

from inboxkit._db.backend import current_task_name

from ._brackets import Block
from ._timekeeper import Timekeeper
from .backends import Choose

__all__ = ["StatementGate"]

_NUMBERED_TASK = re.compile(r"Task-\d+")
_LONGEST_TEXT = 60
_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)


class StatementGate:
    """One statement at a time over all databases of a run.

    On SQLite, which has one writer, a whole script or transaction is one turn; on Postgres each
    statement is, BEGIN and COMMIT too.

    Those that wait are sorted by instance, name of the task, number of the connection, and arrival,
    so that an index means the same statement in every run, on either backend. Name tasks that do the
    same work (``start_soon(worker, name="worker 1")``): of equals who comes first is the loop's choice.

    Args:
        choices: Picks among ``n >= 2`` that wait: a function from ``n`` to an index, or a list of
            integers, each taken modulo ``n``, and zero where it has ended.
        delays: Number of a turn, from 1, to the virtual seconds for which that statement is held
            back once it was chosen; it has not been sent then, so time may pass, in a transaction too.
    """

    def __init__(
        self, choices: Choose | Sequence[int] = (), *, delays: Mapping[int, float] | None = None
    ) -> None:
        self._choices = choices
        self._delays = dict(delays or {})
        self._keeper: Timekeeper | None = None
        self._waiting: list[_Waiting] = []
        self._arrivals = 0
        self._schedule: list[int] = []
        self._taken_before = 0
        """How long it was when the choices in use were given."""
        self._taken: list[tuple[_Waiting, list[_Waiting]]] = []
        """The turns, each with those that went on waiting."""

    def choose_by(self, choices: Choose | Sequence[int]) -> None:
        """From here on choose so; the first integer of a list is for the next choice.

        For a chooser that a test gets when its run has begun, such as Hypothesis's ``data``.
        """
        self._choices = choices
        self._taken_before = len(self._schedule)

    @property
    def schedule(self) -> list[int]:
        """The choices taken in this run, or in the last; as `choices` of another gate they repeat it.

        Only where two or more waited.
        """
        return list(self._schedule)

    @property
    def turns(self) -> list[str]:
        """What went through, in order, as ``"instance/connection: statement"``."""
        return [waiting.label for waiting, _ in self._taken]

    def lines(self) -> list[str]:
        """The turns as text: number, who sent what, and those who waited when it was chosen.

        As ``" 12  b/1: claim    before a/1: commit, c/2: claim"``. Where there is no instance, the task
        is named; of the service's own statements the beginning is shown.
        """
        shown = [waiting.shown for waiting, _ in self._taken]
        width = max(map(len, shown), default=0)
        rivals = [", ".join(each.shown for each in others) for _, others in self._taken]
        return [
            f"{number:>4}  {turn:<{width}}{f'  before {others}' if others else ''}".rstrip()
            for number, (turn, others) in enumerate(zip(shown, rivals, strict=True), 1)
        ]

    def begin(self, keeper: Timekeeper) -> None:
        """Start anew for a run; for the kit."""
        self._keeper = keeper
        self._begin_anew()
        keeper.rewinds.append(self._begin_anew)
        keeper.idle_hooks.append(self._let_one_through)
        keeper.stall_notes.append(self._describe)

    def _begin_anew(self) -> None:
        self._waiting = []
        self._arrivals = 0
        self._schedule = []
        self._taken_before = 0
        self._taken = []

    async def turn(
        self,
        label: str,
        *,
        instance: str = "",
        connection: int = 0,
        block: Block | None = None,
        text: str = "",
    ) -> None:
        """Wait until this statement may go; send it before the next checkpoint.

        Args:
            label: What it is, such as ``"claim"``.
            instance: Whose it is.
            connection: The number of its connection within the instance.
            block: The transaction of the service's own that it belongs to.
            text: More of it, for `lines`.

        Cancellation:
            Passes; the statement was not sent.
        """
        number = await self._admitted(label, instance, connection, text)
        if (delay := self._delays.get(number, 0.0)) <= 0:
            return
        with block.held_back() if block is not None else nullcontext():
            await anyio.sleep(delay)
            await self._admitted(label, instance, connection, text)

    async def _admitted(self, label: str, instance: str, connection: int, text: str) -> int:
        self._arrivals += 1
        key = (instance, _name_of_task(), connection, self._arrivals)
        waiting = _Waiting(key, f"{instance}/{connection}: {label}", text)
        self._waiting.append(waiting)
        try:
            await waiting.event.wait()
        except BaseException:
            # Chosen and cancelled at once: the turn is spent, and the next one is chosen when all
            # is idle again, so the schedule stays what it was.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        return waiting.number

    def _let_one_through(self) -> bool:
        if not self._waiting:
            return False
        self._waiting.sort(key=lambda waiting: waiting.key)
        waiting = self._waiting.pop(self._choose(len(self._waiting)))
        self._taken.append((waiting, self._waiting.copy()))
        waiting.number = len(self._taken)
        waiting.event.set()
        return True

    def _choose(self, count: int) -> int:
        assert self._keeper is not None
        if count == 1 or self._keeper.failure is not None:
            return 0
        if callable(self._choices):
            index = self._choices(count)
            if not 0 <= index < count:
                raise ValueError(
                    f"the chooser of a StatementGate returns an index below {count}, got {index!r}"
                )
        else:
            taken = len(self._schedule) - self._taken_before
            index = self._choices[taken] % count if taken < len(self._choices) else 0
        self._schedule.append(index)
        return index

    def _describe(self) -> str:
        labels = ", ".join(repr(waiting.label) for waiting in self._waiting)
        return f"at the gate: {labels}" if labels else ""

    def __repr__(self) -> str:
        return f"<StatementGate {len(self._taken)} turns, schedule {self._schedule}>"


@dataclass(slots=True, eq=False)
class _Waiting:
    key: tuple[str, str, int, int]
    label: str
    text: str
    event: anyio.Event = field(default_factory=anyio.Event)
    number: int = 0

    @property
    def shown(self) -> str:
        who = "" if self.key[0] else self.key[1].rpartition(".")[2].lstrip("_")
        text = textwrap.shorten(self.text, _LONGEST_TEXT, placeholder=" …")
        return f"{who}{self.label} {text}".rstrip()


def _name_of_task() -> str:
    return _without_numbers(current_task_name())


@lru_cache(maxsize=1024)
def _without_numbers(name: str) -> str:
    # asyncio's own names count all tasks of the process, and trio's of a callable without a name tell
    # where it lies in memory, so they sort differently in each run.
    return "" if _NUMBERED_TASK.fullmatch(name) else _ADDRESS.sub("", name)
