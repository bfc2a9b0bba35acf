"""A job is there exactly if the caller's own transaction was committed, whoever's connection it is on.

Each connection goes through the same table of endings, on each database that it serves.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import anyio
import asyncmy
import asyncpg
import psycopg
import pytest
from database_cells import if_chosen
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from inboxkit import Broker, Database, Inbox, InboxQueue, insert_rows, role
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

Block = Callable[[], AbstractAsyncContextManager[Any]]


class Job(Inbox, table="job_of_others"):
    id: int = role.id(generated=True)
    due: datetime | None = role.retry_after(default=None)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "jobs", str)


class EndedError(Exception):
    """What the service raises in the middle."""


@contextmanager
def ends(kind: type[Exception], match: str | None = None) -> Iterator[None]:
    """A transaction that is left by an error."""
    with pytest.raises(kind, match=match):
        yield


class Side:
    """Somebody's connection: how its transactions begin and end, and what else is run in them.

    Args:
        connection: What `insert_rows` is given.
        transaction: A block that commits, or rolls back where it raises.
        savepoint: The same of a nested one.
        execute: Runs a statement of the service's own.
    """

    def __init__(
        self,
        connection: Any,
        transaction: Block,
        savepoint: Block,
        execute: Callable[[str], Awaitable[Any]],
    ) -> None:
        self.connection = connection
        self.transaction = transaction
        self.savepoint = savepoint
        self.execute = execute

    async def job(self, name: str) -> None:
        (id,) = await insert_rows(self.connection, Job.of(name))
        assert id is not None

    async def order(self, number: int) -> None:
        await self.execute(f"INSERT INTO orders_of_others VALUES ({number})")


async def commit(side: Side) -> None:
    async with side.transaction():
        await side.order(1)
        await side.job("a")


async def rollback(side: Side) -> None:
    with ends(EndedError):
        async with side.transaction():
            await side.order(1)
            await side.job("a")
            raise EndedError


async def rollback_before_anything_else(side: Side) -> None:
    """The job is the transaction's first statement."""
    with ends(EndedError):
        async with side.transaction():
            await side.job("a")
            raise EndedError


async def nested_commit(side: Side) -> None:
    async with side.transaction(), side.savepoint():
        await side.order(1)
        await side.job("a")


async def nested_rollback(side: Side) -> None:
    async with side.transaction():
        await side.order(1)
        with ends(EndedError):
            async with side.savepoint():
                await side.job("a")
                raise EndedError
        await side.order(2)


async def rollback_around_nested_commit(side: Side) -> None:
    with ends(EndedError):
        async with side.transaction():
            await side.order(1)
            async with side.savepoint():
                await side.job("a")
            raise EndedError


async def rollback_around_a_first_savepoint(side: Side) -> None:
    """Nothing has begun the transaction but the savepoint."""
    with ends(EndedError):
        async with side.transaction():
            async with side.savepoint():
                await side.job("a")
            raise EndedError


async def error_of_the_database(side: Side) -> None:
    """A later statement of the service's own is refused."""
    with ends(Exception, r"(?i)unique|duplicate"):
        async with side.transaction():
            await side.order(1)
            await side.job("a")
            await side.order(1)


async def error_of_the_database_in_nested(side: Side) -> None:
    async with side.transaction():
        await side.order(1)
        await side.job("kept")
        with ends(Exception, r"(?i)unique|duplicate"):
            async with side.savepoint():
                await side.job("a")
                await side.order(1)


async def two_transactions(side: Side) -> None:
    for number in (1, 2):
        async with side.transaction():
            await side.order(number)
            await side.job(f"job {number}")


async def nested_rollback_beside_what_is_kept(side: Side) -> None:
    async with side.transaction():
        await side.job("first")
        with ends(EndedError):
            async with side.savepoint():
                await side.job("a")
                raise EndedError
        async with side.savepoint():
            await side.job("second")
        await side.job("third")


async def rollback_of_a_savepoint_around_others(side: Side) -> None:
    async with side.transaction():
        await side.order(1)
        with ends(EndedError):
            async with side.savepoint():
                async with side.savepoint():
                    await side.job("a")
                await side.job("b")
                async with side.savepoint():
                    await side.job("c")
                raise EndedError
        await side.job("kept")


async def rollback_within_a_savepoint_that_is_kept(side: Side) -> None:
    async with side.transaction(), side.savepoint():
        with ends(EndedError):
            async with side.savepoint():
                await side.job("a")
                raise EndedError
        await side.job("kept")


async def transactions_one_after_the_other(side: Side) -> None:
    """On one connection: what a nested one has undone is no matter of the next."""
    await nested_rollback(side)
    async with side.transaction(), side.savepoint():
        await side.job("kept")
    with ends(EndedError):
        async with side.transaction():
            await side.job("a")
            raise EndedError


ENDINGS: dict[Callable[[Side], Awaitable[None]], tuple[list[int], list[str]]] = {
    commit: ([1], ["a"]),
    rollback: ([], []),
    rollback_before_anything_else: ([], []),
    nested_commit: ([1], ["a"]),
    nested_rollback: ([1, 2], []),
    rollback_around_nested_commit: ([], []),
    rollback_around_a_first_savepoint: ([], []),
    error_of_the_database: ([], []),
    error_of_the_database_in_nested: ([1], ["kept"]),
    two_transactions: ([1, 2], ["job 1", "job 2"]),
    nested_rollback_beside_what_is_kept: ([], ["first", "second", "third"]),
    rollback_of_a_savepoint_around_others: ([1], ["kept"]),
    rollback_within_a_savepoint_that_is_kept: ([], ["kept"]),
    transactions_one_after_the_other: ([1, 2], ["kept"]),
}
"""With the orders and the jobs that are there afterwards."""


_numbers = itertools.count()


def by_statements(execute: Callable[[str], Awaitable[Any]], begin: str = "BEGIN") -> Block:
    """Blocks of a driver that has none: by the SQL itself."""

    def made(first: str, last: str, undo: str) -> Block:
        @asynccontextmanager
        async def block() -> AsyncIterator[None]:
            number = next(_numbers)  # MariaDB and MySQL forget a savepoint for another of its name
            await execute(first.format(number))
            try:
                yield
            except BaseException:
                await execute(undo.format(number))
                raise
            await execute(last.format(number))

        return block

    if begin == "SAVEPOINT":
        return made("SAVEPOINT s{}", "RELEASE SAVEPOINT s{}", "ROLLBACK TO SAVEPOINT s{}")
    return made(begin, "COMMIT", "ROLLBACK")


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Side]:
    connection = await asyncpg.connect(url)
    yield Side(connection, connection.transaction, connection.transaction, connection.execute)
    await connection.close()


@asynccontextmanager
async def of_an_asyncpg_pool(url: str) -> AsyncIterator[Side]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        yield Side(connection, connection.transaction, connection.transaction, connection.execute)


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Side]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield Side(connection, connection.transaction, connection.transaction, connection.execute)


@asynccontextmanager
async def of_psycopg_without_autocommit(url: str) -> AsyncIterator[Side]:
    async with await psycopg.AsyncConnection.connect(url) as connection:

        @asynccontextmanager
        async def transaction() -> AsyncIterator[None]:
            try:
                yield
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()

        # Its own transaction() commits where it is the first that is opened.
        nested = by_statements(connection.execute, "SAVEPOINT")
        yield Side(connection, transaction, nested, connection.execute)


@asynccontextmanager
async def of_aiosqlite(url: str) -> AsyncIterator[Side]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        execute = connection.execute
        begin, nested = by_statements(execute), by_statements(execute, "SAVEPOINT")
        yield Side(connection, begin, nested, execute)


@asynccontextmanager
async def of_aiosqlite_in_autocommit(url: str) -> AsyncIterator[Side]:
    path = url.removeprefix("sqlite:///")
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        execute = connection.execute
        begin, nested = (
            by_statements(execute, "BEGIN IMMEDIATE"),
            by_statements(execute, "SAVEPOINT"),
        )
        yield Side(connection, begin, nested, execute)


@asynccontextmanager
async def of_asyncmy(url: str) -> AsyncIterator[Side]:
    parts = urlsplit(url)
    async with asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        db=parts.path.strip("/"),
        charset="utf8mb4",
    ) as connection:

        async def execute(sql: str) -> None:
            async with connection.cursor() as cursor:
                await cursor.execute(sql)

        yield Side(connection, by_statements(execute), by_statements(execute, "SAVEPOINT"), execute)


def _engine(url: str, driver: str) -> AsyncEngine:
    scheme, _, rest = url.partition("://")
    name = "mysql" if scheme == "mariadb" else scheme
    engine = create_async_engine(f"{name}+{driver}://{rest}")
    if driver == "aiosqlite":
        begin_at_once(engine)
    return engine


def begin_at_once(engine: AsyncEngine) -> None:
    """What SQLAlchemy recommends for savepoints on SQLite: Python's sqlite3 begins no transaction before
    the first write, so a savepoint that comes first is the transaction, and its release the commit."""

    @event.listens_for(engine.sync_engine, "connect")
    def leave_it_to_us(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def of_sqlalchemy(driver: str, kind: str) -> Any:
    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[Side]:
        engine = _engine(url, driver)
        if kind.startswith("connection"):
            async with engine.connect() as connection:

                async def execute(sql: str) -> None:
                    await connection.execute(text(sql))

                nested: Block = connection.begin_nested
                if kind.endswith("savepoints by hand"):
                    nested = by_statements(execute, "SAVEPOINT")
                yield Side(connection, connection.begin, nested, execute)
        else:
            given: Any = AsyncSession(engine)
            if kind == "scoped session":
                given = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
            yield Side(given, given.begin, given.begin_nested, lambda sql: given.execute(text(sql)))
            await given.close()
        await engine.dispose()

    return connect


@asynccontextmanager
async def of_ours(url: str) -> AsyncIterator[Side]:
    async with Database(url) as db:

        @asynccontextmanager
        async def transaction() -> AsyncIterator[None]:
            async with db.transaction() as tx:
                side.connection = tx
                yield

        @asynccontextmanager
        async def nested() -> AsyncIterator[None]:
            outer = side.connection
            try:
                async with outer.transaction() as tx:
                    side.connection = tx
                    yield
            finally:
                side.connection = outer

        async def execute(sql: str) -> None:
            await side.connection.execute(sql)

        side = Side(None, transaction, nested, execute)
        yield side


KINDS: list[tuple[str, str, Any]] = [
    ("asyncpg", "postgres", of_asyncpg),
    ("asyncpg of a pool", "postgres", of_an_asyncpg_pool),
    ("psycopg", "postgres", of_psycopg),
    ("psycopg without autocommit", "postgres", of_psycopg_without_autocommit),
    ("aiosqlite", "sqlite", of_aiosqlite),
    ("aiosqlite in autocommit", "sqlite", of_aiosqlite_in_autocommit),
    *(("asyncmy", server, of_asyncmy) for server in ("mariadb", "mysql")),
    *(("ours", server, of_ours) for server in ("sqlite", "postgres", "mariadb", "mysql")),
    *(
        (f"SQLAlchemy {kind} {driver}", server, of_sqlalchemy(driver, kind))
        for driver, server in (
            ("asyncpg", "postgres"),
            ("psycopg", "postgres"),
            ("aiosqlite", "sqlite"),
            ("asyncmy", "mariadb"),
            ("asyncmy", "mysql"),
        )
        for kind in (
            "session",
            "scoped session",
            "connection",
            "connection with savepoints by hand",
        )
    ),
]


@pytest.fixture(name="url")
def _url(inbox_db: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Of a database that others' transactions are on too."""
    if inbox_db.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'inbox.db'}"
    found: str = request.getfixturevalue(f"shared_{inbox_db}_url")
    return found


@pytest.mark.parametrize(
    ("inbox_db", "connect"),
    [
        # MySQL takes a second for the tables.
        pytest.param(
            server, connect, id=f"{name}-{server}", marks=[if_chosen] * (server == "mysql")
        )
        for name, server, connect in KINDS
    ],
)
def test_a_job_is_there_exactly_if_its_transaction_was_committed(url: str, connect: Any) -> None:
    async def main() -> None:
        async with Database(url) as db:
            await make(db)
            for ending, expected in ENDINGS.items():
                async with connect(url) as side:
                    await ending(side)
                assert await found(db) == expected, ending.__name__
                for table in ("orders_of_others", "job_of_others"):
                    await db.execute(f"DELETE FROM {table}")

    anyio.run(main)


@pytest.mark.parametrize(
    ("inbox_db", "connect"),
    [
        pytest.param(
            server, connect, id=f"{name}-{server}", marks=[if_chosen] * (server == "mysql")
        )
        for name, server, connect in KINDS
        if name.startswith(("ours", "SQLAlchemy"))
    ],
)
def test_what_was_published_is_told_exactly_if_it_was_committed(url: str, connect: Any) -> None:
    """By the event, and by waking the queue; of a savepoint that was undone too nothing is told."""

    async def main() -> None:
        async with Database(url) as db:
            await make(db)
            broker = Broker(db)
            told: list[Any] = []
            woken: list[Any] = []
            broker.listeners.add(told.append)
            db.wakes.register("job_of_others", None, lambda *due: woken.append(due))
            for ending, (_, jobs) in ENDINGS.items():
                told.clear()
                woken.clear()
                async with connect(url) as side:

                    async def job(name: str, side: Side = side) -> None:
                        await broker.publish(JOBS, name, within=side.connection)

                    side.job = job  # type: ignore[method-assign]
                    await ending(side)
                ids = await db.fetch("SELECT id FROM job_of_others ORDER BY id")
                assert [event.id for event in told] == [row[0] for row in ids], ending.__name__
                assert len(ids) == len(jobs)
                if connect is not of_ours:  # which wakes the queues of its own Database
                    assert bool(woken) == bool(jobs), ending.__name__
                for table in ("orders_of_others", "job_of_others"):
                    await db.execute(f"DELETE FROM {table}")

    anyio.run(main)


async def make(db: Database) -> None:
    for table in ("orders_of_others", "job_of_others"):
        await db.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in create_table(get_dialect(db.dialect), Job.spec):
        await db.execute(statement)
    await db.execute("CREATE TABLE orders_of_others (number integer PRIMARY KEY)")


async def found(db: Database) -> tuple[list[int], list[str]]:
    orders = await db.fetch("SELECT number FROM orders_of_others ORDER BY number")
    jobs = await db.fetch("SELECT payload FROM job_of_others ORDER BY id")
    return [row[0] for row in orders], [bytes(row[0]).decode().strip('"') for row in jobs]


@pytest.mark.parametrize("publishes", [True, False])
def test_what_only_makes_connections_is_refused_with_what_to_give(
    publishes: bool, tmp_path: Path
) -> None:
    """An engine or a maker of sessions would insert outside of the caller's transaction."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}")
    given = [engine, async_sessionmaker(engine)]

    async def main() -> None:
        async with Database(f"sqlite:///{tmp_path / 'inbox.db'}") as db:
            await make(db)
            for one in given:
                with ends(TypeError, r"AsyncConnection or AsyncSession"):
                    if publishes:
                        await Broker(db).publish(JOBS, "a", within=one)
                    else:
                        await insert_rows(one, Job.of("a"))
            assert await found(db) == ([], [])
        await engine.dispose()

    anyio.run(main)


def test_an_error_of_sqlalchemys_own_is_left_to_it(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'inbox.db'}")

    async def main() -> None:
        async with AsyncSession(engine) as session:
            # There is no table: as the driver says it, since the connection is the service's.
            with pytest.raises((SQLAlchemyError, sqlite3.OperationalError), match="no such table"):
                await insert_rows(session, Job.of("a"))
        await engine.dispose()

    anyio.run(main)
