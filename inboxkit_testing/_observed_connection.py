"""One session seen through `ObservedDriver`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from inboxkit._core.haste import hasty
from inboxkit._db.placeholders import parse
from inboxkit._db.scripts import step_through
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import DialectName, DriverConnection, Listening, Notification
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError

from ._admission import Admission
from ._scripts import CrashHere, RecordedScript
from .faults import Operation, broken_in_transaction
from .locks import lock_waits_of
from .mail import mail_of
from .recording import Kind, Recorded

if TYPE_CHECKING:
    from ._brackets import Block
    from .observed import ObservedDriver

__all__ = ["ObservedConnection"]

T = TypeVar("T")

_READ_COMMITTED: Final = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_BEGIN: Final = {
    ("postgres", "read"): ("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",),
    ("postgres", "write"): ("BEGIN ISOLATION LEVEL READ COMMITTED",),
    ("mysql", "read"): (_READ_COMMITTED, "START TRANSACTION READ ONLY"),
    ("mysql", "write"): (_READ_COMMITTED, "START TRANSACTION"),
}
"""How a script begins; the last statement is recorded."""
_COMMIT: Final = Statement("commit", "COMMIT", returns_rows=False)
_SIGN_OF_LIFE: Final = Statement("notifications", "SELECT 1")
_REMEMBERED: Final = frozenset({"ATTACH", "DETACH", "PRAGMA"})
"""What changes a session of SQLite."""
_ROLLBACK: Final = Statement("rollback", "ROLLBACK", returns_rows=False)
_ROLLBACK_BOUND: Final = 5.0
"""Seconds after which drivers drop a session whose ROLLBACK is not answered."""


class ObservedConnection:
    """A `DriverConnection` around another one.

    On a server a script goes statement by statement through `execute`, `commit` and `rollback`, so
    that each can be gated, held back and failed. On SQLite it stays one hop and one turn.
    """

    def __init__(
        self, driver: ObservedDriver, inner: DriverConnection, number: int, session: int | None
    ) -> None:
        self._driver = driver
        self._inner = inner
        self._recording = driver.recording
        self._faults = driver.faults
        self._admission = Admission(driver, number, self.terminate)
        self._is_server = driver.dialect != "sqlite"
        self._transaction = 0
        self._script: str | None = None
        self._held_script: str | None = None
        """The last script that ran in a transaction which the runtime keeps; its COMMIT ends it."""
        self._is_hold = False
        self._is_opening = False
        self._block: Block | None = None
        self._is_marked = False
        """Whether the session bears what cannot be undone for another instance."""
        self.has_waited: bool = False
        """Whether the statement in flight was seen to wait for a lock."""
        self.number: Final = number
        """From 1, in the order of connecting."""
        self.session: Final = session
        """The server's number of it; None: there is no server."""

    @property
    def backend_pid(self) -> int | None:
        """As the driver has it, for the library to tell a pooler by."""
        return getattr(self._inner, "backend_pid", None)

    @property
    def is_misplaced(self) -> bool:
        """Whether its server has become read-only."""
        return getattr(self._inner, "is_misplaced", False)

    @property
    def is_altered(self) -> bool:
        """Whether its settings were changed, so that nobody else may have it."""
        return getattr(self._inner, "is_altered", False)

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    @property
    def in_transaction(self) -> bool:
        return self._inner.in_transaction

    async def execute(self, statement: Statement) -> Answer:
        # SQLite has one writer: a whole transaction is one turn, which its BEGIN has waited for.
        asks = self._is_server or not self.in_transaction
        operation = await self._admitted(lambda: self._operation(statement), asks=asks)
        recorded = self._note(statement)
        self._is_marked = self._is_marked or _marks(statement, self._driver.dialect)
        return await self._sent(operation, recorded, lambda: self._inner.execute(statement))

    async def run(self, script: Script[T]) -> T:
        if not self._is_server and not self.in_transaction:
            return await self._run_in_one_go(script)
        self._script, self._is_opening = script.name, True
        try:
            return await self._run_step_by_step(script)
        finally:
            self._held_script = script.name if self._is_hold else None
            self._script, self._is_opening = None, False

    async def begin(self, *, hold: bool = False) -> None:
        begin = Statement("begin", "BEGIN", returns_rows=False)
        self._is_hold = hold
        await self._begin(begin, lambda: self._inner.begin(hold=hold))
        if hold:
            return  # the runtime's own, kept over a handler: time may pass in it
        label = f"the transaction of connection {self.number}"
        of = f" of {self._driver.instance!r}" if self._driver.instance else ""
        self._block = self._driver.time.block(label + of)
        self._block.open()

    async def commit(self) -> None:
        try:
            await self._end(_COMMIT, self._inner.commit)
        finally:
            if not self.in_transaction:
                self._close_block()
                self._held_script, self._is_hold = None, False

    async def rollback(self) -> None:
        if self._driver.link.is_cut:  # nobody would hear it: the transaction ends with its session
            self.terminate()
            return
        try:
            if self._driver.switch.is_thrown:
                await self._end(_ROLLBACK, self._inner.rollback)
                return
            # It must reach the database although the task is cancelled; the gate opens in any case.
            with hasty(anyio.move_on_after(_ROLLBACK_BOUND, shield=True)) as bound:
                await self._end(_ROLLBACK, self._inner.rollback)
            if (
                bound.cancelled_caught
            ):  # as the driver itself would: the session's end undoes it too
                self.terminate()
        finally:
            self._close_block()
            self._held_script, self._is_hold = None, False

    async def listen(self, channel: str) -> None:
        statement = Statement("listen", f"LISTEN {channel}", returns_rows=False)
        self._is_marked = True
        operation = await self._admitted(lambda: self._operation(statement))
        recorded = self._note(statement)
        await self._sent(operation, recorded, lambda: self._ear.listen(channel))

    async def notified(self) -> None:
        is_chosen = self._driver.time.gate is not None
        try:
            await mail_of(self._driver.time.keeper).wait(self._ear, is_chosen=is_chosen)
            await self._inner.execute(_SIGN_OF_LIFE)
        except DatabaseError as error:
            await self._stand_if_dead(error, "notifications")
            raise

    def notifications(self) -> list[Notification]:
        return self._ear.notifications()

    @property
    def _ear(self) -> Listening:
        assert isinstance(self._inner, Listening), "only PostgreSQL notifies"
        return self._inner

    async def close(self) -> None:
        self._close_block()
        if not (self._driver.switch.is_thrown or self._driver.link.is_cut):
            # When those go on who wait for its end is to be chosen too; the gate opens in any case.
            with anyio.CancelScope(shield=True):
                await self._driver.turn("close", self.number)
        self._driver.forget(self)
        kept = self._driver.kept
        if kept is not None and not self._is_marked:
            await kept.keep(self._inner, self.session)
        else:
            await self._inner.close()

    def terminate(self, *, forget: bool = True) -> None:
        if forget:
            self._driver.forget(self)
            if self.session is not None and not self._inner.is_closed:
                self._driver.drop(self.session)
        self._close_block()
        kept = self._driver.kept
        if kept is None or self._is_marked or not kept.hand_on(self._inner):
            self._inner.terminate()

    # Scripts

    async def _run_in_one_go(self, script: Script[T]) -> T:
        name = script.name
        number = self._recording.next_number
        if self._driver.is_troubled:
            operation = await self._admitted(lambda: _in_one_go(name, self._recording.next_number))
            number = operation.number
            if self._faults.has_any and self._faults.closes_connection_of(operation):
                await self._break()
        run = RecordedScript(
            script, recording=self._recording, faults=self._faults, connection=self.number
        )
        try:
            result = await self._inner.run(run.script)
        except BaseException as error:
            run.failed(error)
            if isinstance(error, CrashHere):
                self._driver.crash_nowait()
            await self._stand_if_dead(error, name)
            raise
        commit = run.committed()
        if self._driver.is_troubled:  # also by what came while it was in flight
            whole = _in_one_go(name, number)
            await self._after([whole] if commit is None else [whole, commit])
        return result

    async def _run_step_by_step(self, script: Script[T]) -> T:
        """As a server's connection runs it, from outside."""
        if script.transaction == "none":
            return await step_through(script, self._driver.clock, self.execute)
        *before, begin = (
            Statement("begin", text, returns_rows=False)
            for text in _BEGIN[self._driver.dialect, script.transaction]
        )

        async def send() -> None:
            for statement in (*before, begin):
                await self._inner.execute(statement)

        await self._begin(begin, send)
        try:
            result = await step_through(script, self._driver.clock, self.execute)
            await self._end(_COMMIT, self._inner.commit)
        except BaseException as error:
            if self.in_transaction and not self._driver.switch.is_thrown:
                await self.rollback()
            if script.transaction == "read" and isinstance(error, OutcomeUnknownError):
                raise DatabaseBusyError(str(error), statement=error.statement) from error
            raise
        return result

    # One exchange

    async def _begin(self, statement: Statement, send: Callable[[], Awaitable[object]]) -> None:
        operation = await self._admitted(lambda: self._operation(statement, "begin"))
        self._transaction = self._recording.new_transaction()
        recorded = self._note(statement, "begin")
        try:
            await self._sent(operation, recorded, send)
        except OutcomeUnknownError as error:  # a BEGIN changes nothing
            raise DatabaseBusyError(str(error), statement=error.statement) from error
        except BaseException:
            if self.in_transaction and not self._driver.switch.is_thrown:
                await self._inner.rollback()  # begun, and cancelled before its answer was read
            raise

    async def _end(self, statement: Statement, send: Callable[[], Awaitable[object]]) -> None:
        kind: Kind = "commit" if statement is _COMMIT else "rollback"
        script = self._script or self._held_script
        operation = await self._admitted(
            lambda: Operation(
                self._recording.next_number,
                kind,
                statement.name,
                statement.text,
                script,
                commits=kind == "commit",
                ends_script=kind == "commit" and script is not None,
            ),
            asks=self._is_server,
        )
        recorded = self._note(statement, kind)
        await self._sent(operation, recorded, send)

    async def _admitted(self, describe: Callable[[], Operation], *, asks: bool = True) -> Operation:
        """Wait until it may be sent; then send it before the next checkpoint."""
        operation = await self._admission.admitted(describe, block=self._block, asks=asks)
        self._is_opening = False
        return operation

    async def _sent(
        self, operation: Operation, recorded: Recorded, send: Callable[[], Awaitable[T]]
    ) -> T:
        try:
            answer = await self._in_flight(operation.name, lambda: self._exchange(operation, send))
        except BaseException as error:
            self._recording.failed(recorded, error)
            await self._stand_if_dead(error, operation.name)
            raise
        self._recording.answered(recorded, answer if isinstance(answer, Answer) else None)
        try:
            await self._after([operation])
        except DatabaseError as error:
            self._recording.failed(recorded, error)
            raise
        return answer

    async def _exchange(self, operation: Operation, send: Callable[[], Awaitable[T]]) -> T:
        """Send it; where a fault says so, have the server fail it or end the session first."""
        if not self._faults.has_any:
            return await send()
        for statement in self._faults.errors_of(operation):
            await self._inner.execute(statement)
        if self._faults.closes_connection_of(operation):
            await self._break()
        return await send()

    async def _break(self) -> None:
        """End the session behind the driver's back, as far as there is one."""
        if self.session is None:
            self._inner.terminate()
        else:
            await self._driver.end_session(self.session)

    async def _in_flight(self, name: str, send: Callable[[], Awaitable[T]]) -> T:
        url = self._driver.server_url
        if url is None:
            return await send()
        lock_waits = lock_waits_of(self._driver.time.keeper)
        lock_waits.sent(self, url, name)
        try:
            answer = await send()
        finally:
            lock_waits.answered(self)
        if self.has_waited:
            # The statement that gave the lock back was answered at the same time: whose task goes on
            # first is a choice like any other.
            self.has_waited = False
            await self._driver.turn(f"{name} resumed", self.number, self._block)
        return answer

    async def _after(self, operations: list[Operation]) -> None:
        """It was done: crash now, or lose the reply."""
        last = operations[-1]
        if self._is_server and last.commits:
            mail_of(self._driver.time.keeper).written()
        faults = self._faults
        if faults.has_any and any(faults.crashes_after(each) for each in operations):
            self._driver.crash_nowait()
        # Also one that was killed by another task while this was in flight.
        if self._driver.switch.is_thrown:
            await self._driver.check_alive(last.name)
        if not faults.has_any or not any(faults.loses_reply_of(each) for each in operations):
            return
        self.terminate()
        if not last.commits:
            raise broken_in_transaction(last)
        raise OutcomeUnknownError(
            f"{last.name}: the test lost the reply; it may have happened", statement=last.name
        )

    async def _stand_if_dead(self, error: BaseException, what: str) -> None:
        # A cancellation goes on as it is: natively it comes only once, and would be lost here.
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            await self._driver.check_alive(what)

    def _operation(self, statement: Statement, kind: Kind = "statement") -> Operation:
        commits = kind == "statement" and not self.in_transaction
        return Operation(
            self._recording.next_number,
            kind,
            statement.name,
            statement.text,
            self._script,
            commits=commits,
            opens_script=self._is_opening,
            # A claim that keeps its transaction has no COMMIT: it ends with the statement of its name.
            ends_script=(commits and self._script is not None)
            or (self._is_hold and kind == "statement" and statement.name == self._script),
        )

    def _note(self, statement: Statement, kind: Kind = "statement") -> Recorded:
        lone = kind == "statement" and not self.in_transaction
        return self._recording.sent(
            kind,
            statement,
            script=self._script,
            connection=self.number,
            transaction=self._recording.new_transaction() if lone else self._transaction,
        )

    def _close_block(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.close()


def _in_one_go(name: str, number: int) -> Operation:
    """A script that is one operation."""
    return Operation(
        number, "script", name, "", name, commits=True, opens_script=True, ends_script=True
    )


def _marks(statement: Statement, dialect: DialectName) -> bool:
    """Whether a session remembers it beyond what is undone before another instance gets the session."""
    keyword = parse(statement.text, dialect).keyword
    if dialect != "sqlite":
        return keyword == "PREPARE"
    return keyword in _REMEMBERED or (keyword == "CREATE" and "TEMP" in statement.text.upper())
