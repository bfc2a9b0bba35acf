"""MariaDB and MySQL behind the driver port: transactions and scripts, statement by statement, over what
a driver's library can do."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import anyio

from inboxkit._db.mysql_errors import NoAnswerError, is_lost, judged, lost, number_of
from inboxkit._db.mysql_values import ValueRefusedError, compose
from inboxkit._db.placeholders import check_arguments, parse
from inboxkit._db.scripts import step_through
from inboxkit._db.shield import LAST_WORD, outlast
from inboxkit._db.versions import check_mysql
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock
from inboxkit.errors import DatabaseError

__all__ = ["Call", "MysqlConnection", "Reply", "guard_of", "session_setup"]

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds that the server has beyond the statement timeout, which it watches itself, to say so."""
_ROLLBACK_BOUND: Final = 5.0
"""Seconds; a session that does not come back by then is dropped, which rolls back too."""

IN_TRANSACTION: Final = 1
MORE_RESULTS: Final = 8
NO_BACKSLASHES: Final = 512
"""Bits of the status that comes with each answer."""

_READ_COMMITTED: Final = b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
# Scripts say their isolation: under REPEATABLE READ, the usual default, a locking scan also locks the
# gaps between rows, and so every insert.
_BEGIN: Final = {
    "read": (_READ_COMMITTED, b"START TRANSACTION READ ONLY"),
    "write": (_READ_COMMITTED, b"START TRANSACTION"),
}
_COMMITTING: Final = frozenset(
    {
        "ALTER",
        "ANALYZE",
        "CREATE",
        "DROP",
        "GRANT",
        "LOCK",
        "OPTIMIZE",
        "RENAME",
        "REPAIR",
        "REVOKE",
    }
    | {"TRUNCATE"}
)
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered, its values decoded."""

    columns: tuple[str, ...] | None
    """None: no rows, but a count of them."""
    rows: Sequence[tuple[Any, ...]]
    affected: int


class Call(Protocol):
    """Something that a driver's library does, in a task or a thread of its own."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended: with a result, or with an error."""
        ...

    async def wait(self) -> None:
        """Wait for its end; a cancellation ends the waiting alone."""
        ...

    def result(self) -> Any:
        """What it returned; raises its error."""
        ...

    async def abandon(self) -> None:
        """See that it ends soon, after what it waits for was cut off."""
        ...


class MysqlConnection(ABC):
    """A `DriverConnection` of MariaDB and MySQL.

    Args:
        clock: What every exchange with the server is bracketed by.
        guard: Seconds after which an unanswered statement is stopped.
        number: The server's number of the session.
    """

    def __init__(self, clock: Clock, guard: float, number: int) -> None:
        self._clock = clock
        self._guard = guard
        self._number = number
        self._has_begun = False
        self._is_aborted = False
        """The server has rolled the transaction back by itself."""
        self._committed_by: str | None = None
        """The statement that has ended the transaction by committing it unasked."""
        self._has_strayed = False
        """Whether other statements came after that one."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True once the session has ended."""

    @property
    @abstractmethod
    def _status(self) -> int:
        """The bits that came with the last answer."""

    @abstractmethod
    def _start(self, *texts: bytes) -> Call:
        """Send statements one after the other, as far as they succeed; the result is the last `Reply`."""

    @abstractmethod
    def _start_killing(self) -> Call:
        """Stop, by another session, the statement that runs in this one; a second at most."""

    @abstractmethod
    async def close(self) -> None:
        """End the session politely, within a bound."""

    @abstractmethod
    def terminate(self) -> None:
        """Drop the session at once."""

    @property
    def in_transaction(self) -> bool:
        # An aborted one too: what the caller sends next belonged into it.
        is_open = self._is_aborted or bool(self._status & IN_TRANSACTION)
        return is_open and not self.is_closed

    async def execute(self, statement: Statement) -> Answer:
        name = statement.name
        parsed = parse(statement.text, "mysql")
        check_arguments(parsed, statement.parameters, statement=name)
        self._check_open(name)
        if self._is_aborted and parsed.keyword != "ROLLBACK":
            raise DatabaseError(
                f"{name}: the transaction was already rolled back by an earlier error; nothing was "
                "executed",
                statement=name,
            )
        try:
            backslashes = not self._status & NO_BACKSLASHES
            text = compose(parsed, statement.parameters, backslashes=backslashes)
        except ValueRefusedError as error:
            raise DatabaseError(f"{name}: {error}; nothing was sent", statement=name) from error
        may_commit = not self.in_transaction or parsed.keyword in {"COMMIT", *_COMMITTING}
        await anyio.lowlevel.checkpoint_if_cancelled()
        with self._exchange(name, may_commit=may_commit, has_arguments=bool(statement.parameters)):
            reply = await self._ask(text)
        self._follow(parsed.keyword)
        if reply.columns is None:
            return Answer(rowcount=reply.affected)
        return Answer(reply.columns, reply.rows, len(reply.rows) if parsed.writes else -1)

    async def run(self, script: Script[T]) -> T:
        if script.transaction == "none":
            return await step_through(script, self._clock, self.execute)
        await self._begin(script.name, *_BEGIN[script.transaction])
        try:
            result = await step_through(script, self._clock, self.execute)
            await self._commit(script.name, writes=script.transaction == "write")
        except BaseException:
            await self.rollback()
            raise
        return result

    async def begin(self, *, hold: bool = False) -> None:
        await self._begin("begin", *(_BEGIN["write"] if hold else (b"START TRANSACTION",)))

    async def commit(self) -> None:
        await self._commit("commit", writes=True)

    async def rollback(self) -> None:
        is_open = self.in_transaction
        self._forget_transaction()
        if self.is_closed or not is_open:
            return
        try:
            with self._exchange("rollback", may_commit=False):
                await self._finish(b"ROLLBACK", seconds=_ROLLBACK_BOUND)
        except DatabaseError:
            self.terminate()

    async def _begin(self, name: str, *texts: bytes) -> None:
        self._check_open(name)
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            with self._exchange(name, may_commit=False):
                await self._ask(*texts)
        except BaseException:
            await self.rollback()  # begun, and cancelled before its answer was read
            raise
        self._follow("START")

    async def _commit(self, name: str, *, writes: bool) -> None:
        self._check_open(name)
        was_aborted, committed_by = self._is_aborted, self._committed_by
        has_strayed = self._has_strayed
        if was_aborted:
            await self.rollback()
            raise DatabaseError(
                f"{name}: the transaction was already aborted by an earlier error; nothing was "
                "committed",
                statement=name,
            )
        if not self.in_transaction:
            self._forget_transaction()
            if committed_by is None:
                raise DatabaseError(f"{name}: no transaction is open", statement=name)
            if has_strayed:
                raise DatabaseError(
                    f"{name}: {committed_by} has committed the transaction already, as it does on "
                    "MariaDB and MySQL, and each statement after it by itself; run it outside of "
                    "transactions",
                    statement=name,
                )
            return
        with self._exchange(name, may_commit=writes):
            await self._finish(b"COMMIT", seconds=self._guard)
        self._forget_transaction()

    def _follow(self, keyword: str) -> None:
        """Note what a statement that succeeded has done to the transaction."""
        is_open = bool(self._status & IN_TRANSACTION)
        if keyword in {"BEGIN", "START", "COMMIT", "ROLLBACK"}:
            self._forget_transaction()
        elif self._has_begun and not is_open:
            self._committed_by = keyword
        elif self._committed_by is not None:
            self._has_strayed = self._has_strayed or keyword not in _COMMITTING
        self._has_begun = is_open

    def _forget_transaction(self) -> None:
        self._has_begun = self._is_aborted = self._has_strayed = False
        self._committed_by = None

    async def _ask(self, *texts: bytes) -> Reply:
        """Run statements. When this raises, they have ended on the server, or the connection is closed."""
        call = self._start(*texts)
        interruption: BaseException | None = None
        has_ended = False
        try:
            with anyio.move_on_after(self._guard):
                while not call.is_done:
                    await call.wait()
                has_ended = True
        except anyio.get_cancelled_exc_class() as error:
            interruption = error
        if not has_ended:
            later = await self._stop(call)
            interruption = interruption or later
        return await self._reply(call, interruption, self._guard)

    async def _finish(self, text: bytes, *, seconds: float) -> Reply:
        """Run COMMIT or ROLLBACK whatever cancels the task."""
        call = self._start(text)
        interruption = await _ended(call, seconds)
        return await self._reply(call, interruption, seconds)

    async def _reply(self, call: Call, interruption: BaseException | None, seconds: float) -> Reply:
        if not call.is_done:
            self.terminate()
            await call.abandon()
            raise interruption or NoAnswerError(f"no answer within {seconds:g} s")
        try:
            reply: Reply = call.result()
        except Exception as error:
            later = await self._look_after(error)
            interruption = interruption or later
            if interruption is None:
                raise
        if interruption is not None:
            raise interruption
        return reply

    async def _look_after(self, error: Exception) -> BaseException | None:
        """After an error: the server has not said whether it rolled the transaction back, so ask."""
        if is_lost(number_of(error)):
            self.terminate()
            return None
        if not self._has_begun or self.is_closed:
            return None
        interruption = await self._probe()
        if not self._status & IN_TRANSACTION and not self.is_closed:
            self._is_aborted = True
        return interruption

    async def _stop(self, call: Call) -> BaseException | None:
        """Have the statement stopped, and wait for its end; a second for both.

        Where that does not suffice the connection is dropped.
        """
        killing = self._start_killing()

        async def wait() -> None:
            await (call if killing.is_done else killing).wait()

        def is_over() -> bool:
            return killing.is_done and call.is_done

        with self._clock.external("stop"):  # time must not pass for the statement's waiting alone
            interruption = await outlast(wait, is_over, seconds=LAST_WORD)
            if is_over():
                # The stop may have come too late for this statement, and must not meet another.
                return interruption or await self._probe()
            self.terminate()
            for each in (killing, call):
                if not each.is_done:
                    await each.abandon()
        return interruption

    async def _probe(self) -> BaseException | None:
        """Bring the status up to date; the connection is dropped where that fails."""
        if self.is_closed:
            return None
        interruption: BaseException | None = None
        for _ in range(2):
            call = self._start(b"DO 0")
            interruption = await _ended(call, LAST_WORD)
            try:
                if call.is_done:
                    call.result()
                    return interruption
                await call.abandon()
            except Exception as error:  # noqa: BLE001 - any means the same
                if number_of(error) == 1317:  # the stop that came too late
                    continue
            break
        self.terminate()
        return interruption

    @contextmanager
    def _exchange(
        self, name: str, *, may_commit: bool, has_arguments: bool = False
    ) -> Iterator[None]:
        with self._clock.external(name):
            try:
                yield
            except DatabaseError:
                raise
            except Exception as error:
                if isinstance(error, NoAnswerError) or is_lost(number_of(error)):
                    self.terminate()
                    raise lost(name, error, may_have_happened=may_commit) from error
                raise judged(name, error, has_arguments=has_arguments) from error

    def _check_open(self, name: str) -> None:
        if self.is_closed:
            raise lost(name, "it was closed before", may_have_happened=False)


async def _ended(call: Call, seconds: float) -> BaseException | None:
    return await outlast(call.wait, lambda: call.is_done, seconds=seconds)


def guard_of(timeout: float) -> float:
    """Seconds after which a statement is stopped that the server itself should have stopped."""
    return timeout + GRACE


_VERSION: Final = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)")


def session_setup(version: str, timeout: float) -> bytes:
    """What a session is told first.

    Args:
        version: What the server says of itself.
        timeout: Seconds that a statement may take.

    Raises:
        ServerTooOldError: The server is.
    """
    is_mariadb = "mariadb" in version.lower()
    found = _VERSION.match(version)
    major, minor, patch = (int(part) for part in found.groups()) if found else (0, 0, 0)
    check_mysql("MariaDB" if is_mariadb else "MySQL", (major, minor, patch))
    # Whole seconds; also while a table is altered.
    patience = max(1, math.ceil(timeout))
    longest = (
        f"max_statement_time = {timeout:.3f}"
        if is_mariadb
        else f"max_execution_time = {max(1, round(timeout * 1000))}"
    )
    return (
        f"SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = '{_SQL_MODE}', "
        f"innodb_lock_wait_timeout = {patience}, lock_wait_timeout = {patience}, {longest}"
    ).encode()
