"""SQLite in the event loop's own thread: for tests, where a hop to a thread is most of a statement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel

from inboxkit._db.sqlite import SqliteConnection, Worker
from inboxkit._db.sqlite_session import MEMORY, SqliteSession
from inboxkit._db.turnstile import Turnstile
from inboxkit._sql.statement import Reading
from inboxkit.abc import Clock, DialectName
from inboxkit.errors import DatabaseBusyError, DatabaseError

from .clock import VirtualClock
from .hosts import HostClock

__all__ = ["InLoopConnection", "InLoopDriver"]

T = TypeVar("T")

_NEVER_WAIT = 0.0
"""Seconds for another connection's lock: who holds it runs in this same thread, and could never end."""


class InLoopDriver:
    """A `Driver` whose statements run in the loop's thread, each followed by one checkpoint.

    On both backends. A script is one step. Writers wait for each other at the turnstile, which lets
    time pass; a lock of another process is an error at once.

    Args:
        path: The file, absolute, or ``:memory:``.
        clock: Where time comes from.
        timeout: Seconds that a writer waits for its turn.
        turnstile: Shared by all drivers of the same file; None: one of its own.
    """

    name = "inloop"
    dialect: DialectName = "sqlite"

    def __init__(
        self, path: str, *, clock: Clock, timeout: float, turnstile: Turnstile | None = None
    ) -> None:
        self._path = path
        self._clock = clock
        self._timeout = timeout
        self._turnstile = turnstile or Turnstile()

    @property
    def max_connections(self) -> int | None:
        return 1 if self._path == MEMORY else None

    async def connect(self) -> SqliteConnection:
        time = _Time(self._clock)
        session = SqliteSession(self._path, timeout=_NEVER_WAIT, read_clock=time.read)
        worker = _InLoop(session)
        with self._clock.external("connect"):
            try:
                await worker.open()
            except BaseException:
                worker.stop()
                raise
        return InLoopConnection(
            session,
            worker,
            time,
            clock=self._clock,
            timeout=self._timeout,
            turnstile=self._turnstile,
        )

    async def aclose(self) -> None:
        """Nothing is kept."""

    def adopt(self, connection: InLoopConnection) -> None:
        """Take over a connection of another driver of the same file, whose clock may be another."""
        connection.be_of(self._clock)


class _Time:
    """Where a session's times come from."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def read(self) -> Reading:
        """Now."""
        return Reading(self.clock.now(), self.clock.monotonic())


class InLoopConnection(SqliteConnection):
    """Without what a thread needs: nothing is in flight, and nothing can be stopped on its way."""

    def __init__(
        self,
        session: SqliteSession,
        worker: Worker,
        time: _Time,
        *,
        clock: Clock,
        timeout: float,
        turnstile: Turnstile,
    ) -> None:
        super().__init__(session, worker, clock=clock, timeout=timeout, turnstile=turnstile)
        self._time = time

    def be_of(self, clock: Clock) -> None:
        """From now on its times are those of this clock."""
        self._clock = self._time.clock = clock

    def hand_on(self) -> InLoopConnection | None:
        """Drop this connection; its session, with all undone that was not committed, is another's.

        Returns:
            The connection that has the session now; None: there is none that could be handed on.
        """
        if self._is_closed:
            return None
        try:
            self._session.rollback()
        except DatabaseError:
            self.terminate()
            return None
        self._is_closed = True
        self._leave_turn()
        return InLoopConnection(
            self._session,
            self._worker,
            self._time,
            clock=self._clock,
            timeout=self._timeout,
            turnstile=self._turnstile,
        )

    async def _hop(self, name: str, work: Callable[[], T], *, to_its_end: bool = False) -> T:
        if self._is_closed:
            raise DatabaseBusyError(
                f"{name}: the connection is closed; nothing happened", statement=name
            )
        if not to_its_end:
            await anyio.lowlevel.checkpoint_if_cancelled()
        # What has waited for its turn at a gate went when nobody else could run.
        has_yielded = self._is_gated and not self._session.in_transaction
        try:
            return work()
        finally:
            if not has_yielded:
                await _let_others_run()

    @property
    def _is_gated(self) -> bool:
        clock = self._clock
        time = clock.clock if isinstance(clock, HostClock) else clock
        return isinstance(time, VirtualClock) and time.gate is not None


async def _let_others_run() -> None:
    """A checkpoint that cancels nothing: a cancellation is delivered before, or by the next one.

    On asyncio a shielded checkpoint would cost twice as much, for the scope that it opens.
    """
    try:
        await anyio.lowlevel.checkpoint()
    except anyio.get_cancelled_exc_class():
        # A scope cancels again at the next checkpoint; asyncio's own cancellation comes only once.
        if anyio.current_effective_deadline() > -math.inf:
            raise


class _InLoop:
    """The place of a connection's thread."""

    def __init__(self, session: SqliteSession) -> None:
        self._session = session
        self._is_open = False

    async def open(self) -> None:
        """Open the session here."""
        self._session.open()
        self._is_open = True
        await anyio.lowlevel.checkpoint()

    async def call(self, work: Callable[[], None]) -> None:
        """Run it now. A cancellation is delivered before, or by the next checkpoint, never inside."""
        work()
        await _let_others_run()

    def stop(self) -> None:
        """Close the session now."""
        self._session.close()
        self._is_open = False

    async def ended(self) -> None:
        """It has ended when it was told to stop."""
        await anyio.lowlevel.checkpoint()

    @property
    def has_ended(self) -> bool:
        """Whether the session is closed."""
        return not self._is_open
