"""One small pool for every driver: fair, lazily grown, and nothing leaks under cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import anyio

from inboxkit._core.haste import hasty
from inboxkit._db.backend import current_task_id
from inboxkit._db.turnstile import Turnstile
from inboxkit.abc import Driver, DriverConnection
from inboxkit.errors import (
    ClosedError,
    ConnectError,
    DatabaseBusyError,
    DatabaseError,
    PoolTimeoutError,
)

__all__ = ["Pool"]

_PATIENCE = 30.0
"""Seconds that a task waits for a connection."""
_GRACE = 5.0
"""Seconds that a closing pool waits for connections in use; then it drops them."""


@runtime_checkable
class Moving(Protocol):
    """A `Driver` whose connections are somebody else's, who may have some ready."""

    async def move(self) -> None:
        """Hand out none of those that are ready: their server has become read-only."""
        ...


class Pool:
    """Connections of one driver.

    The one used last is handed out first, so that the others may fall asleep; who waits longest is
    served first.

    Args:
        driver: Opens the connections.
        size: Most connections at once; a driver that knows a smaller number has its way.
    """

    def __init__(self, driver: Driver, *, size: int) -> None:
        self._driver = driver
        self._size = min(size, driver.max_connections or size)
        self._places = Turnstile(self._size)
        self._idle: list[DriverConnection] = []
        self._holders: dict[int, tuple[DriverConnection, int]] = {}
        """By the connection's identity: the connection, and the task that took it."""
        self._has_moved = False
        """Whether a server has become read-only since the last connection was opened."""
        self._is_closed = False
        self._all_back: anyio.Event | None = None

    @property
    def size(self) -> int:
        """Most connections at once."""
        return self._size

    @property
    def in_use(self) -> int:
        """How many connections are handed out, or being opened to be."""
        return self._places.inside

    async def open(self) -> None:
        """Open the first connection, so that a wrong address is known at once.

        Raises:
            ConnectError: The database could not be reached.
        """
        self._idle.append(await self._driver.connect())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[DriverConnection]:
        """Lend a connection for a block."""
        connection = await self.acquire()
        try:
            yield connection
        finally:
            await self.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[DriverConnection]:
        """Lend a connection inside a transaction for a block; what is not committed is rolled back."""
        connection = await self.begin()
        try:
            yield connection
        finally:
            await self.release(connection)

    async def begin(self, *, hold: bool = False) -> DriverConnection:
        """Take a connection, which must be given to `release` again, and begin a transaction on it.

        One that was idle may have ended unnoticed: where the BEGIN finds that, it is repeated on a new
        one, once, since nothing else was sent. What ended one, a restart of the server or a firewall,
        mostly ended all, so the other idle ones are dropped too.

        Args:
            hold: As for `DriverConnection.begin`.

        Raises:
            DatabaseError: As `acquire` does, and `DriverConnection.begin`.

        Cancellation:
            Leaks nothing.
        """
        connection = await self.acquire()
        try:
            await connection.begin(hold=hold)
        except DatabaseBusyError:
            has_ended = connection.is_closed
            await self.release(connection)
            if not has_ended:
                raise
        except BaseException:
            await self.release(connection)
            raise
        else:
            return connection
        self._drop_idle()
        connection = await self.acquire()
        try:
            await connection.begin(hold=hold)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def acquire(self, *, wait: bool = True, is_urgent: bool = False) -> DriverConnection:
        """Take a connection, which must be given to `release` again.

        Args:
            wait: Whether to wait until one is free.
            is_urgent: Whether it goes before all who wait and are not urgent.

        Raises:
            PoolTimeoutError: None became free within 30 seconds, or was free.
            DatabaseBusyError: A new one was needed, and the database could not be reached.
            DatabaseError: This task itself holds all of them.
            ClosedError: The pool was closed.

        Cancellation:
            Leaks nothing.
        """
        task = current_task_id()
        self._check_open()
        if not self._places.enter_nowait():
            if not wait:
                raise PoolTimeoutError(f"all {self._size} connections of the pool are in use")
            self._check_not_waiting_for_itself(task)
            if not await self._places.enter(timeout=_PATIENCE, is_urgent=is_urgent):
                raise PoolTimeoutError(
                    f"no connection became free within {_PATIENCE:g} s: all {self._size} of the "
                    "pool are in use; raise Database(pool_size=…), or hold them for shorter"
                )
            if self._is_closed:  # meanwhile
                self._places.leave()
                self._check_open()
        connection = self._take_idle()
        if connection is None:
            try:
                connection = await self._connect()
            except BaseException:
                self._places.leave()
                raise
        self._holders[id(connection)] = connection, task
        return connection

    async def release(self, connection: DriverConnection) -> None:
        """Take a connection back; one inside a transaction is rolled back first.

        One whose server has become read-only is dropped with the idle ones: after a fail-over a new one
        may lead elsewhere, and all of these stay where they are. One whose settings its user has changed is
        closed: a claim on it would read and write times in another time zone.

        Cancellation:
            The connection is back in any case, or closed.
        """
        try:
            # Of a `Movable`; an isinstance of a protocol would cost as much as the rest of this.
            if getattr(connection, "is_misplaced", False):
                connection.terminate()
                self._has_moved = True
                self._drop_idle()
            if connection.in_transaction and not connection.is_closed:
                await connection.rollback()
            if self._is_closed or getattr(connection, "is_altered", False):
                await connection.close()
        except BaseException:
            connection.terminate()
            raise
        finally:
            del self._holders[id(connection)]
            if not connection.is_closed:
                self._idle.append(connection)
            self._places.leave()
            if self._all_back is not None and not self._holders:
                self._all_back.set()

    async def aclose(self) -> None:
        """Close all connections: idle ones now, the others when they come back, or after 5 seconds."""
        self._is_closed = True
        if self._holders:
            self._all_back = anyio.Event()
            with hasty(anyio.move_on_after(_GRACE, shield=True)):
                await self._all_back.wait()
        for connection, _ in self._holders.values():
            connection.terminate()
        idle, self._idle = self._idle, []
        if len(idle) == 1:
            await idle[0].close()
            return
        async with anyio.create_task_group() as closing:
            for connection in idle:
                closing.start_soon(connection.close)

    def _take_idle(self) -> DriverConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        return None

    async def _connect(self) -> DriverConnection:
        self._check_open()
        has_moved, self._has_moved = self._has_moved, False
        if has_moved and isinstance(self._driver, Moving):
            await self._driver.move()
        try:
            connection = await self._driver.connect()
        except ConnectError as error:
            raise DatabaseBusyError(f"{error}; nothing happened") from error
        if self._is_closed:
            await connection.close()
            self._check_open()
        return connection

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the database was closed")

    def _check_not_waiting_for_itself(self, task: int) -> None:
        holders = {holder for _, holder in self._holders.values()}
        if len(self._holders) == self._size and holders == {task}:
            which = "the only connection" if self._size == 1 else f"all {self._size} connections"
            raise DatabaseError(
                f"this task already holds {which} of the pool and would wait for itself; use the "
                "open transaction's own methods (tx.execute, publish(within=tx)) inside its block"
            )
