"""Hears what other processes have published, on a connection of its own. Only ever a hint: what it
misses is found by the poll."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import anyio

from inboxkit._core.haste import hasty
from inboxkit.abc import Clock, DriverConnection, Listening, Statement
from inboxkit.errors import DatabaseBusyError, DatabaseError, DialectError, StartupError

from .records import describe_error, log
from .running import bare_errors
from .waking import WakeHub

__all__ = ["Ear", "Listener", "listening"]

_LOOK = 15.0
"""Seconds of silence after which the session is asked whether its server still takes writes."""
_PAUSE = 1.0
"""Seconds between two tries to connect again."""
_LAST_WORD = 1.0
"""Seconds for the UNLISTEN at the end."""


class Ear(DriverConnection, Listening, Protocol):
    """A session that listens."""


class Listener:
    """Wakes subscriptions by notifications.

    Args:
        connect: Opens a session outside of the pool.
        channels: By channel, the names under which its table has subscriptions.
        wakes: Who is woken.
        clock: Times the tries to connect again.
        is_read_only: Asks a session whether its server takes no writes, with one value: a former primary
            goes on without a word, and nobody notifies there any more.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[DriverConnection]],
        channels: Mapping[str, Collection[str]],
        wakes: WakeHub,
        clock: Clock,
        is_read_only: Statement,
    ) -> None:
        self._is_read_only = is_read_only
        self._connect = connect
        self._channels = channels
        self._wakes = wakes
        self._clock = clock
        self._ear: Ear | None = None

    async def open(self) -> None:
        """Listen on all channels.

        Raises:
            StartupError: The database refuses.
        """
        try:
            self._ear = await self._listen()
        except DatabaseError as error:
            raise StartupError(f"cannot listen for notifications: {error}") from error

    async def run(self) -> None:
        """Wake whom notifications are for; connect again where the connection is lost. Until cancelled."""
        while True:
            try:
                await self._hear()
            except DatabaseError as error:
                text = "notifications are not heard (%s); connecting again each second"
                log(logging.WARNING, text, describe_error(error))
            await self._come_back()

    async def aclose(self) -> None:
        """Say goodbye, within a bound."""
        ear, self._ear = self._ear, None
        if ear is None or ear.is_closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                with hasty(anyio.move_on_after(_LAST_WORD)):
                    await ear.execute(Statement("unlisten", "UNLISTEN *", returns_rows=False))
            except DatabaseError as error:
                log(logging.DEBUG, "UNLISTEN failed: %s", describe_error(error))
            finally:
                await ear.close()

    async def _listen(self) -> Ear:
        connection = await self._connect()
        try:
            if not isinstance(connection, Listening):
                raise DialectError(
                    f"listen_notify: {type(connection).__name__} hears no notifications"
                )
            for channel in self._channels:
                await connection.listen(channel)
        except BaseException:
            connection.terminate()
            raise
        return connection  # pyright: ignore[reportReturnType]

    async def _hear(self) -> None:
        assert self._ear is not None
        while True:
            with anyio.move_on_after(_LOOK) as silence:
                await self._ear.notified()
            if silence.cancelled_caught:
                await self._check_writable(self._ear)
            for told in dict.fromkeys(self._ear.notifications()):
                for table in self._channels.get(told.channel, ()):
                    self._wakes.notify(table, told.payload or None)

    async def _check_writable(self, ear: Ear) -> None:
        answer = await ear.execute(self._is_read_only)
        if answer.rows[0][0]:
            raise DatabaseBusyError(
                "listen: the server has become read-only, as a former primary is",
                statement="listen",
            )

    async def _come_back(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.terminate()
        while self._ear is None:
            await self._clock.sleep(_PAUSE)
            try:
                ear = await self._listen()
                try:
                    await self._check_writable(ear)
                except BaseException:
                    ear.terminate()
                    raise
                self._ear = ear
            except (DatabaseError, StartupError) as error:
                log(logging.DEBUG, "cannot listen yet: %s", describe_error(error))
        log(logging.INFO, "notifications are heard again")
        # What was told in between is gone.
        for tables in self._channels.values():
            for table in tables:
                self._wakes.notify(table, None)


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[None]:
    """Listen for the length of a block.

    Raises:
        StartupError: The database refuses.
    """
    await listener.open()
    try:
        with bare_errors():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.run)
                yield
                tasks.cancel_scope.cancel()
    finally:
        await listener.aclose()
