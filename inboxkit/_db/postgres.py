"""PostgreSQL behind the driver port: transactions and scripts, statement by statement, over what a
driver's library can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio

from inboxkit._db.placeholders import check_arguments, parse
from inboxkit._db.postgres_errors import READ_ONLY, lost
from inboxkit._db.scripts import step_through
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock, Notification
from inboxkit.errors import DatabaseError, DialectError

__all__ = ["GRACE", "PostgresConnection", "rows_written"]

T = TypeVar("T")

GRACE: Final = 5.0
"""Seconds that the server has beyond the statement timeout, which it watches itself, to say so."""
_ROLLBACK_BOUND: Final = 5.0
"""Seconds; a session that does not come back by then is dropped, which rolls back too."""

# Scripts say their isolation: a server's default of SERIALIZABLE would fail competing claims.
_BEGIN: Final = {
    "read": "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
}
# A transaction that keeps a row idles for as long as its handler takes.
_BEGIN_HOLD: Final = f"{_BEGIN['write']}; SET LOCAL idle_in_transaction_session_timeout = 0"
_NO_TRANSACTION_TIMEOUT: Final = "; SET LOCAL transaction_timeout = 0"
_HAS_TRANSACTION_TIMEOUT: Final = 17
_NO_TRANSACTIONS: Final = "statement pooling"
"""In what PgBouncer answers to BEGIN then."""
_ENDING: Final = frozenset({"COMMIT", "END", "PREPARE"})


class PostgresConnection(ABC):
    """A `DriverConnection` of PostgreSQL.

    Args:
        clock: What every exchange with the server is bracketed by.
        timeout: The server's statement timeout, in seconds.
        is_pooled: Whether a pooler stands between, which may give each transaction to another session
            of the server: nothing is prepared there, and nothing set for longer than a transaction.
    """

    def __init__(self, clock: Clock, timeout: float, *, is_pooled: bool) -> None:
        self._clock = clock
        self._timeout_here = f"; SET LOCAL statement_timeout = {_milliseconds(timeout)}"
        self._is_pooled = is_pooled
        self._guard = timeout + GRACE
        self._heard: list[Notification] = []
        self._begun = ""
        """What the transaction of a script or a hold began with, until its first statement."""
        self.is_misplaced = False
        """Whether the server has refused to write, since it is read-only."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True once the session has ended."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """True between BEGIN and its end, in an aborted transaction too."""

    @property
    @abstractmethod
    def backend_pid(self) -> int:
        """The server's process, as it said at connecting; a pooler says something else."""

    @property
    @abstractmethod
    def server_major(self) -> int:
        """The server's version before the dot."""

    @abstractmethod
    async def _send(self, statement: Statement) -> Answer:
        """Run a statement.

        When this raises, the statement has ended on the server, or the connection is closed: after
        a cancellation, and after `_guard` seconds without an answer too.
        """

    @abstractmethod
    async def _finish(self, text: str, *, seconds: float) -> str:
        """Run COMMIT or ROLLBACK whatever cancels the task, and return its command tag."""

    @abstractmethod
    def _translated(self, error: Exception, name: str, *, may_commit: bool) -> DatabaseError | None:
        """The error for a driver's; None where it is not the driver's."""

    @abstractmethod
    def _is_outdated(self, error: BaseException | None) -> bool:
        """Whether a driver's error says that the plan of a prepared statement is out of date."""

    @abstractmethod
    async def _subscribe(self, channel: str) -> None:
        """LISTEN, and note in `_heard` what comes."""

    @abstractmethod
    async def _hear(self) -> None:
        """Wait until something was noted in `_heard`, or the session has ended."""

    @abstractmethod
    async def close(self) -> None:
        """End the session politely, within a bound."""

    @abstractmethod
    def terminate(self) -> None:
        """Drop the session at once."""

    async def execute(self, statement: Statement) -> Answer:
        parsed = parse(statement.text, "postgres")
        check_arguments(parsed, statement.parameters, statement=statement.name)
        is_inside = self.in_transaction
        begun, self._begun = self._begun, ""
        try:
            return await self._execute(
                statement, may_commit=not is_inside or parsed.keyword in _ENDING
            )
        except DatabaseError as error:
            if not begun or not is_inside or not self._is_outdated(error.__cause__):
                raise
        # A table was altered since the statement was prepared. In a transaction that aborts it, but
        # nothing was done in this one yet.
        await self.rollback()
        await self._begin("begin", begun)
        return await self._execute(statement, may_commit=False)

    async def run(self, script: Script[T]) -> T:
        if script.transaction == "none":
            return await step_through(script, self._clock, self.execute)
        text = _BEGIN[script.transaction]
        await self._begin(script.name, text)
        self._begun = text
        try:
            result = await step_through(script, self._clock, self.execute)
            await self._commit(script.name, writes=script.transaction == "write")
        except BaseException:
            await self.rollback()
            raise
        return result

    async def begin(self, *, hold: bool = False) -> None:
        text = "BEGIN"
        if hold:
            has_timeout = self.server_major >= _HAS_TRANSACTION_TIMEOUT
            text = _BEGIN_HOLD + (_NO_TRANSACTION_TIMEOUT if has_timeout else "")
        await self._begin("begin", text)
        self._begun = text if hold else ""

    async def commit(self) -> None:
        await self._commit("commit", writes=True)

    async def rollback(self) -> None:
        if self.is_closed or not self.in_transaction:
            return
        try:
            with self._exchange("rollback", may_commit=False):
                await self._finish("ROLLBACK", seconds=_ROLLBACK_BOUND)
        except DatabaseError:
            self.terminate()

    async def listen(self, channel: str) -> None:
        self._check_open("listen")
        await anyio.lowlevel.checkpoint_if_cancelled()
        with self._exchange("listen", may_commit=False):
            await self._subscribe(channel)

    async def notified(self) -> None:
        # Outside the clock's bracket: nothing is in flight that anybody asked for.
        while not self._heard:
            self._check_open("listen")
            try:
                await self._hear()
            except Exception as error:
                translated = self._translated(error, "listen", may_commit=False)
                if translated is None:
                    raise
                raise translated from error

    def notifications(self) -> list[Notification]:
        heard, self._heard = self._heard, []
        return heard

    async def _begin(self, name: str, text: str) -> None:
        if self._is_pooled:
            text += self._timeout_here
        try:
            await self._execute(Statement(name, text, returns_rows=False), may_commit=False)
        except BaseException as error:
            await self.rollback()  # begun, and cancelled before its answer was read
            if _NO_TRANSACTIONS in str(error):
                raise DialectError(
                    "a pooler that pools statements stands between this service and PostgreSQL (pool_mode "
                    "= statement), so that there are no transactions; let it pool transactions or sessions, "
                    "or connect to the server itself"
                ) from error
            raise

    async def _commit(self, name: str, *, writes: bool) -> None:
        self._check_open(name)
        if not self.in_transaction:
            raise DatabaseError(f"{name}: no transaction is open", statement=name)
        with self._exchange(name, may_commit=writes):
            tag = await self._finish("COMMIT", seconds=self._guard)
        if tag != "COMMIT":
            # The server answers COMMIT of an aborted transaction with ROLLBACK, not with an error.
            raise DatabaseError(
                f"{name}: the transaction was already aborted by an earlier error; nothing was "
                "committed",
                statement=name,
            )

    async def _execute(self, statement: Statement, *, may_commit: bool) -> Answer:
        self._check_open(statement.name)
        await anyio.lowlevel.checkpoint_if_cancelled()
        with self._exchange(statement.name, may_commit=may_commit):
            return await self._send(statement)

    @contextmanager
    def _exchange(self, name: str, *, may_commit: bool) -> Iterator[None]:
        with self._clock.external(name):
            try:
                yield
            except Exception as error:
                if getattr(error, "sqlstate", None) == READ_ONLY:
                    self.is_misplaced = True
                translated = self._translated(error, name, may_commit=may_commit)
                if translated is None:
                    raise
                raise translated from error

    def _check_open(self, name: str) -> None:
        if self.is_closed:
            raise lost(name, "it was closed before", may_have_happened=False)


def session_timeouts(timeout: float, *, pid: int | None = None) -> str:
    """What a session is told first: how long a statement may take, and that it may be idle.

    One that holds an advisory lock is idle for as long as the handler works.

    Args:
        timeout: Seconds that a statement may take.
        pid: The server's process, as it was told at connecting. Where another one answers, a pooler
            stands between: nothing is set then, since it would last in a session that others use,
            and no row answers. None: nobody asks.
    """
    whose = "" if pid is None else f" AND pg_catalog.pg_backend_pid() = {pid}"
    return (
        f"SELECT set_config(name, CASE name WHEN 'statement_timeout' THEN '{_milliseconds(timeout)}' "
        "ELSE '0' END, false) FROM pg_catalog.pg_settings WHERE name IN ('statement_timeout', "
        f"'idle_session_timeout'){whose}"
    )


def _milliseconds(timeout: float) -> int:
    return max(round(timeout * 1000), 1)  # 0 is for ever


def rows_written(tag: str) -> int:
    """The number in a command tag such as ``INSERT 0 3``; -1 where it counts no written rows."""
    word, _, rest = tag.partition(" ")
    number = rest.rpartition(" ")[2]
    return int(number) if word in {"INSERT", "UPDATE", "DELETE", "MERGE"} and number else -1
