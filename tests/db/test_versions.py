"""Servers and libraries that are too old are told by version and cure, when the database is opened."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest

from inboxkit import Broker, Database, DialectError, ServerTooOldError, Service
from inboxkit._db import versions


async def start(url: str) -> None:
    await Service("service", Broker(url)).run()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_server_that_is_too_old_stops_the_start(
    driver: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_POSTGRES", 99)
    with pytest.raises(
        ServerTooOldError, match=r"is PostgreSQL \d+, and inboxkit needs 99 or newer"
    ):
        anyio.run(start, f"postgresql+{driver}://{postgres_database}")


COCKROACH = "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)"


class Disguised:
    """Stands before a server, and has it say at connecting that it is CockroachDB."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        told = b"crdb_version\0" + COCKROACH.encode() + b"\0"
        message = b"S" + (len(told) + 4).to_bytes(4, "big") + told
        async with (
            client,
            await anyio.connect_tcp(*self._server) as server,
            anyio.create_task_group() as both,
        ):
            both.start_soon(self._pass_on, client, server, b"", both.cancel_scope)
            await self._pass_on(server, client, message, both.cancel_scope)

    async def _pass_on(
        self,
        one: anyio.abc.ByteStream,
        other: anyio.abc.ByteStream,
        message: bytes,
        scope: anyio.CancelScope,
    ) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in one:
                at = data.find(b"server_version\0") - 5 if message else -1
                if at < 0:
                    await other.send(data)
                    continue
                await other.send(data[:at] + message + data[at:])
                message = b""
        scope.cancel()


@pytest.mark.parametrize(
    ("driver", "backend"), [("asyncpg", "asyncio"), ("psycopg", "asyncio"), ("psycopg", "trio")]
)
def test_cockroach_is_refused_when_it_is_connected_to(
    driver: str, backend: str, postgres_database: str
) -> None:
    server = urlsplit(f"postgresql://{postgres_database}")

    async def main() -> None:
        disguised = Disguised(server.hostname or "", server.port or 5432)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        account = server.netloc.rpartition("@")[0]
        async with listener, anyio.create_task_group() as serving:
            serving.start_soon(listener.serve, disguised.serve)
            with pytest.raises(
                DialectError, match=r"the server is CockroachDB CCL v23\.1\.11, which"
            ):
                await start(f"postgresql+{driver}://{account}@127.0.0.1:{port}{server.path}")
            serving.cancel_scope.cancel()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("driver", ["aiosqlite", "thread"])
def test_a_library_that_is_too_old_stops_the_start(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ServerTooOldError, match=r"SQLite 3\.34\.1, and inboxkit needs 3\.35\.0"):
        anyio.run(start, f"sqlite+{driver}:///{tmp_path / 'x.db'}")
    assert not (tmp_path / "x.db").exists()


def test_the_oldest_that_are_served() -> None:
    versions.check_postgres(12)
    versions.check_sqlite((3, 35, 0))
    versions.check_mysql("MariaDB", (10, 6, 0))
    versions.check_mysql("MySQL", (8, 0, 1))
    with pytest.raises(ServerTooOldError):
        versions.check_postgres(11)
    with pytest.raises(ServerTooOldError):
        versions.check_mysql("MariaDB", (10, 5, 29))
    with pytest.raises(ServerTooOldError):
        versions.check_mysql("MySQL", (5, 7, 44))


def test_databases_of_today_are_served(with_database: object) -> None:
    async def test(db: Database) -> object:
        return await db.fetch_value("SELECT 1")

    assert callable(with_database)
    assert with_database(test) == 1
