"""httpx in virtual time: over sockets to a server in a thread of its own, and within the loop."""

from __future__ import annotations

import http.server
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

import inboxkit_testing
from inboxkit.errors import MissingExtraError
from inboxkit_testing import ClockStalledError, VirtualClock, run
from inboxkit_testing.backends import BackendName

httpx = pytest.importorskip("httpx")

from inboxkit_testing import BracketedTransport  # noqa: E402 - needs httpx


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    release = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/hang":
            self.release.wait(20)
        else:
            time.sleep(0.002)  # as a server elsewhere: by then an idle loop has looked for work
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"one")
        time.sleep(0.002)
        self.wfile.write(b"two")

    def do_POST(self) -> None:
        received = b""
        while size := int(self.rfile.readline(), 16):
            received += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.send_response(200)
        self.send_header("Content-Length", str(len(received)))
        self.end_headers()
        self.wfile.write(received)

    def log_message(self, format: str, *args: object) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what is tested."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            Handler.release.set()
            server.shutdown()
            thread.join()


def beside_a_ticker(
    backend: BackendName, main: Callable[[Any, VirtualClock], Awaitable[None]], **options: Any
) -> VirtualClock:
    """Run a main with a client, while somebody else waits for each second."""
    clock = VirtualClock(stall=0.3)
    client_options = {"timeout": options.pop("timeout", 5)}

    async def tick() -> None:
        for _ in range(1000):
            await anyio.sleep(1)

    async def opened() -> None:
        transport = BracketedTransport(httpx.AsyncHTTPTransport(**options), clock)
        async with (
            anyio.create_task_group() as tasks,
            httpx.AsyncClient(transport=transport, **client_options) as client,
        ):
            tasks.start_soon(tick)
            await main(client, clock)
            tasks.cancel_scope.cancel()

    run(opened, backend=backend, clock=clock)
    assert not clock.keeper.is_busy()
    return clock


def test_time_stands_while_a_request_is_in_flight(backend: BackendName, server: str) -> None:
    async def main(client: Any, clock: VirtualClock) -> None:
        async def ask() -> None:
            assert (await client.get(server)).content == b"onetwo"

        for _ in range(5):
            await ask()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        assert clock.monotonic() == 0
        await clock.sleep(3)

    clock = beside_a_ticker(backend, main, timeout=0.001)
    assert clock.monotonic() == 3


def test_time_passes_between_the_parts_of_a_body(backend: BackendName, server: str) -> None:
    async def main(client: Any, clock: VirtualClock) -> None:
        async with client.stream("GET", server) as response:
            async for _ in response.aiter_bytes(3):
                await clock.sleep(50)
        assert clock.monotonic() == 100

        async def slowly() -> AsyncIterator[bytes]:
            yield b"a"
            await clock.sleep(50)
            yield b"b"

        assert (await client.post(server, content=slowly())).content == b"ab"
        assert clock.monotonic() == 150
        async with client.stream("GET", server):
            await clock.sleep(1)  # and the rest is not read

    beside_a_ticker(backend, main)


def test_timeouts_that_do_not_hang_on_an_answer_are_in_virtual_time(
    backend: BackendName, server: str
) -> None:
    async def main(client: Any, clock: VirtualClock) -> None:
        async with client.stream("GET", server):
            with pytest.raises(httpx.PoolTimeout):
                await client.get(server)
            assert clock.monotonic() == 5
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}")
        assert clock.monotonic() == 5.5  # tried again at once, and half a second later

    beside_a_ticker(backend, main, limits=httpx.Limits(max_connections=1), retries=2)


def test_an_answer_that_never_comes_is_a_stall_that_names_the_request(
    backend: BackendName, server: str
) -> None:
    async def main(client: Any, clock: VirtualClock) -> None:
        await client.get(f"{server}/hang")

    with pytest.raises(ClockStalledError, match=r"in flight: 'GET http://127\.0\.0\.1:\d+/hang'"):
        beside_a_ticker(backend, main)


def test_a_cancelled_request_holds_no_time(backend: BackendName, server: str) -> None:
    async def main(client: Any, clock: VirtualClock) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, f"{server}/hang")
            while not clock.keeper.is_busy():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await clock.sleep(7)

    assert beside_a_ticker(backend, main).monotonic() == 7


def test_within_the_loop_time_may_pass(backend: BackendName) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await anyio.sleep(3)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def answer(request: Any) -> Any:
        await anyio.sleep(4)
        return httpx.Response(204)

    async def main() -> None:
        for transport in (httpx.ASGITransport(application), httpx.MockTransport(answer)):
            bracketed = BracketedTransport(transport, clock)
            async with httpx.AsyncClient(transport=bracketed, base_url="http://service") as client:
                assert (await client.get("/")).status_code == 204
        assert clock.monotonic() == 7

    clock = VirtualClock(stall=0.3)
    run(main, backend=backend, clock=clock)


def test_traces_of_the_users_own_go_on(server: str) -> None:
    seen: list[str] = []

    async def trace(event: str, info: Any) -> None:
        seen.append(event)

    async def main(client: Any, clock: VirtualClock) -> None:
        await client.get(server, extensions={"trace": trace})

    beside_a_ticker("asyncio", main)
    assert "http11.receive_response_body.complete" in seen


def test_without_httpx_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "inboxkit_testing.bracketing")
    monkeypatch.delattr(inboxkit_testing, "BracketedTransport")
    with pytest.raises(MissingExtraError, match=r"pip install 'inboxkit\[httpx\]'"):
        _ = inboxkit_testing.BracketedTransport


def test_a_clock_and_a_transport_in_the_wrong_places_are_told_at_once() -> None:
    wrong: Any = [(VirtualClock(), httpx.AsyncHTTPTransport()), (httpx.AsyncHTTPTransport(), None)]
    for arguments in wrong:
        with pytest.raises(TypeError, match="takes a transport of httpx and a clock, not"):
            BracketedTransport(*arguments)
