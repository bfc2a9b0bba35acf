"""Drives psycopg's protocol generators by waiting for sockets with anyio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import anyio
from psycopg.abc import RV, PQGen, PQGenConn
from psycopg.waiting import Ready, Wait

from inboxkit._db.sockets import is_ready

__all__ = ["Exchange", "is_ready"]


class Exchange(Generic[RV]):
    """One exchange with the server, advanced step by step.

    Between two steps nothing waits, so a cancelled step leaves the exchange where it was, to be
    continued or given up.

    Args:
        generator: What psycopg would drive; it says what it waits for, on which socket if that may
            change.
        socket: The socket where the generator does not say.
    """

    def __init__(self, generator: PQGen[RV] | PQGenConn[RV], socket: int = -1) -> None:
        self._generator: Any = generator
        self._socket = socket
        self._wait = Wait.R
        self._result: RV
        self._error: BaseException | None = None
        self._is_done = False
        self._advance(lambda: next(self._generator))

    def is_done(self) -> bool:
        """Whether it has come to its end: with a result, or with an error."""
        return self._is_done

    def result(self) -> RV:
        """The generator's result; raises its error."""
        if self._error is not None:
            raise self._error
        return self._result

    async def step(self) -> None:
        """Wait until the socket is ready, and go on."""
        ready = await _until_ready(self._socket, self._wait)
        self._advance(lambda: self._generator.send(ready))

    async def finish(self) -> RV:
        """Go on to the end."""
        while not self._is_done:
            await self.step()
        return self.result()

    def close(self) -> None:
        """Give the generator up."""
        self._generator.close()

    def _advance(self, resume: Callable[[], Any]) -> None:
        try:
            wanted = resume()
        except StopIteration as stop:
            self._result = stop.value
            self._is_done = True
        except BaseException as error:  # noqa: BLE001 - raised by result()
            self._error = error
            self._is_done = True
        else:
            if isinstance(wanted, tuple):
                self._socket, wanted = wanted
            self._wait = Wait(wanted)


async def _until_ready(socket: int, wait: Wait) -> Ready:
    if wait == Wait.R:
        await anyio.wait_readable(socket)
        return Ready.R
    if wait == Wait.W:
        await anyio.wait_writable(socket)
        return Ready.W
    return await _until_readable_or_writable(socket)


async def _until_readable_or_writable(socket: int) -> Ready:
    """A long statement, whose text does not fit into the socket's buffer at once."""
    ready = 0

    async def note(waiting: Callable[[int], Any], bit: Ready) -> None:
        nonlocal ready
        await waiting(socket)
        ready |= bit
        both.cancel_scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(note, anyio.wait_readable, Ready.R)
        both.start_soon(note, anyio.wait_writable, Ready.W)
    return Ready(ready)
