# ruff: noqa: PT012 - what raises is the end of a block
"""Connections that break: idle, under a statement, at the COMMIT; and what may have happened then."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from typing import Any

import anyio
import psycopg
import pymysql
import pytest

from inboxkit._db import mysql as mysql_module
from inboxkit._db import mysql_session
from inboxkit._db import postgres as postgres_module
from inboxkit._db import psycopg as psycopg_module
from inboxkit._db.asyncmy import AsyncmyConnection
from inboxkit._db.mysql_url import read_target
from inboxkit._db.sockets import is_ready
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.database import Database
from inboxkit.errors import (
    ConnectError,
    DatabaseBusyError,
    DatabaseError,
    OutcomeUnknownError,
)


async def _kill_others(db: Database) -> None:
    if db.database.dialect == "mysql":  # type: ignore[attr-defined]
        listed = (
            "FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
        )
        for (session,) in await db.fetch(f"SELECT id {listed}"):
            await db.execute(f"KILL {session}")
        while await db.fetch(f"SELECT id {listed}"):
            await db.execute("DO sleep(0.001)")
        return
    await db.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )


async def _while_in_flight(cell: Any, call: Callable[[], Any], then: Callable[[], Any]) -> None:
    """Run `then` once the first statement of `call` runs on the server."""

    async def watch() -> None:
        await anyio.sleep(0.05)
        await then()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await call()


def test_killed_while_idle(server_cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.connection() as one, db.connection() as killer:
            await one.fetch("SELECT 1")
        async with db.connection() as killer:
            await _kill_others(killer)  # type: ignore[arg-type]
            assert db._pool is not None
            while not all(idle.is_closed for idle in db._pool._idle):  # the end is on its way
                await killer.fetch("SELECT 1")
            assert await db.fetch_value("SELECT 1") == 1

    server_cell.run(main, pool_size=2)


def test_transactions_begin_although_idle_connections_have_ended_unnoticed(
    server_cell: Any, proxied: Any
) -> None:
    async def main() -> None:
        async with (
            proxied(server_cell) as (proxy, url),
            server_cell.database(url, pool_size=3) as db,
        ):
            for _ in range(2):
                async with db.connection(), db.connection(), db.connection():
                    pass
                proxy.forget()
                async with db.transaction() as tx:
                    assert await tx.fetch_value("SELECT 1") == 1
                async with db.connection() as one, db.connection() as other:
                    assert await one.fetch_value("SELECT 1") == 1
                    assert await other.fetch_value("SELECT 1") == 1
            proxy.forget()
            held = await db.begin()
            assert held.in_transaction
            await db.release(held)
            assert db._pool is not None
            assert db._pool.in_use == 0

    server_cell.start(main)


def test_killed_under_a_lone_statement(server_cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.connection() as killer:

            async def call() -> None:
                with pytest.raises(OutcomeUnknownError, match="it may have happened") as caught:
                    await db.fetch(server_cell.slow)
                assert caught.value.statement == "fetch"
                assert caught.value.__cause__ is not None

            await _while_in_flight(server_cell, call, lambda: _kill_others(killer))  # type: ignore[arg-type]
        assert await db.fetch_value("SELECT 1") == 1

    server_cell.run(main, pool_size=2)


def test_killed_inside_a_transaction(server_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE t (x int)")
        async with db.connection() as killer:

            async def call() -> None:
                with pytest.raises(DatabaseBusyError, match="nothing happened"):
                    async with db.transaction() as tx:
                        await tx.execute("INSERT INTO t VALUES (1)")
                        await tx.fetch(server_cell.slow)

            await _while_in_flight(server_cell, call, lambda: _kill_others(killer))  # type: ignore[arg-type]
        assert await db.fetch("SELECT * FROM t") == []

    server_cell.run(main, pool_size=2)


def test_killed_before_the_commit(server_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE t (x int)")
        async with db.connection() as killer:
            with pytest.raises(DatabaseError):
                async with db.transaction() as tx:
                    await tx.execute("INSERT INTO t VALUES (1)")
                    await _kill_others(killer)  # type: ignore[arg-type]
        assert await db.fetch("SELECT * FROM t") == []

    server_cell.run(main, pool_size=2)


def test_the_reply_to_the_commit_is_lost(server_cell: Any, proxied: Any) -> None:
    called: list[str] = []

    async def main() -> None:
        async with server_cell.database() as db, proxied(server_cell) as (proxy, url):
            await db.execute("CREATE TABLE t (x int)")
            async with server_cell.database(url) as through:
                proxy.loses_reply_to = server_cell.commit
                with pytest.raises(OutcomeUnknownError, match="commit: "):
                    async with through.transaction() as tx:
                        tx.after_commit(lambda: called.append("never"))
                        await tx.execute("INSERT INTO t VALUES (1)")
                proxy.loses_reply_to = None
                assert await through.fetch("SELECT x FROM t") == [(1,)]
                proxy.loses_reply_to = server_cell.commit

                def steps(reading: Reading) -> Generator[Statement, Answer, None]:
                    yield Statement("insert", "INSERT INTO t VALUES (2)", (), False)

                with pytest.raises(OutcomeUnknownError, match="script: "):
                    await through.run(Script("script", steps))

                def read(reading: Reading) -> Generator[Statement, Answer, None]:
                    yield Statement("select", "SELECT 1")

                with pytest.raises(DatabaseBusyError, match="nothing happened"):
                    await through.run(Script("script", read, "read"))
            assert await db.fetch("SELECT x FROM t ORDER BY x") == [(1,), (2,)]

    server_cell.start(main)

    assert called == []


def test_the_reply_to_a_lone_statement_is_lost(server_cell: Any, proxied: Any) -> None:
    async def main() -> None:
        async with server_cell.database() as db, proxied(server_cell) as (proxy, url):
            await db.execute("CREATE TABLE t (x int)")
            async with server_cell.database(url) as through:
                proxy.loses_reply_to = b"INSERT"
                with pytest.raises(OutcomeUnknownError):
                    await through.execute("INSERT INTO t VALUES (1)")
                with pytest.raises(DatabaseBusyError):
                    async with through.transaction() as tx:
                        await tx.execute("INSERT INTO t VALUES (2)")
            assert await db.fetch("SELECT x FROM t") == [(1,)]

    server_cell.start(main)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "GRACE", -29.7)
    monkeypatch.setattr(psycopg_module, "GRACE", -29.7)
    monkeypatch.setattr(postgres_module, "_ROLLBACK_BOUND", 0.3)
    monkeypatch.setattr(mysql_session, "GRACE", -29.7)
    monkeypatch.setattr(mysql_session, "LAST_WORD", 0.1)
    monkeypatch.setattr(mysql_module, "_ROLLBACK_BOUND", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_network_that_swallows_everything(server_cell: Any, proxied: Any) -> None:
    async def main() -> None:
        async with proxied(server_cell) as (proxy, url), server_cell.database(url) as through:
            await through.execute("CREATE TABLE t (x int)")
            with pytest.raises(DatabaseBusyError, match="no answer within"):
                async with through.transaction() as tx:
                    proxy.is_black_hole = True
                    await tx.execute("INSERT INTO t VALUES (1)")
            proxy.is_black_hole = False
            with pytest.raises(OutcomeUnknownError, match="no answer within"):
                async with through.transaction() as tx:
                    await tx.execute("INSERT INTO t VALUES (1)")
                    proxy.is_black_hole = True
            proxy.is_black_hole = False
            with pytest.raises(OutcomeUnknownError):
                async with through.connection() as connection:
                    proxy.is_black_hole = True
                    await connection.fetch("SELECT 1")
            proxy.is_black_hole = False
            async with through.connection() as connection:
                proxy.is_black_hole = True
                with anyio.move_on_after(0.05):
                    await connection.fetch(server_cell.slow)
            proxy.is_black_hole = False
            assert await through.fetch_value("SELECT 1") == 1

    server_cell.start(main)


def test_locks_deadlocks_and_serialization_are_busy(postgres_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE t (x int PRIMARY KEY, y int)")
        await db.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
        busy: list[str | None] = []
        met = [anyio.Event(), anyio.Event()]

        async def crossing(first: int, second: int) -> None:
            try:
                async with db.transaction() as tx:
                    await tx.execute("SET LOCAL deadlock_timeout = '10ms'")
                    await tx.execute("UPDATE t SET y = y + 1 WHERE x = $1", first)
                    met[first - 1].set()
                    await met[second - 1].wait()
                    await tx.execute("UPDATE t SET y = y + 1 WHERE x = $1", second)
            except DatabaseBusyError as error:
                busy.append(getattr(error.__cause__, "sqlstate", None))

        async with anyio.create_task_group() as both:
            both.start_soon(crossing, 1, 2)
            both.start_soon(crossing, 2, 1)
        assert busy == ["40P01"]
        assert await db.fetch("SELECT DISTINCT y FROM t") == [(1,)]
        async with db.transaction() as holder, db.connection() as other:
            await holder.execute("UPDATE t SET y = 5")
            with pytest.raises(DatabaseBusyError):
                await other.fetch("SELECT * FROM t FOR UPDATE NOWAIT")
        with pytest.raises(DatabaseBusyError, match="serialize"):
            async with db.transaction() as tx:
                await tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                await tx.fetch("SELECT * FROM t")
                await db.execute("UPDATE t SET y = 6")
                await tx.execute("UPDATE t SET y = 7")

    postgres_cell.run(main)


def test_a_server_that_takes_nobody_more(postgres_cell: Any) -> None:
    async def main(db: Database) -> None:
        with psycopg.connect(
            f"postgresql://{postgres_cell.url.partition('://')[2]}", autocommit=True
        ) as admin:
            name = admin.info.dbname
            guest = f"guest_{uuid.uuid4().hex}"
            admin.execute(f"CREATE ROLE {guest} LOGIN PASSWORD 'guest'".encode())
            try:
                admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0".encode())
                scheme, _, location = postgres_cell.url.partition("://")
                url = f"{scheme}://{guest}:guest@{location.rpartition('@')[2]}"
                with pytest.raises(ConnectError, match="too many connections"):
                    await postgres_cell.database(url).open()
            finally:
                admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1".encode())
                admin.execute(f"DROP ROLE {guest}".encode())

    postgres_cell.run(main)


def test_dropped_between_preparation_and_execution(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another task, as a closing pool does it: asyncpg then meets a session without a protocol."""
    from asyncpg.connection import Connection

    prepare = Connection._get_statement

    async def main() -> None:
        async with Database(f"postgresql+asyncpg://{emptied_postgres}", pool_size=1) as db:
            session = await db.acquire()

            async def prepare_and_lose(*args: Any, **settings: Any) -> Any:
                prepared = await prepare(*args, **settings)
                session.terminate()
                return prepared

            with monkeypatch.context() as patch:
                patch.setattr(Connection, "_get_statement", prepare_and_lose)
                with pytest.raises(OutcomeUnknownError, match="the connection was dropped"):
                    await session.execute(Statement("ask", "SELECT $1::text", ("x",)))
            await db.release(session)
            assert await db.fetch_value("SELECT 1") == 1

    anyio.run(main, backend="asyncio")


@pytest.mark.parametrize("what", ["begin", "statement", "lone statement", "commit"])
def test_killed_while_the_driver_looks_whether_it_is_open(
    mysql_cell: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The end comes after the first look at the session: it is told as such, and nobody waits."""
    check = mysql_module.MysqlConnection._check_open
    armed = False

    def check_and_kill(self: mysql_module.MysqlConnection, name: str) -> None:
        nonlocal armed
        check(self, name)
        if armed:
            armed = False
            _kill_and_wait(mysql_cell, self)

    monkeypatch.setattr(mysql_module.MysqlConnection, "_check_open", check_and_kill)

    async def main(db: Database) -> None:
        nonlocal armed
        statement = Statement("statement", "SELECT 1")
        async with db._lent() as session:
            if what in ("statement", "commit"):
                await session.begin()
            armed = True
            lost = (DatabaseBusyError, OutcomeUnknownError)
            with pytest.raises(lost, match="the connection broke"), anyio.fail_after(5):
                if what == "begin":
                    await session.begin()
                elif what == "commit":
                    await session.commit()
                else:
                    await session.execute(statement)
            assert session.is_closed
        assert await db.fetch_value("SELECT 1") == 1

    mysql_cell.run(main)


def _kill_and_wait(cell: Any, session: Any) -> None:
    """End a session, and wait until its end has come to its socket."""
    target = read_target(cell.url)
    with pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        ssl_disabled=True,
    ) as killer:
        killer.query(f"KILL {session._number}")
    if isinstance(session, AsyncmyConnection):
        line = session._connection._transport.get_extra_info("socket").fileno()
    else:
        line = session._session.descriptor
    while not is_ready(line):
        pass


@pytest.mark.parametrize("hold", [False, True])
def test_a_dropped_session_begins_nothing_and_says_so(server_cell: Any, hold: bool) -> None:
    async def main(db: Database) -> None:
        session = await db.acquire()
        session.terminate()
        with pytest.raises(DatabaseError):
            await session.begin(hold=hold)
        await db.release(session)
        assert await db.fetch_value("SELECT 1") == 1

    server_cell.run(main)
