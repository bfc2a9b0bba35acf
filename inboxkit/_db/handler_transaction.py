"""`delivery.tx`: a transaction that begins at its first statement and commits with the settlement."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from inboxkit._db.connection import Connection, Transaction, Use
from inboxkit._db.placeholders import parse
from inboxkit._sql.statement import Answer, Script
from inboxkit.abc import DriverConnection
from inboxkit.errors import ClosedError, DatabaseError, EncodeError, TransactionHeldError

if TYPE_CHECKING:
    from inboxkit.database import Database

__all__ = ["HandlerTransaction"]

T = TypeVar("T")


class HandlerTransaction(Transaction):
    """A transaction for the length of a delivery; made by the runtime, which ends it.

    A statement that failed, or was cancelled, and whose error the handler did not let out keeps it from
    being committed, on every database alike; unless it was inside a nested `transaction()` that was
    rolled back.
    """

    def __init__(
        self,
        database: Database,
        open_: Callable[[], Awaitable[DriverConnection]],
        *,
        has_returned: Callable[[], bool] = lambda: False,
        within: HandlerTransaction | None = None,
    ) -> None:
        """Make one.

        Args:
            database: The service's.
            open_: Begins it; called at the first statement.
            has_returned: Whether the handler has: from then on no other task may use it.
            within: The transaction that this one is nested in.
        """
        use = within._use if within is not None else Use()
        depth = within._depth + 1 if within is not None else 0
        # Nothing reads the connection before `_begin` has put it here.
        super().__init__(database, None, use, depth)  # type: ignore[arg-type]
        self._course: _Course = (
            within._course if within is not None else _Course(open_, has_returned)
        )
        if self._course.connection is not None:
            self._driver = self._course.connection

    # For the runtime.

    @property
    def wants_commit(self) -> bool:
        """Whether something waits for its commit, although it may not have begun."""
        return bool(self._after_commit)

    @property
    def failure(self) -> DatabaseError | None:
        """What keeps it from being committed: a failure that the handler did not let out."""
        return self._course.swallowed(0)

    @property
    def idle(self) -> anyio.Event:
        """Set once no statement of it is in flight; no new one begins after `close` or `cut`."""
        return self._course.idle

    def cut(self, error: Exception) -> None:
        """End it while its handler runs: every further statement raises this."""
        self._course.end = error

    def close(self) -> TransactionHeldError | None:
        """The handler has returned. An error where it, or another task, has not let go of it."""
        course = self._course
        held = course.held
        if held is None and len(course.levels) > 1:
            held = _held("a nested transaction() of it is still open")
        if held is None and not course.idle.is_set():
            held = _held("another task still runs a statement in it")
        course.end = course.end or _held("its handler has returned")
        self._is_over = True
        return held

    async def prepare(self) -> None:
        """Send what is to be told by its commit; the last thing before the settlement."""
        if self._course.connection is not None:
            self._driver = self._course.connection
            await self._send_notices()

    async def committed(self) -> None:
        """Call what waits for the commit."""
        self._is_committed = True
        await self._run_after_commit()

    # As a connection.

    async def run(self, script: Script[T]) -> T:
        """Run a script of statements in it."""
        with self._noted(script.name):
            await self._begin(script.name)
            return await super().run(script)

    async def _send(
        self, name: str, sql: str, parameters: tuple[Any, ...], *, returns_rows: bool = True
    ) -> Answer:
        with self._noted(name):
            self._refuse_ends(name, sql)
            await self._begin(name)
            return await super()._send(name, sql, parameters, returns_rows=returns_rows)

    def _refuse_ends(self, name: str, sql: str) -> None:
        """What has been written would be committed without the settlement, or the row's lock let go."""
        keyword = parse(sql, self.database.dialect).ends_transaction
        if keyword:
            raise DatabaseError(
                f"{name}: {keyword} would end delivery.tx, which commits together with the delivery's "
                "ack and is rolled back by any other outcome; nothing was sent. Return an outcome, undo "
                "a part by `async with delivery.tx.transaction()`, or write what is to last whatever "
                "comes of the delivery in delivery.database.transaction()",
                statement=name,
            )

    def _make_nested(self) -> Transaction:
        course = self._course
        return HandlerTransaction(self.database, course.open, within=self)

    @asynccontextmanager
    async def _nested(self) -> AsyncIterator[Transaction]:
        levels = self._course.levels
        async with super()._nested() as nested:
            levels.append(None)
            try:
                yield nested
            except BaseException:
                levels.pop()
                raise
            failure = self._course.swallowed(-1)
            levels.pop()
            if failure is not None:
                raise failure

    async def _keep(self, savepoint: str) -> None:
        # Not noted: where this fails, the savepoint is gone back to, and that is what counts.
        with self._course.in_flight():
            await self._begin("release")
            text = f"RELEASE SAVEPOINT {savepoint}"
            await Connection._send(self, "release", text, (), returns_rows=False)

    async def _go_back_to(self, savepoint: str) -> None:
        if self._course.end is not None:
            return  # with the whole transaction, and somebody else may have the connection
        with self._course.in_flight():
            await super()._go_back_to(savepoint)

    def _note_gone(self, error: DatabaseError) -> None:
        self._course.levels[0] = "rollback", error

    async def _begin(self, name: str) -> None:
        course = self._course
        course.check(name)
        if course.connection is None:
            with self._use.by("begin"):
                course.connection = await course.open()
            course.check(name)
        elif not (course.connection.in_transaction or course.connection.is_closed):
            raise DatabaseError(
                f"{name}: a statement of the handler has ended its transaction (a procedure that commits, "
                "or on MariaDB and MySQL one that changes a table's definition); nothing was sent, since it "
                "would be committed by itself",
                statement=name,
            )
        self._driver = course.connection

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        with self._course.in_flight():
            try:
                yield
            except (EncodeError, ClosedError, TransactionHeldError):
                raise  # nothing was sent
            except BaseException as error:
                self._course.note(name, error)
                raise


class _Course:
    """What a transaction and those nested in it have in common."""

    def __init__(
        self, open_: Callable[[], Awaitable[DriverConnection]], has_returned: Callable[[], bool]
    ) -> None:
        self.open = open_
        self.connection: DriverConnection | None = None
        self.end: Exception | None = None
        self.held: TransactionHeldError | None = None
        self.levels: list[tuple[str, BaseException] | None] = [None]
        """Of the transaction and each nested one that is open: the first statement that failed."""
        self.idle = anyio.Event()
        self.idle.set()
        self._has_returned = has_returned
        self._task = anyio.get_current_task().id
        self._in_flight = 0

    def check(self, name: str) -> None:
        """Raise where no statement may be sent any more."""
        if self.end is not None:
            if isinstance(self.end, TransactionHeldError):
                raise _held(f"{name}: its handler has returned; nothing was sent")
            raise self.end
        if self._has_returned() and anyio.get_current_task().id != self._task:
            self.held = _held(
                f"another task wanted to use it ({name}), after its handler had returned"
            )
            raise self.held

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """While a statement is on its way."""
        if not self._in_flight:
            self.idle = anyio.Event()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self.idle.set()

    def note(self, name: str, error: BaseException) -> None:
        """It failed."""
        if self.levels[-1] is None:
            self.levels[-1] = name, error

    def swallowed(self, level: int) -> DatabaseError | None:
        """The error for a failure that was not let out."""
        noted = self.levels[level]
        if noted is None:
            return None
        name, cause = noted
        what = f"failed ({cause})" if isinstance(cause, Exception) else "was cancelled"
        error = DatabaseError(
            f"{name}: a statement in delivery.tx {what}, and the handler went on; nothing of its "
            "transaction was committed. Let the error out, or run what may fail inside "
            "`async with delivery.tx.transaction()`, which undoes it alone",
            statement=name,
        )
        error.__cause__ = cause if isinstance(cause, Exception) else None
        return error


def _held(why: str) -> TransactionHeldError:
    return TransactionHeldError(
        f"delivery.tx is the handler's for as long as it runs: {why}; give tasks that outlast the "
        "handler a transaction of their own (delivery.database.transaction())"
    )
