"""A clock that moves by itself to the next thing that is due, and never past an answer in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from inboxkit.errors import ClosedError

from ._frozen import check_not_frozen
from ._timekeeper import Limiter, Timekeeper
from .hosts import HostClock

if TYPE_CHECKING:
    from ._brackets import Block
    from .backends import VirtualBackend
    from .gate import StatementGate

__all__ = ["VirtualClock"]

_MICROSECOND = timedelta(microseconds=1)
DEFAULT_START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Virtual time for one run after another, on asyncio and on trio.

    `run` drives it. While it does, `anyio.sleep`, `trio.sleep`, asyncio's timers, every timeout and
    this clock's `now` and `sleep` are of one time. It starts at `start` in each run, and moves only
    when no task can run, no `external` bracket is open and no thread of the default limiter, of an
    asyncio executor or of a `watch`\\ ed limiter works: then at once to the next instant at which
    something is due. `now` and `monotonic` are exact to the microsecond for 68 years.

    What stays real: a server's own ``now()``, its timeouts, and threads of nobody's limiter. freezegun
    and time-machine have no place beside it: a run under them, or that comes to wait under them, ends
    with a `DeclarationError`.

    Args:
        start: What `now()` answers when a run starts; aware.
        stall: Real seconds without anything happening, nor time able to move, after which a run
            ends with `ClockStalledError`.
        frozen: Whether runs start with a clock that only `advance` moves.
        gate: Lets statements through one at a time, while ready tasks take turns, the one first that
            was ready first; None: all go as they come, or a run's `seed` chooses.
    """

    is_virtual: Final = True
    """Its time is nobody else's: no server's clock is compared with it."""

    def __init__(
        self,
        start: datetime = DEFAULT_START,
        *,
        stall: float = 10.0,
        frozen: bool = False,
        gate: StatementGate | None = None,
    ) -> None:
        if start.tzinfo is None:
            raise ValueError(
                f"expected an aware datetime as start, got {start!r}: give it tzinfo=UTC"
            )
        self._start = start.astimezone(UTC)
        self._stall = stall
        self._frozen = frozen
        self._own_gate = self._gate = gate
        self._watched: list[Limiter] = []
        self._keeper = Timekeeper(stall=stall, frozen=frozen)
        self._backend: VirtualBackend | None = None
        self._read = -1.0, self._start

    # Clock

    @property
    def start(self) -> datetime:
        """What `now()` answers when a run starts."""
        return self._start

    def now(self) -> datetime:
        """The virtual wall clock: aware, UTC, microseconds."""
        seconds, now = self._read
        if seconds != self._keeper.now_seconds:  # most readings are of one instant
            now = self._start + self._elapsed()
            self._read = self._keeper.now_seconds, now
        return now

    def monotonic(self) -> float:
        """Virtual seconds since the run began; the same as `anyio.current_time()`."""
        return self._keeper.now_seconds

    async def sleep(self, seconds: float) -> None:
        """Wait so many virtual seconds; zero and negative are a checkpoint.

        Raises:
            SleepInTransactionError: This task has a transaction of the service's own open.
        """
        backend = self._backend or self._driver()
        self._keeper.check_sleep(seconds)
        await backend.sleep_until(self._keeper.now_seconds + max(seconds, 0.0))

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until `now()` is `instant` (aware), to the microsecond; a checkpoint if that has passed.

        Raises:
            SleepInTransactionError: This task has a transaction of the service's own open.
        """
        when = (instant - self._start) / timedelta(seconds=1)
        backend = self._driver()
        self._keeper.check_sleep(when - self._keeper.now_seconds)
        await backend.sleep_until(when)

    def external(self, label: str) -> AbstractContextManager[None]:
        """Open around real I/O of your own until its answer has been read: time stands still meanwhile."""
        return self._keeper.external(label)

    # Moving it by hand

    async def advance(self, by: timedelta) -> None:
        """Let so much time pass, also on a frozen clock.

        All that falls due on the way happens in order, each instant settled before the next, and
        what is due at the end has happened when this returns.

        Raises:
            SleepInTransactionError: A transaction of the service's own is open.
        """
        if by < timedelta(0):
            raise ValueError(f"time cannot go back: advance({by!r})")
        self._driver()
        # From the rounded reading: a hundred advances by 100 ms are ten seconds.
        when = (self._elapsed() + by) / timedelta(seconds=1)
        self._keeper.check_sleep(when - self._keeper.now_seconds)
        await self._keeper.arrived(max(when, self._keeper.now_seconds))

    async def settle(self) -> None:
        """Return when everything that can happen now has happened; no time passes.

        Statements at the gate go through first. Tasks that wait for a later instant, and statements
        that a fault holds back, do not count.
        """
        self._driver()
        await self._keeper.settled()

    def freeze(self) -> None:
        """From here on only `advance` moves the time: in this run, or outside of one in all that follow."""
        self._set_frozen(True)

    def autojump(self) -> None:
        """From here on time moves by itself: in this run, or outside of one in all that follow."""
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        self._keeper.frozen = frozen
        if self._backend is None:
            self._frozen = frozen

    @property
    def is_frozen(self) -> bool:
        """Whether only `advance` moves it."""
        return self._keeper.frozen

    @property
    def jumps(self) -> int:
        """How often the time has moved in this run, or in the last. asyncio goes a long way in days."""
        return self._keeper.jumps

    # What it must wait for

    def watch(self, limiter: Limiter) -> None:
        """Stand still while a thread of this limiter works: in this run, or outside of one in all that follow.

        anyio's and trio's default limiters are seen without it.
        """
        self._keeper.limiters.append(limiter)
        if self._backend is None:
            self._watched.append(limiter)

    def block(self, label: str) -> Block:
        """Open around a transaction of the service's own: time that would pass inside is an error.

        The run then ends with `SleepInTransactionError`. A context manager, or `open()` and `close()`.
        """
        return self._keeper.block(label)

    def at(self, host: str, offset: timedelta = timedelta(0), drift: float = 0.0) -> HostClock:
        """The clock of a host that is wrong.

        Args:
            host: Its name.
            offset: How far it is ahead just now; negative: behind.
            drift: How many seconds it gains in each true second from now on, above -1.
        """
        return HostClock(self, host, offset=offset, drift=drift)

    # Runs

    @property
    def is_running(self) -> bool:
        """Whether a run is using it."""
        return self._backend is not None

    @property
    def gate(self) -> StatementGate | None:
        """What lets statements through one at a time, in this run or the last."""
        return self._gate

    @property
    def own_gate(self) -> StatementGate | None:
        """The gate of all runs that have no seed; for the kit."""
        return self._own_gate

    @property
    def keeper(self) -> Timekeeper:
        """The state of this run, or of the last; for the kit."""
        return self._keeper

    @contextmanager
    def driven(
        self, backend: VirtualBackend, gate: StatementGate | None = None
    ) -> Iterator[Timekeeper]:
        """Begin at `start` again, for one run; for the kit.

        Raises:
            ClosedError: A run is using this clock already.
            DeclarationError: freezegun or time-machine has taken over the time.
        """
        check_not_frozen()
        if self._backend is not None:
            raise ClosedError(
                "this VirtualClock is in use by a run that has not ended: nested runs and runs in other "
                "threads need a clock of their own"
            )
        self._gate = gate or self._own_gate
        self._keeper = keeper = Timekeeper(stall=self._stall, frozen=self._frozen)
        keeper.limiters.extend(self._watched)
        if self._gate is not None:
            self._gate.begin(keeper)
        self._backend = backend
        try:
            yield keeper
        finally:
            self._backend = None
            for end in keeper.endings:
                end()

    def _driver(self) -> VirtualBackend:
        if self._backend is None:
            raise ClosedError(
                "no run drives this VirtualClock: call `inboxkit_testing.run(main, clock=clock)`, or use the "
                "fixture `virtual_clock` in an async test"
            )
        return self._backend

    def _elapsed(self) -> timedelta:
        return timedelta(microseconds=round(self._keeper.now_seconds * 1e6))

    def __repr__(self) -> str:
        mode = "frozen" if self.is_frozen else "autojump"
        return f"<VirtualClock {self.now().isoformat()} {mode}>"
