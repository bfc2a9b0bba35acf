"""One cell is a driver on a backend; every rule of the port holds in every cell."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import pytest

from inboxkit.clock import SystemClock
from inboxkit.database import Database

T = TypeVar("T")

CELLS = [
    ("aiosqlite", "asyncio"),
    ("thread", "asyncio"),
    ("thread", "trio"),
    ("asyncpg", "asyncio"),
    ("psycopg", "asyncio"),
    ("psycopg", "trio"),
    ("asyncmy", "asyncio"),
    ("pymysql", "trio"),
]
POSTGRES = ("asyncpg", "psycopg")
MYSQL = ("asyncmy", "pymysql")


class WatchedClock(SystemClock):
    """Knows what is in flight, and what ever was."""

    def __init__(self) -> None:
        self.in_flight: list[str] = []
        self.labels: list[str] = []
        self.on_enter: Callable[[str], None] = lambda label: None

    def external(self, label: str) -> AbstractContextManager[None]:
        @contextmanager
        def bracket() -> Iterator[None]:
            self.labels.append(label)
            self.in_flight.append(label)
            self.on_enter(label)
            try:
                yield
            finally:
                self.in_flight.remove(label)

        return bracket()


@dataclass(frozen=True)
class Cell:
    """A driver, a backend, and an empty database."""

    driver: str
    backend: str
    url: str
    clock: WatchedClock = field(default_factory=WatchedClock)

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgres")

    @property
    def is_mysql(self) -> bool:
        """MariaDB too."""
        return self.url.startswith("mysql")

    @property
    def serial(self) -> str:
        if self.is_mysql:
            return "integer AUTO_INCREMENT PRIMARY KEY"
        return "serial PRIMARY KEY" if self.is_postgres else "integer PRIMARY KEY"

    @property
    def slow(self) -> str:
        """A statement that runs for many seconds unless it is stopped."""
        if self.is_postgres:
            return "SELECT pg_sleep(20)"
        if self.is_mysql:
            return "SELECT sleep(20)"
        return (
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000000) "
            "SELECT count(*) FROM c"
        )

    @property
    def commit(self) -> bytes:
        """What a client sends to commit."""
        return b"COMMIT\0" if self.is_postgres else b"\x03COMMIT"

    def database(self, url: str | None = None, **settings: Any) -> Database:
        return Database(url or self.url, clock=self.clock, random=random.Random(0), **settings)

    def start(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run a main on the backend; nothing may be in flight afterwards."""

        async def bounded() -> T:
            with anyio.fail_after(25):
                return await main()

        result = anyio.run(bounded, backend=self.backend)
        assert self.clock.in_flight == []
        return result

    def run(self, main: Callable[[Database], Awaitable[T]], **settings: Any) -> T:
        """Run a main on an open database."""

        async def opened() -> T:
            async with self.database(**settings) as db:
                return await main(db)

        return self.start(opened)


def _cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    driver, backend, *server = request.param
    if driver in MYSQL:
        location = request.getfixturevalue(f"emptied_{server[0] if server else 'mariadb'}")
        return Cell(driver, backend, f"mysql+{driver}://{location}")
    if driver in POSTGRES:
        location = request.getfixturevalue("emptied_postgres")
        return Cell(driver, backend, f"postgresql+{driver}://{location}")
    return Cell(driver, backend, f"sqlite+{driver}:///{tmp_path / 'test.db'}")


def _params(*drivers: str, more: tuple[tuple[str, ...], ...] = ()) -> list[Any]:
    cells = [*(cell for cell in CELLS if cell[0] in drivers), *more]
    return [pytest.param(cell, id="-".join(cell)) for cell in cells]


@pytest.fixture(params=_params("aiosqlite", "thread", *POSTGRES, *MYSQL))
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    return _cell(request, tmp_path)


@pytest.fixture(params=_params("aiosqlite", "thread"))
def sqlite_cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    return _cell(request, tmp_path)


@pytest.fixture(params=_params(*POSTGRES))
def postgres_cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    return _cell(request, tmp_path)


@pytest.fixture(params=_params(*POSTGRES, *MYSQL))
def server_cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    return _cell(request, tmp_path)


@pytest.fixture(params=_params(*MYSQL, more=(("asyncmy", "asyncio", "mysql"),)))
def mysql_cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    """Both drivers on MariaDB, and one on MySQL."""
    return _cell(request, tmp_path)


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Proxy:
    """Stands between a client and a server, and can be told to lose things."""

    port = 0
    is_black_hole = False
    """Everything is swallowed from now on."""
    loses_reply_to: bytes | None = None
    """What the client sends with these bytes in it reaches the server; its answer is not passed on,
    and the connection is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._age = 0

    def forget(self) -> None:
        """As a firewall does with idle connections: what is sent in those there are is answered by
        their end."""
        self._age += 1

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        cutting = False
        age = self._age

        async def send() -> None:
            nonlocal cutting
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for data in client:
                    if age != self._age:
                        break
                    if not self.is_black_hole:
                        cutting = self.loses_reply_to is not None and self.loses_reply_to in data
                        await server.send(data)
            both.cancel_scope.cancel()

        async def receive() -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for data in server:
                    if cutting:
                        break
                    if not self.is_black_hole:
                        await client.send(data)
            both.cancel_scope.cancel()

        try:
            async with (
                await anyio.connect_tcp(*self._server) as server,
                anyio.create_task_group() as both,
            ):
                both.start_soon(send)
                both.start_soon(receive)
        finally:
            await anyio.aclose_forcefully(client)


@pytest.fixture
def proxied() -> Callable[[Cell], Any]:
    """An async context manager: a proxy before the cell's server, and the URL through it."""

    @asynccontextmanager
    async def proxied(cell: Cell) -> AsyncIterator[tuple[Proxy, str]]:
        scheme, _, rest = cell.url.partition("://")
        user_host, _, database = rest.partition("/")
        user, _, host = user_host.rpartition("@")
        name, _, port = host.partition(":")
        proxy = Proxy(name, int(port or 5432))
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        proxy.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as serving:
            serving.start_soon(listener.serve, proxy.serve)
            yield proxy, f"{scheme}://{user}@127.0.0.1:{proxy.port}/{database}"
            serving.cancel_scope.cancel()

    return proxied
