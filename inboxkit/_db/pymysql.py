"""MariaDB and MySQL through PyMySQL in a thread of our own, on both backends: ``mysql+pymysql://``."""

from __future__ import annotations

import itertools
import math
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import anyio
import pymysql
from pymysql.constants import CLIENT

from inboxkit._core.haste import hasty
from inboxkit._db.backend import waker
from inboxkit._db.keepalive import keep_alive
from inboxkit._db.mysql import MysqlConnection
from inboxkit._db.mysql_errors import unreachable
from inboxkit._db.mysql_session import WHO, Reply, guard_of, session_setup
from inboxkit._db.mysql_url import MysqlTarget
from inboxkit._db.mysql_values import DECODERS
from inboxkit._db.shield import LAST_WORD, outlast
from inboxkit._db.sockets import is_ready, shut_down
from inboxkit._db.thread import ThreadWorker
from inboxkit.abc import Clock, DialectName
from inboxkit.errors import ConnectError

__all__ = ["PymysqlConnection", "PymysqlDriver"]

_CONNECTING: Final = (pymysql.Error, OSError, RuntimeError, ValueError)

_killers = itertools.count(1)


class _Session:
    """PyMySQL's connection, used in one thread; `drop` alone may be called from another."""

    number = 0
    """The server's number of it."""
    most_bytes = 0
    """Of a statement."""

    def __init__(self, target: MysqlTarget, *, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._connection: Any = None
        self.is_dropped = False

    def open(self) -> None:
        """Connect, and set the session up."""
        try:
            self._connection = connection = _connect(self._target, guard_of(self._timeout))
            keep_alive(connection._sock)
            row = self.run(WHO).rows[0]
            self.number, self.most_bytes = row[1:]
            self.run(session_setup(row[0], self._timeout))
        except _CONNECTING as error:
            self.close()
            raise unreachable(self._target, error) from error
        except BaseException:
            self.close()
            raise

    def run(self, text: bytes) -> Reply:
        """Run one statement, and read all that it answers."""
        connection = self._connection
        connection.query(text)
        result = connection._result
        while connection._result.has_next:  # of a procedure; the first is its answer
            connection.next_result()
        if result.description is None:
            return Reply(None, (), result.affected_rows)
        return Reply(tuple(column[0] for column in result.description), result.rows, -1)

    def close(self) -> None:
        """Say goodbye, if there is anybody to hear it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self.is_dropped:
                connection._force_close()
            else:
                with suppress(pymysql.Error):  # closed already
                    connection.close()

    def drop(self) -> None:
        """End it at once, also while its thread waits for an answer."""
        self.is_dropped = True
        descriptor = self.descriptor
        if descriptor >= 0:
            shut_down(descriptor)

    @property
    def status(self) -> int:
        """The bits that came with the last answer."""
        connection = self._connection
        return 0 if connection is None else int(connection.server_status)

    @property
    def descriptor(self) -> int:
        """Its socket; -1 where there is none any more."""
        line = getattr(self._connection, "_sock", None)
        return -1 if line is None else int(line.fileno())


class _ThreadCall:
    """A `Call` that a thread runs."""

    def __init__(
        self,
        work: Callable[[], Any],
        post: Callable[[Callable[[], None]], object],
        *,
        ends_by_itself: bool = False,
    ) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._ends_by_itself = ends_by_itself
        self._ended = anyio.Event()
        self._wake = waker()
        post(self._run)

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
            self._error = error
        self._wake(self._ended.set)

    @property
    def is_done(self) -> bool:
        return self._ended.is_set()

    async def wait(self) -> None:
        await self._ended.wait()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    async def abandon(self) -> None:
        if not self._ends_by_itself:
            await outlast(self.wait, lambda: self.is_done, seconds=LAST_WORD)


class PymysqlConnection(MysqlConnection):
    """One session of PyMySQL, and its thread."""

    def __init__(
        self,
        session: _Session,
        worker: ThreadWorker,
        target: MysqlTarget,
        *,
        clock: Clock,
        timeout: float,
    ) -> None:
        super().__init__(clock, guard_of(timeout), session.number, session.most_bytes)
        self._session = session
        self._worker = worker
        self._target = target
        self._call: _ThreadCall | None = None

    @property
    def is_closed(self) -> bool:
        if self._session.is_dropped:
            return True
        if self._call is not None and not self._call.is_done:
            return False
        # An idle server speaks only to say goodbye.
        descriptor = self._session.descriptor
        if descriptor < 0 or is_ready(descriptor):
            self.terminate()
        return self._session.is_dropped

    @property
    def _status(self) -> int:
        return self._session.status

    def _start(self, text: bytes) -> _ThreadCall:
        self._call = _ThreadCall(lambda: self._session.run(text), self._worker.post)
        return self._call

    def _start_killing(self) -> _ThreadCall:
        def post(run: Callable[[], None]) -> None:
            name = f"inboxkit-kill-{next(_killers)}"
            Thread(target=run, name=name, daemon=True).start()

        return _ThreadCall(lambda: _kill(self._target, self._number), post, ends_by_itself=True)

    async def close(self) -> None:
        if self._session.is_dropped:
            return
        self._worker.stop()
        with self._clock.external("close"):
            interruption = await outlast(
                self._worker.ended, lambda: self._worker.has_ended, seconds=LAST_WORD
            )
        self._session.drop()
        if interruption is not None:
            raise interruption

    def terminate(self) -> None:
        if not self._session.is_dropped:
            self._session.drop()
            self._worker.stop()


class PymysqlDriver:
    """A `Driver` of MariaDB and MySQL on asyncio and trio.

    Args:
        target: The server.
        clock: Where time comes from.
        timeout: The server's statement timeout, in seconds.
    """

    name = "pymysql"
    dialect: DialectName = "mysql"
    max_connections: int | None = None

    def __init__(self, target: MysqlTarget, *, clock: Clock, timeout: float) -> None:
        self._target = target
        self._clock = clock
        self._timeout = timeout
        self._workers: list[ThreadWorker] = []

    async def connect(self) -> PymysqlConnection:
        session = _Session(self._target, timeout=self._timeout)
        worker = ThreadWorker(session)
        self._workers = [other for other in self._workers if not other.has_ended] + [worker]
        guard = guard_of(self._timeout)
        with self._clock.external("connect"):
            try:
                with anyio.move_on_after(guard) as scope:
                    await worker.open()
            except BaseException:
                session.drop()
                worker.stop()
                raise
        if scope.cancelled_caught:
            session.drop()
            worker.stop()
            raise ConnectError(f"cannot connect to {self._target.shown}: no answer in {guard:g} s")
        return PymysqlConnection(
            session, worker, self._target, clock=self._clock, timeout=self._timeout
        )

    async def aclose(self) -> None:
        """Wait for the threads of terminated connections, within a bound."""
        bound = anyio.move_on_after(LAST_WORD, shield=True)
        with self._clock.external("close"), hasty(bound):
            for worker in self._workers:
                await worker.ended()


def _connect(target: MysqlTarget, seconds: float, *, patience: float | None = None) -> Any:
    context = target.ssl_context()
    connection: Any = pymysql.Connection(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password.encode(),
        database=target.database,
        charset="utf8mb4",
        client_flag=CLIENT.FOUND_ROWS,
        conv=DECODERS,
        autocommit=None,
        local_infile=False,
        connect_timeout=max(1, math.ceil(seconds)),
        read_timeout=patience,  # what stands on a silent line is else woken by `drop`
        ssl=context,
        ssl_disabled=context is None,
        defer_connect=True,
    )
    if target.socket is None:
        connection.connect()
        return connection
    line = socket.socket(socket.AF_UNIX)  # PyMySQL leaves its own open when it cannot connect
    try:
        line.settimeout(seconds)
        line.connect(target.socket)
        connection._secure = True  # so that a password may go through it
        connection.connect(line)
    except BaseException:
        line.close()
        raise
    return connection


def _kill(target: MysqlTarget, number: int) -> None:
    connection = _connect(target, LAST_WORD, patience=LAST_WORD)
    try:
        connection.query(b"KILL QUERY %d" % number)
    finally:
        connection.close()
