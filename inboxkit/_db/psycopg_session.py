"""psycopg's connection, driven by anyio."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, cast

import anyio
import psycopg
from psycopg import generators
from psycopg.abc import RV, PQGen, PQGenConn
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.rows import tuple_row

from inboxkit._db.exchange import Exchange, is_ready
from inboxkit._db.keepalive import COUNT, IDLE, INTERVAL
from inboxkit._db.postgres import session_timeouts
from inboxkit._db.postgres_errors import NoAnswerError
from inboxkit._db.psycopg_types import register_loaders
from inboxkit._db.shield import LAST_WORD, outlast

__all__ = ["PsycopgSession", "open_session"]

_KEEPALIVES: Final = {
    "keepalives_idle": str(IDLE),
    "keepalives_interval": str(INTERVAL),
    "keepalives_count": str(COUNT),
}


class PsycopgSession(psycopg.AsyncConnection[tuple[Any, ...]]):
    """An `AsyncConnection` that needs no asyncio: used by one task at a time."""

    guard = 0.0
    """Seconds that the server has for an answer; then the session is dropped."""
    stopping: Callable[[], AbstractContextManager[None]] = nullcontext
    """Open while a statement is being stopped."""
    is_pooled = False
    """Whether a pooler stands between."""
    _limit: float | None = None
    _is_waiting = False
    _is_dropped = False

    def __init__(self, pgconn: Any) -> None:
        super().__init__(pgconn, tuple_row)
        self.lock = cast(Any, nullcontext())  # psycopg's own is asyncio's
        self.cursor_factory = psycopg.AsyncRawCursor

    @contextmanager
    def finishing(self, *, seconds: float) -> Iterator[None]:
        """Within it, statements are not stopped by a cancellation but finished, in so many seconds."""
        self._limit = seconds
        try:
            yield
        finally:
            self._limit = None

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.0,  # noqa: ARG002 - psycopg's own look for a Ctrl-C
        timeout: float | None = None,  # noqa: ARG002 - never given by what is used here
    ) -> RV:
        """Drive an exchange to its end; psycopg calls this for everything that it does."""
        self._is_waiting = True
        try:
            return await self._drive(Exchange(gen, self.pgconn.socket))
        finally:
            self._is_waiting = False
            if self._is_dropped:
                self.pgconn.finish()

    def hear(self, note: Callable[[str, str], None]) -> None:
        """Call `note` with channel and payload of each notification, whenever it is read."""
        self.pgconn.notify_handler = lambda told: note(told.relname.decode(), told.extra.decode())

    async def read(self) -> None:
        """Wait until the server says something unasked, and read it.

        Raises:
            psycopg.Error: The session has ended.
        """
        self._is_waiting = True
        try:
            await anyio.wait_readable(self.pgconn.socket)
            if self._is_dropped:
                raise psycopg.OperationalError("the connection was closed")
            self.pgconn.consume_input()
            while (told := self.pgconn.notifies()) is not None:
                if self.pgconn.notify_handler is not None:
                    self.pgconn.notify_handler(told)
        finally:
            self._is_waiting = False
            if self._is_dropped:
                self.pgconn.finish()

    def drop(self) -> None:
        """End the session at once, also while another task waits for an answer."""
        if not self._is_waiting or self.pgconn.status == ConnStatus.BAD:
            self.pgconn.finish()
            return
        # A socket that is closed under a waiting task never wakes it. One that is shut down does, and
        # the exchange then ends as after any other loss.
        self._is_dropped = True
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)

    async def _drive(self, exchange: Exchange[RV]) -> RV:
        if self._limit is not None:
            limit = self._limit
            interruption = await outlast(
                exchange.step, exchange.is_done, seconds=limit, is_hasty=True
            )
        else:
            limit = self.guard
            interruption = await self._until_stopped(exchange)
        if not exchange.is_done():
            exchange.close()
            self.pgconn.finish()
        if interruption is not None:
            raise interruption
        if not exchange.is_done():
            raise NoAnswerError(f"no answer within {limit:g} s")
        return exchange.result()

    def is_lost(self) -> bool:
        """Whether the session has ended; an idle one looks at its socket for the server's farewell."""
        if self._is_dropped:
            return True
        while self.pgconn.status != ConnStatus.BAD and is_ready(self.pgconn.socket):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                break  # an answer is being waited for
            try:
                self.pgconn.consume_input()
            except psycopg.Error:
                self.pgconn.finish()
        return bool(self.pgconn.status == ConnStatus.BAD)

    async def _until_stopped(self, exchange: Exchange[Any]) -> BaseException | None:
        try:
            with anyio.move_on_after(self.guard):
                while not exchange.is_done():
                    await exchange.step()
        except anyio.get_cancelled_exc_class() as error:
            await self._stop(exchange)
            return error
        return None

    async def _stop(self, exchange: Exchange[Any]) -> None:
        """Ask the server to cancel the statement, and wait for its end; a second for both."""
        # Not get_cancel().cancel() in a thread: it blocks holding the GIL.
        cancelling = Exchange(self._cancelling())

        async def step() -> None:
            await (exchange if cancelling.is_done() else cancelling).step()

        with self.stopping():
            await outlast(step, exchange.is_done, seconds=LAST_WORD, is_hasty=True)
        cancelling.close()

    def _cancelling(self) -> PQGenConn[None]:
        request = self.pgconn.cancel_conn()
        try:
            request.start()
            yield from generators.cancel(request)
        finally:
            request.finish()


async def open_session(url: str, *, timeout: float, guard: float) -> PsycopgSession:
    """Connect and set the session up.

    Args:
        url: The server's URL.
        timeout: The server's statement timeout, in seconds.
        guard: Seconds for the connecting, and afterwards for each answer.

    Raises:
        psycopg.Error, OSError, NoAnswerError: The server cannot be reached, or refuses.
    """
    with anyio.move_on_after(guard):
        parameters = await _resolved({**_KEEPALIVES, **conninfo_to_dict(url)})
        connecting = Exchange(generators.connect(make_conninfo("", **parameters)))
        try:
            session = PsycopgSession(await connecting.finish())
        finally:
            connecting.close()
        session.guard = guard
        try:
            await session.set_autocommit(True)
            # Not among the start-up settings: poolers refuse those that they do not know.
            told = await session.execute(
                session_timeouts(timeout, pid=session.pgconn.backend_pid).encode()
            )
            session.is_pooled = not told.rowcount
            if session.is_pooled:
                session.prepare_threshold = None
        except BaseException:
            session.pgconn.finish()
            raise
        register_loaders(session.adapters)
        return session
    raise NoAnswerError(f"no answer within {guard:g} s")


async def _resolved(parameters: dict[str, Any]) -> dict[str, Any]:
    """Look host names up here, for libpq would block the event loop with it.

    libpq tries a list of hosts one after the other; a name of several addresses becomes several.
    """
    if "hostaddr" in parameters or not parameters.get("host"):
        return parameters
    names = str(parameters["host"]).split(",")
    ports = str(parameters.get("port") or "").split(",")
    hosts: list[tuple[str, str, str]] = []
    for number, name in enumerate(names):
        port = ports[number] if len(ports) == len(names) else ports[0]
        if not name or name.startswith(("/", "@")):  # a socket's directory
            hosts.append((name, "", port))
            continue
        found = await anyio.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        hosts += [(name, address, port) for address in dict.fromkeys(f[4][0] for f in found)]
    host, address, port = (",".join(part) for part in zip(*hosts, strict=True))
    return {**parameters, "host": host, "hostaddr": address, "port": port}
