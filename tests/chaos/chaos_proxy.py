"""A network of a test's own between workers and a server: it delays, stalls, goes dead one way, and cuts."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit, urlunsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.from_thread import BlockingPortal, start_blocking_portal

__all__ = ["WELL", "Proxy", "Weather", "proxied"]

_CLOSED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
_LARGEST = 65_536


@dataclass(frozen=True)
class Weather:
    """How the network is; for connections that are open too."""

    delay: float = 0.0
    """The longest that a piece is late, in seconds; the order is kept."""
    requests: bool = True
    """Whether what workers send arrives. What does not is kept, as a sender would repeat it."""
    answers: bool = True
    """Whether what the server sends arrives."""
    accepts: bool = True
    """Whether new connections reach the server; if not, they are accepted and hear nothing."""
    refuses: bool = False
    """Whether new connections are closed at once."""


WELL = Weather()


@dataclass(eq=False)
class _Line:
    """A connection through the proxy."""

    near: SocketStream
    far: SocketStream | None = None
    has_committed: bool = False
    """Whether a COMMIT went through whose answer did not yet."""
    tasks: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def cut(self) -> None:
        """Reset both ends: neither hears any more, and each knows at once."""
        for end in (self.near, self.far):
            if end is not None:
                raw = end.extra(SocketAttribute.raw_socket)
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.tasks.cancel()


class Proxy:
    """Takes connections on a port of its own, and passes them on; used from the test's thread.

    Attributes:
        port: Where it listens.
        cuts: Answers to a COMMIT that were cut.
    """

    def __init__(self, portal: BlockingPortal, target: tuple[str, int], random: Random) -> None:
        self.port = 0
        self.cuts = 0
        self._portal = portal
        self._target = target
        self._random = random
        self._weather = WELL
        self._changed = anyio.Event()
        self._lines: set[_Line] = set()
        self._to_cut = 0

    @property
    def weather(self) -> Weather:
        """How the network is now."""
        return self._weather

    def change(self, weather: Weather) -> None:
        """Change the network; what was kept back and may pass now, passes."""
        self._portal.call(self._change, weather)

    def cut(self, share: float = 1.0) -> int:
        """Reset this share of the open connections, at least one; return how many."""
        return self._portal.call(self._cut, share)

    def cut_commits(self, count: int) -> None:
        """Cut the answers to the next so many COMMITs, somewhere before their ends."""
        self._portal.call(self._cut_commits, count)

    def lines(self) -> int:
        """How many connections are open."""
        return len(self._lines)

    async def serve(self, host: str, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Pass connections on until cancelled."""
        listener = await anyio.create_tcp_listener(local_host=host)
        self.port = listener.extra(SocketAttribute.local_port)
        task_status.started()
        async with listener:
            await listener.serve(self._pass_on)

    def _change(self, weather: Weather) -> None:
        self._weather = weather
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _cut(self, share: float) -> int:
        lines = list(self._lines)
        count = min(len(lines), max(1, round(len(lines) * share)))
        for line in self._random.sample(lines, count):
            line.cut()
        return count

    def _cut_commits(self, count: int) -> None:
        self._to_cut = count

    async def _pass_on(self, near: SocketStream) -> None:
        line = _Line(near)
        self._lines.add(line)
        try:
            with line.tasks:
                async with near:
                    if self._weather.refuses:
                        return
                    while not self._weather.accepts:
                        await self._changed.wait()
                    async with await anyio.connect_tcp(*self._target) as far:
                        line.far = far
                        async with anyio.create_task_group() as both:
                            both.start_soon(self._requests, line, far)
                            both.start_soon(self._answers, line, far)
        except _CLOSED:
            return
        finally:
            self._lines.discard(line)

    async def _requests(self, line: _Line, far: SocketStream) -> None:
        while piece := await _received(line.near):
            await self._late()
            while not self._weather.requests:
                await self._changed.wait()
            if b"COMMIT" in piece:
                line.has_committed = True
            if not await _sent(far, piece):
                break
        line.tasks.cancel()

    async def _answers(self, line: _Line, far: SocketStream) -> None:
        while piece := await _received(far):
            await self._late()
            while not self._weather.answers:
                await self._changed.wait()
            if line.has_committed and self._to_cut > 0:
                self._to_cut -= 1
                self.cuts += 1
                await _sent(line.near, piece[: self._random.randrange(len(piece))])
                line.cut()
                return
            line.has_committed = False
            if not await _sent(line.near, piece):
                break
        line.tasks.cancel()

    async def _late(self) -> None:
        if self._weather.delay:
            await anyio.sleep(self._random.uniform(0.0, self._weather.delay))


async def _received(stream: SocketStream) -> bytes:
    """What came; empty at the end."""
    with suppress(*_CLOSED):
        return await stream.receive(_LARGEST)
    return b""


async def _sent(stream: SocketStream, piece: bytes) -> bool:
    with suppress(*_CLOSED):
        if piece:
            await stream.send(piece)
        return True
    return False


@contextmanager
def proxied(url: str, *, seed: int, host: str = "127.0.0.1") -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of a URL, and the URL of the database behind it.

    Args:
        url: The server's, by TCP.
        seed: Of its delays, and of where answers are cut.
        host: The address it listens on.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    account = f"{parts.netloc.rpartition('@')[0]}@"
    with start_blocking_portal() as portal:
        proxy = Proxy(portal, (parts.hostname, parts.port), Random(seed))
        serving, _ = portal.start_task(proxy.serve, host)
        try:
            yield proxy, urlunsplit(parts._replace(netloc=f"{account}{host}:{proxy.port}"))
        finally:
            serving.cancel()
