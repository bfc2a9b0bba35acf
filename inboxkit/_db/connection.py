"""`Connection` and `Transaction`: what a user does on one session."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio

from inboxkit._core.haste import hasty
from inboxkit._db.blocks import Block
from inboxkit._db.record import Record, records
from inboxkit._db.scripts import step_through
from inboxkit._db.values import encode_parameters
from inboxkit._sql.postgres.notify import notify
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock, DriverConnection
from inboxkit.errors import ClosedError, DatabaseError

if TYPE_CHECKING:
    from inboxkit.database import Database

__all__ = ["AfterCommit", "Connection", "Transaction", "connection_on", "transaction_on"]

T = TypeVar("T")

AfterCommit: TypeAlias = Callable[[], object] | Callable[[], Awaitable[object]]

_log = logging.getLogger("inboxkit")

_ROLLBACK_BOUND = 5.0
"""Seconds for going back to a savepoint although the task is cancelled."""


class Connection:
    """One session of a database, for one task at a time.

    PostgreSQL's two drivers differ on arguments: asyncpg refuses an int where the statement needs a
    text, psycopg sends its digits; a cast (``$1::text``) serves both. Without arguments both run
    several statements separated by ``;`` at once; other databases and statements with arguments take
    one.
    """

    _noun = "connection"

    def __init__(self, database: Database, driver_connection: DriverConnection) -> None:
        self._database = database
        self._driver = driver_connection
        self._use = Use()
        self._is_over = False

    @property
    def database(self) -> Database:
        """The database that lent it."""
        return self._database

    @property
    def clock(self) -> Clock:
        """The database's clock."""
        return self._database.clock

    async def execute(self, sql: str, /, *parameters: Any) -> int:
        """Run one statement.

        Returns:
            How many rows it wrote, or -1 where the database does not say.

        Raises:
            EncodeError: An argument cannot be sent; nothing was.
            ConstraintError, DatabaseBusyError, DatabaseError: Nothing happened.
            OutcomeUnknownError: The connection broke; outside a transaction it may have happened.

        Cancellation:
            Stops the statement, on the server too; then the connection can be used again, or is
            closed where that is not certain within a second.
        """
        answer = await self._send("execute", sql, parameters, returns_rows=False)
        return answer.rowcount

    async def fetch(self, sql: str, /, *parameters: Any) -> list[Record]:
        """Run one statement and return its rows; raises and is cancelled like `execute`."""
        return records(await self._send("fetch", sql, parameters))

    async def fetch_one(self, sql: str, /, *parameters: Any) -> Record | None:
        """The first row of a statement, or None where it has none."""
        rows = await self.fetch(sql, *parameters)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, /, *parameters: Any) -> Any:
        """The first value of a statement's first row, or None where it has none."""
        answer = await self._send("fetch", sql, parameters)
        return answer.rows[0][0] if answer.rows else None

    async def run(self, script: Script[T]) -> T:
        """Run a script of statements: in its own transaction, or in the one that is open here."""
        with self._used(script.name):
            if not self._driver.in_transaction:
                return await self._driver.run(script)
            return await step_through(script, self.clock, self._driver.execute)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Run a block in a transaction, like `Database.transaction`, on this connection."""
        return Block(transaction_on(nullcontext(self)), "transaction")

    async def _send(
        self, name: str, sql: str, parameters: tuple[Any, ...], *, returns_rows: bool = True
    ) -> Answer:
        encoded = encode_parameters(self._database.dialect, parameters)
        with self._used(name):
            return await self._driver.execute(Statement(name, sql, encoded, returns_rows))

    @contextmanager
    def _used(self, name: str) -> Iterator[None]:
        if self._is_over:
            raise ClosedError(
                f"{name}: this {self._noun} is over: its `async with` block has "
                "ended; nothing was sent"
            )
        with self._use.by(name):
            yield


class Transaction(Connection):
    """A connection inside a transaction, for the length of its block."""

    _noun = "transaction"

    def __init__(
        self, database: Database, driver_connection: DriverConnection, use: Use, depth: int = 0
    ) -> None:
        super().__init__(database, driver_connection)
        self._use = use
        self._depth = depth
        self._after_commit: list[AfterCommit] = []
        self._notices: dict[tuple[str, str], None] = {}
        self._is_committed = False

    def after_commit(self, function: AfterCommit, /) -> None:
        """Call a function, sync or async, once this transaction is committed for good.

        In order, after the outermost transaction's COMMIT, when its connection is free again; not at
        all if it, or the nested transaction that this one is, rolls back. An error in one is logged
        and does not keep the others from being called.
        """
        if self._is_over:
            raise ClosedError("after_commit: this transaction is over")
        self._after_commit.append(function)

    def notify_at_commit(self, told: Iterable[tuple[str, str]], /) -> None:
        """Notify these PostgreSQL channels, with their payloads, by this transaction's commit.

        The same pair is sent once, and none of a transaction that rolls back.
        """
        self._notices.update(dict.fromkeys(told))

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Run a block in a nested transaction: a savepoint, undone alone when the block raises."""
        return Block(self._nested(), "transaction")

    @asynccontextmanager
    async def _nested(self) -> AsyncIterator[Transaction]:
        savepoint = f"inboxkit_{self._depth + 1}"
        await self._send("savepoint", f"SAVEPOINT {savepoint}", (), returns_rows=False)
        nested = self._make_nested()
        try:
            yield nested
            nested._is_over = True
            await self._keep(savepoint)
        except BaseException:
            nested._is_over = True
            await self._go_back_to(savepoint)
            raise
        self._after_commit += nested._after_commit
        self._notices.update(nested._notices)

    def _make_nested(self) -> Transaction:
        return Transaction(self._database, self._driver, self._use, self._depth + 1)

    async def _keep(self, savepoint: str) -> None:
        """What was done since stands, as far as this nested transaction is concerned."""
        await self._send("release", f"RELEASE SAVEPOINT {savepoint}", (), returns_rows=False)

    async def _go_back_to(self, savepoint: str) -> None:
        """Undo what was done since; where that fails, the outer block cannot commit either."""
        if self._is_over:
            return  # with the whole transaction, and somebody else may have the connection
        with hasty(anyio.move_on_after(_ROLLBACK_BOUND, shield=True)) as scope:
            try:
                for text in ("ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"):
                    await self._driver.execute(
                        Statement("rollback", f"{text} {savepoint}", (), returns_rows=False)
                    )
            except DatabaseError as error:
                # The whole transaction is gone, or the connection is; the error that is on its way
                # out says why.
                self._note_gone(error)
                _log.debug("could not go back to savepoint %s", savepoint, exc_info=True)
        if scope.cancelled_caught:
            self._driver.terminate()

    def _note_gone(self, error: DatabaseError) -> None:
        """A nested transaction could not be undone alone."""

    async def _send_notices(self) -> None:
        """Under a savepoint: what is only a hint must not cost the transaction."""
        if not self._notices:
            return
        savepoint = "inboxkit_notify"
        begin, end = f"SAVEPOINT {savepoint}", f"RELEASE SAVEPOINT {savepoint}"
        try:
            await self._driver.execute(Statement("notify", begin, returns_rows=False))
            try:
                await self._driver.execute(notify(self._notices))
            except DatabaseError as error:
                _log.warning("other processes are not notified: %s", error)
                await self._go_back_to(savepoint)
            else:
                await self._driver.execute(Statement("notify", end, returns_rows=False))
        except DatabaseError:
            # An error of the caller's has aborted the transaction already; its COMMIT says so.
            _log.debug("no notification is sent", exc_info=True)

    async def _run_after_commit(self) -> None:
        if not self._is_committed:
            return
        functions, self._after_commit = self._after_commit, []
        cancellation: BaseException | None = None
        for function in functions:
            try:
                returned = function()
                if inspect.isawaitable(returned):
                    await returned
            except anyio.get_cancelled_exc_class() as error:
                cancellation = cancellation or error
            except Exception:  # noqa: BLE001 - the user's; it is logged, and the others go on
                _log.exception("a function given to after_commit raised; the commit stands")
        if cancellation is not None:
            raise cancellation


@asynccontextmanager
async def connection_on(
    database: Database, lending: AbstractAsyncContextManager[DriverConnection]
) -> AsyncIterator[Connection]:
    """A connection for a block, over what is lent for as long."""
    async with lending as driver_connection:
        connection = Connection(database, driver_connection)
        try:
            yield connection
        finally:
            connection._is_over = True


@asynccontextmanager
async def transaction_on(
    lending: AbstractAsyncContextManager[Connection], *, is_begun: bool = False
) -> AsyncIterator[Transaction]:
    """A transaction for a block; what runs after its commit runs when the connection is back.

    Args:
        lending: Lends the connection.
        is_begun: It is inside the transaction already.
    """
    transaction: Transaction | None = None
    try:
        async with lending as connection:
            if not is_begun:
                await _begin(connection)
            async with _ended(connection) as transaction:
                yield transaction
    finally:
        if transaction is not None:
            await transaction._run_after_commit()


async def _begin(connection: Connection) -> None:
    with connection._used("begin"):
        if connection._driver.in_transaction:
            raise DatabaseError(
                "begin: a transaction is open on this connection already; tx.transaction() nests one"
            )
        await connection._driver.begin()


@asynccontextmanager
async def _ended(connection: Connection) -> AsyncIterator[Transaction]:
    """The transaction that has begun: committed at the end, or rolled back."""
    driver = connection._driver
    transaction = Transaction(connection._database, driver, connection._use)
    try:
        yield transaction
        await transaction._send_notices()
    except BaseException:
        transaction._is_over = True
        await driver.rollback()
        raise
    transaction._is_over = True
    try:
        await driver.commit()
    except anyio.get_cancelled_exc_class():
        # Natively cancelled while it was finished: it was, if no transaction is open any more.
        transaction._is_committed = not (driver.is_closed or driver.in_transaction)
        raise
    except BaseException:
        await driver.rollback()
        raise
    transaction._is_committed = True


class Use:
    """Notices two tasks on one session, which would mix up their answers."""

    def __init__(self) -> None:
        self._by: str | None = None

    @contextmanager
    def by(self, name: str) -> Iterator[None]:
        if self._by is not None:
            raise DatabaseError(
                f"{name}: the connection is in use by another task ({self._by}); a connection or "
                "transaction serves one task at a time: give each its own, or take turns",
                statement=name,
            )
        self._by = name
        try:
            yield
        finally:
            self._by = None
