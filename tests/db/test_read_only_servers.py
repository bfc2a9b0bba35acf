"""A server that has become read-only, as a former primary is: nobody stays with it who may go elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from inboxkit._sql.statement import Reading, Script, Statement
from inboxkit.contrib.asyncpg import AsyncpgDatabase
from inboxkit.contrib.sqlalchemy import SQLAlchemyDatabase
from inboxkit.database import Database
from inboxkit.errors import DatabaseBusyError

REFUSED = {
    "postgres": "DO $$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$",
    "mysql": "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read-only'",
}
"""What the server answers to any write."""
OTHER = {
    "postgres": "DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$",
    "mysql": "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock'",
}


async def alone(db: Database, text: str) -> None:
    await db.execute(text)


async def in_a_block(db: Database, text: str) -> None:
    async with db.transaction() as tx:
        await tx.execute("SELECT 1")
        await tx.execute(text)


async def in_a_script(db: Database, text: str) -> None:
    def steps(_: Reading) -> Iterator[Statement]:
        yield Statement("refused", text, returns_rows=False)

    await db.run(Script("script", steps))  # type: ignore[arg-type]


async def in_a_hold(db: Database, text: str) -> None:
    connection = await db.begin()
    try:
        await connection.execute(Statement("refused", text, returns_rows=False))
    finally:
        await db.release(connection)


WAYS = [alone, in_a_block, in_a_script, in_a_hold]


async def sessions(db: Database) -> set[int]:
    """Those of two connections of the pool."""
    number = "pg_backend_pid()" if db.dialect == "postgres" else "connection_id()"
    async with db.connection() as one, db.connection() as other:
        return {await each.fetch_value(f"SELECT {number}") for each in (one, other)}


@pytest.mark.parametrize("way", WAYS)
def test_no_session_of_it_is_used_again(server_cell: Any, way: Any) -> None:
    async def main(db: Database) -> None:
        before = await sessions(db)
        with pytest.raises(DatabaseBusyError, match="read-only"):
            await way(db, REFUSED[db.dialect])
        assert not before & await sessions(db)
        assert db._pool is not None
        assert db._pool.in_use == 0

    server_cell.run(main, pool_size=2)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_busy_otherwise_keeps_its_sessions(server_cell: Any, way: Any) -> None:
    async def main(db: Database) -> None:
        before = await sessions(db)
        with pytest.raises(DatabaseBusyError, match="deadlock"):
            await way(db, OTHER[db.dialect])
        assert before == await sessions(db)

    server_cell.run(main, pool_size=2)


@contextmanager
def read_only(location: str) -> Iterator[None]:
    """Sessions that begin within take no writes, for ever, as those of a former primary."""
    name = location.rpartition("/")[2]
    with psycopg.connect(f"postgresql://{location}", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        try:
            yield
        finally:
            # This session began before.
            admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())


@asynccontextmanager
async def over_an_engine(location: str) -> AsyncIterator[Database]:
    """An engine that has idle sessions ready, all of a server that has become read-only."""
    engine = create_async_engine(f"postgresql+asyncpg://{location}", pool_size=5)
    with read_only(location):
        ready = [await engine.connect() for _ in range(5)]
        for one in ready:
            await one.close()
    async with SQLAlchemyDatabase(engine) as db:
        yield db
    await engine.dispose()


@asynccontextmanager
async def over_a_pool(location: str) -> AsyncIterator[Database]:
    """The same of asyncpg's."""
    with read_only(location):
        pool = await asyncpg.create_pool(f"postgresql://{location}", min_size=5, max_size=10)
    async with pool, AsyncpgDatabase(pool, pool_size=5) as db:
        yield db


@pytest.mark.parametrize("over", [over_an_engine, over_a_pool])
@pytest.mark.parametrize("way", WAYS)
def test_sessions_that_others_have_ready_are_not_tried_one_after_the_other(
    emptied_postgres: str, over: Any, way: Any
) -> None:
    async def main() -> None:
        async with over(emptied_postgres) as db:
            with pytest.raises(DatabaseBusyError, match="read-only transaction"):
                await way(db, "CREATE TABLE t (x int)")
            await way(db, "CREATE TABLE t (x int)")
            assert db._pool.in_use == 0

    anyio.run(main)
