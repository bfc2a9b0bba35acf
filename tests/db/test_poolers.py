"""Services behind a real pgbouncer: what needs sessions of its own is refused where there are none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from inboxkit import Broker, Inbox, InboxQueue, Outcome, Service, ack, retry, role, subscriber
from inboxkit._db.poolers import refuse_transaction_pooling
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.contrib.asyncpg import AsyncpgDatabase
from inboxkit.contrib.sqlalchemy import SQLAlchemyDatabase
from inboxkit.database import Database
from inboxkit.errors import DialectError
from inboxkit_testing.servers import required_servers

SETTINGS = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = any
pool_mode = {mode}
default_pool_size = 4
unix_socket_dir =
"""


@pytest.fixture
def pooler(shared_postgres_url: str) -> Iterator[Callable[[str], str]]:
    """Start pgbouncer in a mode; answers the database's place behind it."""
    command = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if command is None:
        if "pgbouncer" in required_servers():
            pytest.fail("INBOXKIT_REQUIRE lists pgbouncer, which is not installed", pytrace=False)
        pytest.skip("pgbouncer is not installed")
    server = urlsplit(shared_postgres_url)
    started: list[subprocess.Popen[str]] = []
    folder = Path(tempfile.mkdtemp(prefix="inboxkit-pgbouncer-"))
    folder.chmod(0o755)

    def start(mode: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = free.getsockname()[1]
        settings = folder / f"{mode}.ini"
        settings.write_text(
            SETTINGS.format(
                host=server.hostname,
                port=server.port,
                user=server.username,
                password=f" password={unquote(server.password)}" if server.password else "",
                listen=listen,
                mode=mode,
            )
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [command, *user, str(settings)], stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "process up" in line:
                return f"someone@127.0.0.1:{listen}{server.path}"
        pytest.fail(f"pgbouncer did not start:\n{said}")

    yield start
    for process in started:
        process.kill()
        process.communicate()
    shutil.rmtree(folder)


DRIVERS = [("asyncpg", "asyncio"), ("psycopg", "trio")]


class Leased(Inbox, table="pooled_leased"):
    """Under leases."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()


class Fifo(Inbox, table="pooled_fifo"):
    """In order."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="pooled_locked"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="pooled_keyed", advisory_lock="pooled-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


TABLES = {"lease": Leased, "FIFO": Fifo, "row lock": Locked, "advisory": Keyed}
LEFT = """
SELECT pg_backend_pid(), current_setting('statement_timeout'),
       (SELECT count(*) FROM pg_prepared_statements)
"""
"""What others find in a session."""


async def make(server: str, kind: Any) -> None:
    """Its table, anew."""
    async with Database(f"postgresql+psycopg://{server}") as db:
        await db.execute(f"DROP TABLE IF EXISTS {kind.spec.table}")
        for statement in create_table(get_dialect("postgres"), kind.spec):
            await db.execute(statement)


async def handle_twenty(database: Database, kind: Any, *, listen: bool = False) -> list[int]:
    """Have a service handle twenty rows, each of which fails once where they can wait."""
    queue = InboxQueue(kind, "a", int)
    seen: list[int] = []
    done = anyio.Event()

    @subscriber(queue)
    async def handle(n: int) -> Outcome:
        if kind is Leased and seen.count(n) == 0 and n < 5:
            seen.append(n)
            return retry()
        seen.append(n)
        if len(set(seen)) == 20 and len(seen) >= 20 + 5 * (kind is Leased):
            done.set()
        return ack()

    broker = Broker(database, poll_interval=timedelta(seconds=0.2), listen_notify=listen)
    app = Service("service", broker)
    app.include(handle, workers=1 if kind is Fifo else 3)
    async with app.running():
        async with database.transaction() as tx:
            for n in range(10):
                await app.broker.publish(queue, n, within=tx)
        for n in range(10, 20):
            await app.broker.publish(queue, n)
        with anyio.fail_after(30):
            await done.wait()
    return seen


def left_behind(place: str) -> list[tuple[Any, ...]]:
    """What clients of the pooler find in its sessions, as others than ours would look."""
    url = f"postgresql://{place}"
    with ExitStack() as stack:
        clients = [
            stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(4)
        ]
        return [client.execute(LEFT.encode()).fetchone() or () for client in clients]


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
@pytest.mark.parametrize("form", ["lease", "FIFO", "row lock"])
def test_a_service_works_behind_a_pooler_of_transactions_and_leaves_nothing_in_its_sessions(
    pooler: Callable[[str], str], postgres_database: str, form: str, driver: str, backend: str
) -> None:
    place, kind = pooler("transaction"), TABLES[form]
    before = left_behind(place)
    assert len({pid for pid, *_ in before}) == 4

    async def main() -> list[int]:
        await make(postgres_database, kind)
        async with Database(f"postgresql+{driver}://{place}", pool_size=4) as db:
            seen = await handle_twenty(db, kind)
            assert await db.fetch_value(f"SELECT count(*) FROM {kind.spec.table}") == 0
            # Many times, as a driver prepares what it has seen before.
            async with db.connection() as one, db.connection() as other:
                for n in range(8):
                    assert await one.fetch_value("SELECT $1::int", n) == n
                    assert await other.fetch_value("SELECT $1::int + 1", n) == n + 1
            return seen

    seen = anyio.run(main, backend=backend)
    assert set(seen) == set(range(20))
    assert len(seen) == 20 + 5 * (form == "lease")
    if form == "FIFO":
        assert seen == list(range(20))
    assert sorted(left_behind(place)) == sorted(before)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
def test_a_transaction_of_a_script_has_its_time_behind_a_pooler(
    pooler: Callable[[str], str], driver: str, backend: str
) -> None:
    def steps(_: Reading) -> Generator[Statement, Answer, str]:
        answer = yield Statement("timeout", "SELECT current_setting('statement_timeout')")
        return str(answer.rows[0][0])

    async def main() -> tuple[str, str]:
        url = f"postgresql+{driver}://{pooler('transaction')}"
        async with Database(url, statement_timeout=timedelta(seconds=7)) as db:
            inside = await db.run(Script("timeout", steps))
            return inside, str(await db.fetch_value("SELECT current_setting('statement_timeout')"))

    assert anyio.run(main, backend=backend) == ("7s", "0")


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_a_service_of_advisory_locks_starts_behind_a_pooler_of_sessions_alone(
    pooler: Callable[[str], str], postgres_database: str, mode: str, driver: str, backend: str
) -> None:
    async def main() -> list[int]:
        await make(postgres_database, Keyed)
        return await handle_twenty(
            Database(f"postgresql+{driver}://{pooler(mode)}", pool_size=4), Keyed
        )

    if mode == "session":
        assert sorted(anyio.run(main, backend=backend)) == list(range(20))
        return
    cure = "advisory lock form" if mode == "transaction" else "pool transactions or sessions"
    with pytest.raises(DialectError, match=f"pool_mode = (transaction or )?statement.*{cure}"):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
def test_a_service_that_listens_does_not_start_behind_a_pooler_of_transactions(
    pooler: Callable[[str], str], postgres_database: str, driver: str, backend: str
) -> None:
    async def main() -> None:
        await make(postgres_database, Leased)
        url = f"postgresql+{driver}://{pooler('transaction')}"
        await handle_twenty(Database(url, pool_size=4), Leased, listen=True)

    with pytest.raises(DialectError, match=r"pool_mode = transaction.*leave listen_notify out"):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("over", ["pool", "engine"])
def test_sessions_of_others_that_prepare_are_refused_with_what_to_set(
    pooler: Callable[[str], str], postgres_database: str, over: str, size: int
) -> None:
    place = pooler("transaction")

    async def main() -> list[int]:
        await make(postgres_database, Leased)
        if over == "pool":
            async with asyncpg.create_pool(
                f"postgresql://{place}", statement_cache_size=size, min_size=1
            ) as pool:
                return await handle_twenty(AsyncpgDatabase(pool), Leased)
        engine = create_async_engine(
            f"postgresql+asyncpg://{place}",
            connect_args={"statement_cache_size": size, "prepared_statement_cache_size": 0},
        )
        try:
            return await handle_twenty(SQLAlchemyDatabase(engine), Leased)
        finally:
            await engine.dispose()

    if size == 0:
        assert set(anyio.run(main)) == set(range(20))
        return
    with pytest.raises(DialectError, match=r"a pooler stands between.*statement_cache_size"):
        anyio.run(main)


def check(url: str, backend: str, *, pool_size: int = 3) -> int:
    """Run the check; answers how many sessions it left in use."""

    async def main() -> int:
        async with Database(url, pool_size=pool_size) as db:
            await refuse_transaction_pooling(db)
            assert db._pool is not None
            return db._pool.in_use

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_poolers_of_sessions_alone_are_served(
    pooler: Callable[[str], str], mode: str, driver: str, backend: str
) -> None:
    url = f"postgresql+{driver}://{pooler(mode)}"
    if mode == "session":
        assert check(url, backend) == 0
        with pytest.raises(DialectError, match="pool_size=1"):
            check(url, backend, pool_size=1)
        return
    with pytest.raises(DialectError, match=r"pool_mode = transaction or statement.*locked_until"):
        check(url, backend)


@pytest.mark.parametrize(("driver", "backend"), DRIVERS)
def test_server_itself_is_served_on_one_connection(
    postgres_database: str, driver: str, backend: str
) -> None:
    assert check(f"postgresql+{driver}://{postgres_database}", backend, pool_size=1) == 0
