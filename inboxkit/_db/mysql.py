"""MariaDB and MySQL behind the driver port: transactions and scripts, statement by statement, over what
a driver's library can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio

from inboxkit._db.mysql_errors import (
    READ_ONLY,
    TOO_LONG,
    NoAnswerError,
    TooLongError,
    is_lost,
    judged,
    lost,
    number_of,
)
from inboxkit._db.mysql_session import IN_TRANSACTION, NO_BACKSLASHES, MysqlSession
from inboxkit._db.mysql_values import ValueRefusedError, compose
from inboxkit._db.placeholders import check_arguments, parse
from inboxkit._db.scripts import step_through
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import Clock
from inboxkit.errors import DatabaseError

__all__ = ["MysqlConnection"]

T = TypeVar("T")

_ROLLBACK_BOUND: Final = 5.0
"""Seconds; a session that does not come back by then is dropped, which rolls back too."""

_BEGIN: Final = {"read": b"START TRANSACTION READ ONLY", "write": b"START TRANSACTION"}
_COMMITTING: Final = frozenset(
    {"ALTER", "ANALYZE", "BEGIN", "CACHE", "CHECK", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL"}
    | {"LOCK", "OPTIMIZE", "RENAME", "REPAIR", "RESET", "REVOKE", "START", "TRUNCATE", "UNINSTALL"}
)
"""What begins with these words commits the transaction that is open, as a rule."""
_PASSING: Final = re.compile(r"\bSET\s+(?:TRANSACTION|STATEMENT)\b", re.IGNORECASE)
"""A setting of the next transaction or of one statement."""


class MysqlConnection(MysqlSession):
    """A `DriverConnection` of MariaDB and MySQL.

    Args:
        clock: What every exchange with the server is bracketed by.
        guard: Seconds after which an unanswered statement is stopped.
        number: The server's number of the session.
        most_bytes: Of a statement.
    """

    def __init__(self, clock: Clock, guard: float, number: int, most_bytes: int) -> None:
        super().__init__(clock, guard, number, most_bytes)
        self._has_begun = False
        self._is_aborted = False
        """The server has rolled the transaction back by itself."""
        self.is_misplaced = False
        """Whether the server has refused to write, since it is read-only."""
        self.is_altered = False
        """Whether a statement may have changed the session's settings or its database, for good."""
        self._committed_by: str | None = None
        """The statement that has ended the transaction by committing it unasked."""
        self._has_strayed = False
        """Whether other statements came after that one."""

    @property
    def in_transaction(self) -> bool:
        # An aborted one too: what the caller sends next belonged into it.
        is_open = self._is_aborted or bool(self._status & IN_TRANSACTION)
        return is_open and not self.is_closed

    async def execute(self, statement: Statement) -> Answer:
        name = statement.name
        parsed = parse(statement.text, "mysql")
        check_arguments(parsed, statement.parameters, statement=name)
        is_inside = self.in_transaction
        # The last look at the session: what one after it found would be sent to nobody.
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
        self._check_length(name, len(text))
        if parsed.keyword == "USE" or (
            parsed.keyword == "SET" and not _PASSING.search(statement.text)
        ):
            self.is_altered = True
        may_commit = not is_inside or parsed.keyword in {"COMMIT", *_COMMITTING}
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
        await self._begin(script.name, _BEGIN[script.transaction])
        try:
            result = await step_through(script, self._clock, self.execute)
            await self._commit(script.name, writes=script.transaction == "write")
        except BaseException:
            await self.rollback()
            raise
        return result

    async def begin(self, *, hold: bool = False) -> None:  # noqa: ARG002 - all begin alike here
        await self._begin("begin", _BEGIN["write"])

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

    async def _refused(self) -> BaseException | None:
        # The server does not say whether it has rolled the transaction back, as after a deadlock.
        if not self._has_begun or self.is_closed:
            return None
        interruption = await self._probe()
        if not self._status & IN_TRANSACTION and not self.is_closed:
            self._is_aborted = True
        return interruption

    async def _begin(self, name: str, text: bytes) -> None:
        self._check_open(name)
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            with self._exchange(name, may_commit=False):
                await self._ask(text)
        except BaseException:
            await self.rollback()  # begun, and cancelled before its answer was read
            raise
        self._follow("START")

    async def _commit(self, name: str, *, writes: bool) -> None:
        is_inside = self.in_transaction
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
        if not is_inside:
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
                if number_of(error) in READ_ONLY:
                    self.is_misplaced = True
                raise judged(name, error, has_arguments=has_arguments) from error

    def _check_length(self, name: str, length: int) -> None:
        """Refuse what would end the session: the server does not read so much, and the drivers lose
        their place in its answer."""
        if length < self._most_bytes:
            return
        text = (
            f"the statement is {length} bytes long, and the server takes less than "
            f"{self._most_bytes} (max_allowed_packet)"
        )
        error = DatabaseError(f"{name}: {text}; nothing was sent", statement=name)
        raise error from TooLongError(TOO_LONG, text)

    def _check_open(self, name: str) -> None:
        if self.is_closed:
            raise lost(name, "it was closed before", may_have_happened=False)
