"""MariaDB and MySQL through asyncmy, on asyncio: ``mysql+asyncmy://``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, Final

import anyio
import asyncmy
from asyncmy.constants import CLIENT
from asyncmy.errors import Error

from inboxkit._core.haste import hasty
from inboxkit._db.keepalive import keep_alive
from inboxkit._db.mysql import MysqlConnection
from inboxkit._db.mysql_errors import unreachable
from inboxkit._db.mysql_session import WHO, Reply, guard_of, session_setup
from inboxkit._db.mysql_url import MysqlTarget
from inboxkit._db.mysql_values import DECODERS
from inboxkit._db.shield import LAST_WORD
from inboxkit._db.sockets import is_ready
from inboxkit._db.tasks import opened, stopped
from inboxkit.abc import Clock, DialectName

__all__ = ["AsyncmyConnection", "AsyncmyDriver"]

_CONNECTING: Final = (Error, OSError, RuntimeError, ValueError)  # with TimeoutError


class _TaskCall:
    """A `Call` in a task of its own: cancelled half-way, asyncmy loses its place in the reply."""

    def __init__(self, work: Coroutine[Any, Any, Any], *, may_be_cancelled: bool = False) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(_looked_at)
        self._may_be_cancelled = may_be_cancelled

    @property
    def is_done(self) -> bool:
        return self._task.done()

    async def wait(self) -> None:
        await asyncio.wait([self._task])

    def result(self) -> Any:
        return self._task.result()

    async def abandon(self) -> None:
        if self._may_be_cancelled:
            self._task.cancel()
        await stopped(self._task)


class AsyncmyConnection(MysqlConnection):
    """One session of asyncmy."""

    def __init__(
        self,
        connection: Any,
        number: int,
        target: MysqlTarget,
        *,
        most_bytes: int,
        clock: Clock,
        timeout: float,
    ) -> None:
        super().__init__(clock, guard_of(timeout), number, most_bytes)
        self._connection = connection
        self._target = target
        self._call: _TaskCall | None = None
        self._is_dropped = False

    @property
    def is_closed(self) -> bool:
        if self._is_dropped or not self._connection.connected:
            return True
        if self._call is not None and not self._call.is_done:
            return False
        # An idle server speaks only to say goodbye.
        if _transport_of(self._connection).is_closing() or is_ready(_socket_of(self._connection)):
            self.terminate()
        return self._is_dropped

    @property
    def _status(self) -> int:
        return int(self._connection.server_status)

    def _start(self, text: bytes) -> _TaskCall:
        self._call = _TaskCall(query(self._connection, text))
        return self._call

    def _start_killing(self) -> _TaskCall:
        return _TaskCall(_kill(self._target, self._number), may_be_cancelled=True)

    async def close(self) -> None:
        if self.is_closed:
            return
        with self._clock.external("close"):
            try:
                with hasty(anyio.move_on_after(LAST_WORD, shield=True)):
                    await self._connection.ensure_closed()
            finally:
                self.terminate()

    def terminate(self) -> None:
        if not self._is_dropped:
            self._is_dropped = True
            _drop(self._connection)


class AsyncmyDriver:
    """A `Driver` of MariaDB and MySQL on asyncio.

    Args:
        target: The server.
        clock: Where time comes from.
        timeout: The server's statement timeout, in seconds.
    """

    name = "asyncmy"
    dialect: DialectName = "mysql"
    max_connections: int | None = None

    def __init__(self, target: MysqlTarget, *, clock: Clock, timeout: float) -> None:
        self._target = target
        self._clock = clock
        self._timeout = timeout

    async def connect(self) -> AsyncmyConnection:
        with self._clock.external("connect"):
            try:
                connection, number, most_bytes = await opened(
                    _open(self._target, self._timeout), lambda session: _drop(session[0])
                )
            except _CONNECTING as error:
                raise unreachable(self._target, error) from error
        return AsyncmyConnection(
            connection,
            number,
            self._target,
            most_bytes=most_bytes,
            clock=self._clock,
            timeout=self._timeout,
        )

    async def aclose(self) -> None:
        """Nothing is kept."""


async def _open(target: MysqlTarget, timeout: float) -> tuple[Any, int, int]:
    """A session, its number and the most bytes of a statement."""
    async with asyncio.timeout(guard_of(timeout)):
        connection = await _connect(target, guard_of(timeout))
        try:
            keep_alive(connection._transport.get_extra_info("socket"))
            row = (await query(connection, WHO)).rows[0]
            await query(connection, session_setup(row[0], timeout))
        except BaseException:
            _drop(connection)
            raise
    return connection, row[1], row[2]


async def _connect(target: MysqlTarget, seconds: float) -> Any:
    make: Any = asyncmy.Connection
    connection: Any = make(
        host=target.host,
        port=target.port,
        unix_socket=target.socket,
        user=target.user,
        password=target.password.encode(),
        database=target.database,
        charset="utf8mb4",
        client_flag=CLIENT.FOUND_ROWS,
        conv=DECODERS,
        autocommit=None,
        local_infile=False,
        connect_timeout=max(1, math.ceil(seconds)),
        ssl=target.ssl_context(),
    )
    connection._client_flag &= ~CLIENT.MULTI_STATEMENTS  # asyncmy always asks for them
    await connection.connect()
    return connection


async def query(connection: Any, text: bytes) -> Reply:
    """Run one statement, and read all that it answers."""
    await connection.query(text)
    result = connection._result
    while connection._result.has_next:  # of a procedure; the first is its answer
        await connection.next_result()
    if result.description is None:
        return Reply(None, (), result.affected_rows)
    return Reply(tuple(column[0] for column in result.description), result.rows, -1)


async def _kill(target: MysqlTarget, number: int) -> None:
    async with asyncio.timeout(LAST_WORD):
        connection = await _connect(target, LAST_WORD)
        try:
            await connection.query(b"KILL QUERY %d" % number)
        finally:
            connection.close()


def _looked_at(task: asyncio.Task[Any]) -> None:
    """The loop would report the error of a call that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _drop(connection: Any) -> None:
    transport = connection._transport
    if transport is not None:
        transport.abort()  # close() would wait until all that was sent has left
    connection.close()


def _transport_of(connection: Any) -> Any:
    return connection._transport


def _socket_of(connection: Any) -> int:
    return int(connection._transport.get_extra_info("socket").fileno())
