"""An httpx transport that keeps virtual time still while a request is in flight."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from inboxkit.abc import Clock
from inboxkit.errors import MissingExtraError

try:
    import httpx
except ImportError as _error:
    raise MissingExtraError("httpx is not installed: pip install 'inboxkit[httpx]'") from _error

__all__ = ["BracketedTransport"]

_IN_PROCESS = (httpx.ASGITransport, httpx.MockTransport)
_WAITS_FOR_TIME = "connection.retry."


class BracketedTransport(httpx.AsyncBaseTransport):
    """A transport around another one, for servers outside of this event loop.

        httpx.AsyncClient(transport=BracketedTransport(httpx.AsyncHTTPTransport(), clock))

    Virtual time stands still while something is awaited from the network: a connection, what is sent,
    the head and each part of the body of an answer. So a slow answer runs into none of httpx's
    timeouts, which are in virtual time, and one that never comes is a `ClockStalledError` that names
    the request. Time does pass while a request waits for a place in the pool, or before it is tried
    again, and between the parts of a body, whoever makes or reads them: these timeouts work.

    A server in the same loop needs no bracket, and could not wait for virtual time behind one. So
    `httpx.ASGITransport` and `httpx.MockTransport` are passed through.

    Args:
        transport: What sends the requests; it is closed with this one.
        clock: The time of the test, or of one of its hosts. With a clock in real time it does nothing.

    Raises:
        TypeError: These are not a transport and a clock.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, clock: Clock) -> None:
        if not hasattr(transport, "handle_async_request") or not hasattr(clock, "external"):
            raise TypeError(
                f"BracketedTransport takes a transport of httpx and a clock, not {transport!r} and "
                f"{clock!r}; write BracketedTransport(httpx.AsyncHTTPTransport(), virtual_clock)"
            )
        self._transport = transport
        self._clock = clock

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, and return when the head of its answer is there.

        Raises:
            httpx.TransportError: What the transport inside raises.
        """
        if isinstance(self._transport, _IN_PROCESS):
            return await self._transport.handle_async_request(request)
        flight = _Flight(self._clock, f"{request.method} {request.url}")
        is_traced = isinstance(self._transport, httpx.AsyncHTTPTransport)
        sent = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            stream=_Body(request.stream, flight),
            extensions=_traced(request.extensions, flight) if is_traced else request.extensions,
        )
        if not is_traced:
            flight.begin()
        try:
            response = await self._transport.handle_async_request(sent)
        finally:
            flight.end()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Answer(response.stream, flight)
        return response

    async def aclose(self) -> None:
        """Close the transport inside, and its connections."""
        with self._clock.external("aclose of httpx"):
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        with self._clock.external("aclose of httpx"):
            await self._transport.__aexit__(kind, error, traceback)


class _Flight:
    """The bracket of one request, opened and closed as it waits for the network or for us."""

    def __init__(self, clock: Clock, label: str) -> None:
        self._clock = clock
        self._label = label
        self._bracket: AbstractContextManager[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._bracket is not None

    def begin(self) -> None:
        if self._bracket is None:
            self._bracket = self._clock.external(self._label)
            self._bracket.__enter__()

    def end(self) -> None:
        bracket, self._bracket = self._bracket, None
        if bracket is not None:
            bracket.__exit__(None, None, None)


def _traced(extensions: dict[str, Any], flight: _Flight) -> dict[str, Any]:
    """As they are, and the flight follows what httpcore does: it waits for its pool as well."""
    theirs: Callable[[str, dict[str, Any]], Awaitable[None]] | None = extensions.get("trace")
    is_over = False

    async def trace(event: str, info: dict[str, Any]) -> None:
        nonlocal is_over
        # From the body on, the flight is that of its reader.
        is_over = is_over or ".receive_response_body." in event or ".response_closed." in event
        if not is_over:
            if event.endswith(".started") and not event.startswith(_WAITS_FOR_TIME):
                flight.begin()
            else:
                flight.end()
        if theirs is not None:
            await theirs(event, info)

    return {**extensions, "trace": trace}


class _Body(httpx.AsyncByteStream):
    """What is sent: whoever makes its parts may wait for the time."""

    def __init__(self, stream: Any, flight: _Flight) -> None:
        self._stream = stream
        self._flight = flight

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_awaited = self._flight.is_open
        self._flight.end()
        async for part in self._stream:
            if is_awaited:
                self._flight.begin()
            yield part
            self._flight.end()
        if is_awaited:
            self._flight.begin()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Answer(httpx.AsyncByteStream):
    """What is received: each part is awaited, and whoever reads them may wait for the time."""

    def __init__(self, stream: httpx.AsyncByteStream, flight: _Flight) -> None:
        self._stream = stream
        self._flight = flight

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._flight.begin()
        try:
            async for part in self._stream:
                self._flight.end()
                yield part
                self._flight.begin()
        finally:
            self._flight.end()

    async def aclose(self) -> None:
        self._flight.begin()
        try:
            await self._stream.aclose()
        finally:
            self._flight.end()
