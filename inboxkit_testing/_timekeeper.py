"""One run of virtual time: what may happen next when none of the loop's tasks can run.

The loops of both backends ask `Timekeeper.idle` when they have nothing to do. It looks at what is in
flight, lets one waiting thing go on, or moves the time; it never raises, since an exception that
leaves a loop's wait breaks the loop.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio

from inboxkit._db.backend import current_task_id

from ._alarms import Alarms
from ._brackets import Block, Bracket
from ._frozen import check_not_frozen, real_seconds
from .errors import ClockStalledError, SleepInTransactionError

__all__ = ["Limiter", "Timekeeper"]

_log = logging.getLogger("inboxkit.testing")

_GRACE_AFTER_FAILURE = 1.0
"""Real seconds that shielded I/O gets to end after the run has failed, before time moves in spite of it."""

_SAME_INSTANT = 0.5e-6
"""Seconds that `now()` rounds away: a timer that was reached by a sum of floats may lie so far behind
the instant that it is meant for."""

_LOCK_PATIENCE = 0.003
"""Real seconds without an answer after which the database is asked who waits for a lock."""


class Limiter(Protocol):
    """A limiter of worker threads: anyio's or trio's `CapacityLimiter`."""

    @property
    def borrowed_tokens(self) -> int:
        """How many threads work."""
        ...


class Timekeeper:
    """The state of one run: its time, and what keeps it from moving.

    Used from the loop's thread only, but for reading `now_seconds`.
    """

    def __init__(self, *, stall: float, frozen: bool) -> None:
        self.now_seconds: float = 0.0
        """Seconds since the start of the run. From zero, so that floats stay exact to the microsecond
        for 68 years, and asyncio's timers and trio's deadlines are numbers of this very scale."""
        self.frozen = frozen
        self.jumps: int = 0
        self.failure: BaseException | None = None
        self.alarms: Alarms = Alarms()
        """The sleeps by this clock; those by the loop's own timers are known to the loop."""
        self.limiters: list[Limiter] = []
        self.idle_hooks: list[Callable[[], bool]] = []
        """Asked in order when all is idle and nothing is in flight, before time moves; the first to
        answer True has let something go on."""
        self.last_hooks: list[Callable[[], bool]] = []
        """Asked when nobody waits for the present any more, as the last before time moves."""
        self.are_lock_waits: Callable[[int], bool] | None = None
        """Whether the so many things that are in flight wait for locks of idle transactions of this run."""
        self.rewinds: list[Callable[[], None]] = []
        """Called when time begins anew within the run."""
        self.endings: list[Callable[[], None]] = []
        """Called when the run is over."""
        self.stall_notes: list[Callable[[], str]] = []
        """What else to say in a stall report."""
        self._stall = stall
        self._in_flight: dict[Bracket, None] = {}
        self._blocks: dict[Block, None] = {}
        self._settlers: deque[anyio.Event] = deque()
        self._arrivals: list[tuple[float, int, anyio.Event]] = []
        self._arrival_count = 0
        self._waiting_since: float | None = None
        self._ask_again_in = _LOCK_PATIENCE
        self._root: anyio.CancelScope | None = None

    # What keeps time from moving.

    def external(self, label: str) -> Bracket:
        """A bracket around I/O; time stands while it is open."""
        return Bracket(self._in_flight, label)

    def block(self, label: str) -> Block:
        """A bracket inside which the program must not let time pass."""
        return Block(self._blocks, label)

    def is_busy(self) -> bool:
        """Whether an answer is awaited that time must not overtake."""
        if self._in_flight:
            return True
        for limiter in self.limiters:  # noqa: SIM110 - asked in each turn of the loop, as below
            if limiter.borrowed_tokens:
                return True
        return False

    def _threads(self) -> int:
        working = 0
        for limiter in self.limiters:
            working += limiter.borrowed_tokens
        return working

    def check_sleep(self, seconds: float) -> None:
        """Refuse a sleep of a task inside a block of its own.

        The jump itself would be refused as well, but without the line that sleeps, and perhaps too
        late: a rival that waits for a row lock of the block is in flight, so there is no jump.
        """
        if seconds <= 0 or not self._blocks:
            return
        task = current_task_id()
        for block in self._blocks:
            if block.is_strict and block.task == task:
                error = _sleep_in(block, seconds)
                self.fail(error)
                raise error

    # Waiting for the present and for the future.

    async def settled(self) -> None:
        """Return when everything that can happen now has happened."""
        self._settlers.append(event := anyio.Event())
        try:
            await event.wait()
        except BaseException:
            self._forget(event)
            raise

    async def arrived(self, when: float) -> None:
        """Return when all is done that is due up to `when`, that instant included; moves a frozen clock."""
        self._arrival_count += 1
        entry = (when, self._arrival_count, event := anyio.Event())
        heapq.heappush(self._arrivals, entry)
        try:
            await event.wait()
        except BaseException:
            self._forget(event)
            raise

    def _forget(self, event: anyio.Event) -> None:
        """A cancelled waiter must not hold up, or move, anybody's time."""
        if event in self._settlers:
            self._settlers.remove(event)
        self._arrivals = [entry for entry in self._arrivals if entry[2] is not event]
        heapq.heapify(self._arrivals)

    def rewind(self) -> None:
        """Begin at zero again, where nothing is left of what was: one run for many examples.

        Raises:
            RuntimeError: Something is still going on, or the run has failed.
        """
        if self.failure is not None or self.is_busy() or self._blocks or self._arrivals:
            raise RuntimeError(f"time cannot begin anew{self._list_in_flight()}")
        self.now_seconds = 0.0
        self.jumps = 0
        self.last_hooks.clear()  # of instances that are dead
        for rewind in self.rewinds:
            rewind()

    # The idle rule.

    def progress(self) -> None:
        """Something happened: a task ran or I/O came."""
        self._waiting_since = None
        self._ask_again_in = _LOCK_PATIENCE

    def idle(self, deadline: float) -> float:
        """No task can run and no I/O is waiting to be read: decide what happens next.

        Args:
            deadline: When the loop's next timer is due, in its seconds; infinity: there is none.

        Returns:
            For how many real seconds to wait for I/O; zero: go on at once.
        """
        try:
            if self.failure is not None:
                return self._idle_after_failure(deadline)
            return self._idle(deadline)
        except BaseException as error:  # noqa: BLE001 - a hook's; raised again after the run
            self.fail(error)
            return 0.0

    def _idle(self, deadline: float) -> float:
        if self.is_busy() and (wait := self._wait_for_answers()) is not None:
            return wait
        if self._let_something_go_on():
            return 0.0
        deadline = min(deadline, self.alarms.next())
        arrival = self._arrivals[0][0] if self._arrivals else math.inf
        # At one instant timers go first, so that an `advance` returns after what it made due.
        if deadline > arrival + _SAME_INSTANT:
            self._move_to(arrival)
            heapq.heappop(self._arrivals)[2].set()
            return 0.0
        may_move = not self.frozen or arrival < math.inf
        if deadline < math.inf and may_move:
            self._move_to(deadline)
            self.alarms.ring(self.now_seconds)
            return 0.0
        return self._wait_for_io(lambda: self._report_deadlock(deadline))

    def _wait_for_answers(self) -> float | None:
        """For how long; None: all wait for locks, so whoever holds those is to go on first."""
        left = self._wait_for_io(self._report_in_flight)
        if self.are_lock_waits is None or self._threads():
            return left
        assert self._waiting_since is not None
        if real_seconds() - self._waiting_since < self._ask_again_in:
            return min(left, self._ask_again_in)
        self._ask_again_in *= 4  # most statements are slow for another reason
        return None if self.are_lock_waits(len(self._in_flight)) else 0.0

    def _let_something_go_on(self) -> bool:
        if self.idle_hooks and _any_goes_on(self.idle_hooks):
            return True
        if self._settlers:
            # One at a time: what this one does must have happened before the next may say so.
            self._settlers.popleft().set()
            return True
        return bool(self.last_hooks) and _any_goes_on(self.last_hooks)

    def _move_to(self, when: float) -> None:
        if when <= self.now_seconds:
            return
        check_not_frozen()
        for block in self._blocks:
            if block.is_strict:
                raise _sleep_in(block, when - self.now_seconds)
        self.now_seconds = when
        self.jumps += 1
        self.progress()  # also where whoever wakes only sleeps again

    def _wait_for_io(self, report: Callable[[], ClockStalledError]) -> float:
        check_not_frozen()
        now = real_seconds()
        if self._waiting_since is None:
            self._waiting_since = now
        left = self._waiting_since + self._stall - now
        if left > 0:
            return left
        raise report()

    # Failing: the run ends, but never by an exception out of the loop.

    def fail(self, error: BaseException) -> None:
        """End the run with an error: cancel its main; `run` raises it at the end."""
        if self.failure is None:
            self.failure = error
        self._waiting_since = None
        if self._root is not None:
            self._root.cancel()

    @contextmanager
    def root(self) -> Iterator[None]:
        """The scope that a failure cancels."""
        with anyio.CancelScope() as scope:
            self._root = scope
            if self.failure is not None:
                scope.cancel()
            yield

    def _idle_after_failure(self, deadline: float) -> float:
        """The run is being torn down: time moves freely, so that bounds of shielded clean-up end it."""
        if self.is_busy():
            now = real_seconds()
            if self._waiting_since is None:
                self._waiting_since = now
            left = self._waiting_since + min(self._stall, _GRACE_AFTER_FAILURE) - now
            if left > 0:
                return left
        elif self._let_something_go_on():
            return 0.0
        elif self._arrivals:
            heapq.heappop(self._arrivals)[2].set()
            return 0.0
        self._waiting_since = None
        deadline = min(deadline, self.alarms.next())
        if deadline < math.inf:
            self.now_seconds = max(deadline, self.now_seconds)
            self.alarms.ring(self.now_seconds)
            return 0.0
        _log.error("the run failed with %r and cannot end%s", self.failure, self._list_in_flight())
        return max(self._stall, _GRACE_AFTER_FAILURE)

    # Reports.

    def _labels(self) -> list[str]:
        return [bracket.label for bracket in self._in_flight]

    def _list_in_flight(self) -> str:
        now = real_seconds()
        found = [f"{b.label!r} (for {now - b.since:.1f} real s)" for b in self._in_flight]
        if working := self._threads():
            found.append(f"{working} worker thread{'s' if working > 1 else ''}")
        open_blocks = [f"{block.label!r}{block.place}" for block in self._blocks]
        text = f"; in flight: {', '.join(found)}" if found else ""
        text += f"; open transactions: {', '.join(open_blocks)}" if open_blocks else ""
        notes = [note for describe in self.stall_notes if (note := describe())]
        return "; ".join([text, *notes])

    def _report_in_flight(self) -> ClockStalledError:
        return ClockStalledError(
            f"nothing happened for {self._stall:g} real s, and virtual time stands still while an answer is "
            f"awaited{self._list_in_flight()}. A hung server, a lock that nobody will give back, or a thread "
            "that waits for virtual time",
            in_flight=self._labels(),
        )

    def _report_deadlock(self, deadline: float) -> ClockStalledError:
        if self.frozen and deadline < math.inf:
            return ClockStalledError(
                f"nothing happened for {self._stall:g} real s: the clock is frozen and everything waits for it "
                f"(the next timer is due in {deadline - self.now_seconds:g} s){self._list_in_flight()}. "
                "Move it by `await clock.advance(...)` in another task, or use `clock.autojump()`"
            )
        return ClockStalledError(
            f"nothing happened for {self._stall:g} real s: a deadlock, every task waits for something that "
            f"neither time nor an answer will bring{self._list_in_flight()}. Where real I/O is awaited, open "
            "`clock.external(label)` around it"
        )


def _any_goes_on(hooks: list[Callable[[], bool]]) -> bool:
    for hook in hooks:  # noqa: SIM110 - asked at each idle moment, and a generator costs more than they do
        if hook():
            return True
    return False


def _sleep_in(block: Block, seconds: float) -> SleepInTransactionError:
    return SleepInTransactionError(
        f"{seconds:g} s would pass while {block.label!r} is open{block.place}. End the transaction before "
        "waiting: a real one would keep its locks for all that time"
    )
