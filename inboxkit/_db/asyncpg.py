"""PostgreSQL through asyncpg, on asyncio: ``postgresql+asyncpg://``."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final

import anyio
import asyncpg

from inboxkit._core.haste import hasty
from inboxkit._db.instants import from_microseconds, to_microseconds
from inboxkit._db.keepalive import keep_alive
from inboxkit._db.placeholders import parse
from inboxkit._db.postgres import PostgresConnection, rows_written, session_timeouts
from inboxkit._db.postgres_errors import NoAnswerError, is_lost, judged, lost
from inboxkit._db.shield import LAST_WORD
from inboxkit._db.tasks import finished, opened, stopped
from inboxkit._db.versions import check_postgres
from inboxkit._sql.statement import Answer, Statement
from inboxkit.abc import Clock, DialectName, Notification
from inboxkit.errors import ConnectError, DatabaseError

__all__ = ["AsyncpgConnection", "AsyncpgDriver", "prepared", "prepares"]

_CONNECTING = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # with TimeoutError
    ValueError,
)

_CACHED: Final = 100
"""Statements that a connection keeps prepared: asyncpg's own default."""
_ARGUMENT = re.compile(
    r"invalid input for query argument (\$\d+).*?(\(expected .+? got .+?\))?\Z", re.S
)


class AsyncpgConnection(PostgresConnection):
    """One session of asyncpg. Its own transactions and pool are not used: under level cancellation
    they leave sessions inside transactions."""

    def __init__(
        self, connection: Any, *, clock: Clock, timeout: float, is_pooled: bool = False
    ) -> None:
        super().__init__(clock, timeout, is_pooled=is_pooled)
        self._connection = connection
        self._arrival = anyio.Event()
        self._is_listening = False

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    @property
    def in_transaction(self) -> bool:
        return not self.is_closed and bool(self._connection.is_in_transaction())

    @property
    def backend_pid(self) -> int:
        return int(self._connection.get_server_pid())

    @property
    def server_major(self) -> int:
        return int(self._connection.get_server_version().major)

    async def close(self) -> None:
        if self.is_closed:
            return
        with self._clock.external("close"):
            try:
                with hasty(anyio.move_on_after(LAST_WORD, shield=True)):
                    await self._connection.close()
            finally:
                self.terminate()

    def terminate(self) -> None:
        if not self.is_closed:
            self._connection.terminate()

    async def _send(self, statement: Statement) -> Answer:
        try:
            with anyio.move_on_after(self._guard):
                return await self._ask(statement)
        except anyio.get_cancelled_exc_class():
            await self._settle_down()
            raise
        self.terminate()
        raise NoAnswerError(f"no answer within {self._guard:g} s")

    async def _ask(self, statement: Statement) -> Answer:
        if not statement.returns_rows:
            tag = await self._connection.execute(statement.text, *statement.parameters)
            return Answer(rowcount=rows_written(tag))
        rows = await self._connection.fetch(statement.text, *statement.parameters)
        columns = tuple(rows[0].keys()) if rows else ()
        written = len(rows) if parse(statement.text, "postgres").writes else -1
        return Answer(columns, [tuple(row) for row in rows], written)

    async def _settle_down(self) -> None:
        """After a cancellation: be certain of the session, or drop it.

        asyncpg has asked the server to cancel; the next statement waits until that has come to its
        end. Any answer to it, also "the transaction is aborted", makes the session certain.
        """
        certain = False
        try:
            # Time must not pass for the statement's waiting alone.
            bound = anyio.move_on_after(LAST_WORD, shield=True)
            with self._clock.external("stop"), hasty(bound):
                await self._connection.execute("SELECT 1")
                certain = True
        except asyncpg.PostgresError as error:
            certain = not is_lost(getattr(error, "sqlstate", None))
        except (asyncpg.InterfaceError, OSError):
            certain = False
        finally:
            if not certain:
                self.terminate()

    async def _subscribe(self, channel: str) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._connection.add_termination_listener(self._has_ended)
        with anyio.move_on_after(self._guard):
            await self._connection.add_listener(channel, self._note)
            return
        self.terminate()
        raise NoAnswerError(f"no answer within {self._guard:g} s")

    async def _hear(self) -> None:
        if self._arrival.is_set():
            self._arrival = anyio.Event()
        await self._arrival.wait()

    def _note(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        self._heard.append(Notification(channel, payload))
        self._arrival.set()

    def _has_ended(self, _connection: Any) -> None:
        self._arrival.set()

    async def _finish(self, text: str, *, seconds: float) -> str:
        # asyncpg asks the server to cancel as soon as its coroutine is cancelled, natively too: so
        # this one runs in a task of its own, which ends before this function does.
        task, interruption = await finished(self._connection.execute(text), seconds=seconds)
        if not task.done():
            self.terminate()  # its coroutine then ends with an error
            await stopped(task)
            raise interruption or NoAnswerError(f"no answer within {seconds:g} s")
        if (error := interruption or task.exception()) is not None:
            raise error
        tag: str = task.result()
        return tag

    def _is_outdated(self, error: BaseException | None) -> bool:
        return isinstance(error, asyncpg.InvalidCachedStatementError)

    def _translated(self, error: Exception, name: str, *, may_commit: bool) -> DatabaseError | None:
        sqlstate: str | None = getattr(error, "sqlstate", None)
        if is_lost(sqlstate) or isinstance(error, OSError | NoAnswerError):
            self.terminate()
            return lost(name, str(error.args[0]), may_have_happened=may_commit)
        if isinstance(error, asyncpg.PostgresError):
            constraint = getattr(error, "constraint_name", None) or getattr(
                error, "column_name", None
            )
            return judged(name, sqlstate, _without_values(str(error.args[0])), constraint)
        if isinstance(error, asyncpg.InterfaceError):
            return judged(name, None, _without_values(str(error)), None)
        if isinstance(error, UnicodeError):
            return judged(name, None, "the text cannot be encoded; nothing was sent", None)
        is_out_of_step = isinstance(error, asyncpg.InternalClientError)
        if not is_out_of_step and not self.is_closed:
            return None
        # Or it was dropped by another task, and asyncpg trips over what is missing.
        text = str(error) if is_out_of_step else "the connection was dropped"
        self.terminate()
        return lost(name, text, may_have_happened=may_commit)


class AsyncpgDriver:
    """A `Driver` of PostgreSQL on asyncio.

    Args:
        url: The server's URL.
        clock: Where time comes from.
        timeout: The server's statement timeout, in seconds.
    """

    name = "asyncpg"
    dialect: DialectName = "postgres"
    max_connections: int | None = None

    def __init__(self, url: str, *, clock: Clock, timeout: float) -> None:
        self._url = url
        self._clock = clock
        self._timeout = timeout
        self._is_pooled = False
        """Whether a pooler stood between the last time."""

    async def connect(self) -> AsyncpgConnection:
        with self._clock.external("connect"):
            try:
                connection = await opened(self._open(), lambda connection: connection.terminate())
            except _CONNECTING as error:
                raise ConnectError(f"cannot connect to PostgreSQL: {error}") from error
        return AsyncpgConnection(
            connection, clock=self._clock, timeout=self._timeout, is_pooled=self._is_pooled
        )

    async def aclose(self) -> None:
        """Nothing is kept."""

    async def _open(self) -> Any:
        was_pooled = self._is_pooled
        connection = await asyncpg.connect(
            self._url,
            timeout=math.ceil(self._timeout),
            statement_cache_size=0 if was_pooled else _CACHED,
        )
        self._is_pooled = await prepared(connection, self._timeout)
        if self._is_pooled and not was_pooled:
            connection.terminate()
            return await self._open()  # nothing was prepared yet
        return connection


def prepares(connection: Any) -> bool:
    """Whether asyncpg's connection prepares statements for later."""
    return bool(connection._stmt_cache_enabled)


async def prepared(connection: Any, timeout: float) -> bool:
    """Set a session up as `AsyncpgConnection` needs it; it is dropped where that fails.

    Returns:
        Whether a pooler stands between.
    """
    try:
        check_postgres(connection.get_server_version().major)
        # Before anything is prepared. Not among the start-up settings: poolers refuse those that they do
        # not know.
        tag = await connection.execute(session_timeouts(timeout, pid=connection.get_server_pid()))
        for name in ("json", "jsonb"):
            await connection.set_type_codec(
                name, schema="pg_catalog", encoder=_text, decoder=_text, format="text"
            )
        # asyncpg reads infinity as a naive datetime, and fails on years beyond 9999.
        await connection.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=_encode, decoder=_decode, format="tuple"
        )
        keep_alive(connection._transport.get_extra_info("socket"))
    except BaseException:
        connection.terminate()
        raise
    return bool(tag == "SELECT 0")


def _text(value: str) -> str:
    return value


def _encode(value: Any) -> tuple[int]:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError("expected an aware datetime")
    return (to_microseconds(value),)


def _decode(value: tuple[int]) -> datetime:
    return from_microseconds(value[0])


def _without_values(text: str) -> str:
    """asyncpg's own message about an argument shows its value; this keeps the types alone."""
    return _ARGUMENT.sub(
        lambda match: (
            f"the argument {match[1]} has the wrong type {match[2] or ''}".rstrip()
            + "; asyncpg converts nothing: give what the statement needs, or cast"
        ),
        text,
    )
