"""SQLite behind the driver port: a session in a thread, whichever library keeps the thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import anyio

from inboxkit._db.placeholders import parse
from inboxkit._db.shield import LAST_WORD, outlast
from inboxkit._db.sqlite_session import MEMORY, SqliteSession
from inboxkit._db.turnstile import Turnstile
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.abc import Clock, DialectName, ServerClock
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError

__all__ = ["SqliteConnection", "SqliteDriver", "Worker"]

T = TypeVar("T")


class Worker(Protocol):
    """A thread that runs one session's work, in order."""

    async def open(self) -> None:
        """Start the thread and open the session in it."""
        ...

    async def call(self, work: Callable[[], None], /) -> None:
        """Run `work` in the thread, and return when it has ended.

        Cancellation:
            Ends the waiting alone; the work goes on.
        """
        ...

    def stop(self) -> None:
        """After the work at hand, close the session and end the thread; do not wait for it."""
        ...

    async def ended(self) -> None:
        """Wait until a thread that was told to stop has ended."""
        ...

    @property
    def has_ended(self) -> bool:
        """True once the thread has ended, or never began."""
        ...


class _Job(Generic[T]):
    """A piece of work, and what became of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T
        self._error: BaseException | None = None
        self.is_done = False
        self._is_taken = False

    def take(self) -> Callable[[], None]:
        """What to give the thread: the work once, then work that ends when all before it has."""
        taken, self._is_taken = self._is_taken, True
        return _nothing if taken else self._run

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
            self._error = error
        self.is_done = True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result


class SqliteConnection:
    """A `DriverConnection` over a session in a thread; a script is one hop there and back."""

    def __init__(
        self,
        session: SqliteSession,
        worker: Worker,
        *,
        clock: Clock,
        timeout: float,
        turnstile: Turnstile,
    ) -> None:
        self._session = session
        self._worker = worker
        self._clock = clock
        self._timeout = timeout
        self._turnstile = turnstile
        self._has_turn = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def in_transaction(self) -> bool:
        return not self._is_closed and self._session.in_transaction

    async def execute(self, statement: Statement) -> Answer:
        if self.in_transaction or not parse(statement.text, "sqlite").writes:
            return await self._hop(statement.name, lambda: self._session.execute(statement))
        if not self._takes_turn():
            await self._wait_for_turn(statement.name)
        try:
            return await self._hop(statement.name, lambda: self._session.execute(statement))
        finally:
            self._leave_turn()

    async def run(self, script: Script[T]) -> T:
        if script.transaction == "read" or self._has_turn:
            return await self._hop(script.name, lambda: self._session.run(script))
        if not self._takes_turn():
            await self._wait_for_turn(script.name, is_urgent=script.is_urgent)
        try:
            return await self._hop(script.name, lambda: self._session.run(script))
        finally:
            self._leave_turn()

    async def begin(self, *, hold: bool = False) -> None:  # noqa: ARG002
        if not self._takes_turn():
            await self._wait_for_turn("begin")
        try:
            await self._hop("begin", lambda: self._session.begin("begin", write=True))
        except BaseException:
            if self.in_transaction:  # begun, and cancelled before its answer was read
                await self.rollback()
            self._leave_turn()
            raise

    async def commit(self) -> None:
        try:
            await self._hop("commit", lambda: self._session.commit("commit"), to_its_end=True)
        finally:
            self._leave_turn()

    async def rollback(self) -> None:
        try:
            if not self._is_closed:
                await self._hop("rollback", self._session.rollback, to_its_end=True)
        except DatabaseError:
            self.terminate()
        finally:
            self._leave_turn()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._worker.stop()
        with self._clock.external("close"):
            interruption = await outlast(
                self._worker.ended, lambda: self._worker.has_ended, seconds=LAST_WORD
            )
        self._leave_turn()
        if interruption is not None:
            raise interruption

    def terminate(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._session.interrupt()
            self._worker.stop()
        self._leave_turn()

    def _takes_turn(self) -> bool:
        """Whether nobody else has it; what is done in the turn begins with a checkpoint."""
        if self._turnstile.enter_nowait():
            self._has_turn = True
            return True
        return False

    async def _wait_for_turn(self, name: str, *, is_urgent: bool = False) -> None:
        # Outside the clock's bracket: who waits here has sent nothing, and time may pass.
        if not await self._turnstile.enter(timeout=self._timeout, is_urgent=is_urgent):
            raise DatabaseBusyError(
                f"{name}: for {self._timeout:g} s another transaction of this process kept its turn "
                "to write; nothing happened. If this same task holds that transaction, use the "
                "transaction's own methods (tx.execute, publish(within=tx)) inside its block",
                statement=name,
            )
        self._has_turn = True

    def _leave_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turnstile.leave()

    async def _hop(self, name: str, work: Callable[[], T], *, to_its_end: bool = False) -> T:
        """Run `work` in the thread; it has ended when this returns or raises.

        Args:
            name: The statement's name.
            work: What to run.
            to_its_end: Do not stop it for a cancellation (COMMIT, ROLLBACK).
        """
        if self._is_closed:
            raise DatabaseBusyError(
                f"{name}: the connection is closed; nothing happened", statement=name
            )
        if not to_its_end:
            await anyio.lowlevel.checkpoint_if_cancelled()
        self._session.go_on()
        job = _Job(work)
        with self._clock.external(name):
            if to_its_end:
                interruption = await self._outlast(job, self._timeout + LAST_WORD)
            else:
                interruption = await self._until_stopped(job)
        if not job.is_done:
            self.terminate()
        if interruption is not None:
            raise interruption
        if not job.is_done:
            raise OutcomeUnknownError(
                f"{name}: SQLite neither finished nor stopped; the connection was closed",
                statement=name,
            )
        return job.result()

    async def _until_stopped(self, job: _Job[T]) -> BaseException | None:
        """Wait for the end; a cancellation or the statement timeout interrupts the statement."""
        interruption: BaseException | None = None
        try:
            with anyio.move_on_after(self._timeout):
                await self._worker.call(job.take())
        except anyio.get_cancelled_exc_class() as error:
            interruption = error
        if not job.is_done:
            self._session.interrupt()
            later = await self._outlast(job, LAST_WORD)
            interruption = interruption or later
        return interruption

    async def _outlast(self, job: _Job[T], seconds: float) -> BaseException | None:
        return await outlast(
            lambda: self._worker.call(job.take()), lambda: job.is_done, seconds=seconds
        )


def _nothing() -> None:
    """Work that ends when all before it has ended."""


class SqliteDriver:
    """A `Driver` of SQLite.

    Args:
        name: The driver's name.
        path: The file, absolute, or ``:memory:``.
        worker: Makes the thread of one session.
        clock: Where time comes from.
        timeout: Seconds that a statement may take, and may wait for a lock.
        turnstile: Writers of this process pass it one at a time; share one among all drivers of
            the same file. None: one of its own.
    """

    dialect: DialectName = "sqlite"

    def __init__(
        self,
        name: str,
        path: str,
        *,
        worker: Callable[[SqliteSession], Worker],
        clock: Clock,
        timeout: float,
        turnstile: Turnstile | None = None,
    ) -> None:
        self.name = name
        self.turnstile = turnstile or Turnstile()
        self._path = path
        self._worker = worker
        self._clock = clock
        self._timeout = timeout
        self._workers: list[Worker] = []

    @property
    def max_connections(self) -> int | None:
        return 1 if self._path == MEMORY else None

    async def connect(self) -> SqliteConnection:
        session = SqliteSession(
            self._path,
            timeout=self._timeout,
            read_clock=self._read_clock,
            server_clock=self._clock if isinstance(self._clock, ServerClock) else None,
        )
        worker = self._worker(session)
        self._workers = [other for other in self._workers if not other.has_ended] + [worker]
        with self._clock.external("connect"):
            try:
                await worker.open()
            except BaseException:
                worker.stop()
                raise
        return SqliteConnection(
            session, worker, clock=self._clock, timeout=self._timeout, turnstile=self.turnstile
        )

    async def aclose(self) -> None:
        """Wait for the threads of terminated connections, within a bound."""
        with self._clock.external("close"), anyio.move_on_after(LAST_WORD, shield=True):
            for worker in self._workers:
                await worker.ended()

    def _read_clock(self) -> Reading:
        return Reading(self._clock.now(), self._clock.monotonic())
