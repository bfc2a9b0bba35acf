"""What a service has already: its SQLAlchemy sessions, its engine, its asyncpg pool. In real time, and
nothing sleeps: a poll would come after an hour."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from inboxkit import (
    Broker,
    ConnectError,
    Database,
    DeclarationError,
    Inbox,
    InboxQueue,
    Service,
    insert_rows,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit.contrib.asyncpg import AsyncpgDatabase
from inboxkit.contrib.sqlalchemy import SQLAlchemyDatabase

HOUR = timedelta(hours=1)


@dataclass
class Work:
    n: int


class Job(Inbox, table="contrib_jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    locked_until: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "jobs", Work)


async def create(db: Database) -> None:
    await db.execute("DROP TABLE IF EXISTS contrib_jobs")
    for statement in create_table(get_dialect(db.dialect), Job.spec):
        await db.execute(statement)


class Seen:
    """What the handler was given, and when it has had so much."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._changed = anyio.Event()

    async def __call__(self, work: Work) -> None:
        self.numbers.append(work.n)
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, *numbers: int) -> None:
        with anyio.fail_after(20):
            while sorted(self.numbers) != sorted(numbers):
                await self._changed.wait()


def serve(db: Database, seen: Seen, **settings: Any) -> Service:
    app = Service("contrib", Broker(db, poll_interval=HOUR, **settings))
    app.include(subscriber(JOBS)(seen), workers=2)  # type: ignore[arg-type]
    return app


def with_driver(url: str, driver: str) -> str:
    return url.replace("://", f"+{driver}://", 1)


@pytest.mark.parametrize(
    ("driver", "notify"),
    [
        ("asyncpg", False),
        ("asyncpg", True),
        ("psycopg", True),
        ("aiosqlite", False),
        ("asyncmy", False),
    ],
)
def test_a_publish_within_a_session_or_connection_wakes_after_its_commit(
    driver: str, notify: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if driver == "aiosqlite":
        url = f"sqlite:///{tmp_path / 'inbox.db'}"
    elif driver == "asyncmy":
        url = request.getfixturevalue("shared_mariadb_url").replace("mariadb", "mysql", 1)
    else:
        url = request.getfixturevalue("shared_postgres_url")

    async def main() -> None:
        engine = create_async_engine(with_driver(url, driver))
        seen = Seen()
        async with Database(url) as db:
            await create(db)
            app = serve(db, seen, listen_notify=notify)
            publish = app.broker.publish
            async with app.running():
                async with AsyncSession(engine) as session:
                    await publish(JOBS, Work(1), within=session)
                    async with session.begin_nested():
                        await publish(JOBS, Work(2), within=session)
                    await session.commit()
                    await seen.until(1, 2)
                    await publish(JOBS, Work(-1), within=session)
                    await session.rollback()
                async with async_sessionmaker(engine).begin() as session:
                    await publish(JOBS, Work(3), within=session)
                await seen.until(1, 2, 3)
                async with engine.begin() as connection:
                    await publish(JOBS, Work(4), within=connection)
                await seen.until(1, 2, 3, 4)
                async with engine.connect() as connection:
                    await publish(JOBS, Work(-2), within=connection)
                    await connection.rollback()
                    await publish(JOBS, Work(5), within=connection)
                    await connection.commit()
                    await connection.exec_driver_sql("SELECT 1")
                    await seen.until(1, 2, 3, 4, 5)
            assert await db.fetch_value("SELECT count(*) FROM contrib_jobs") == 0
        await engine.dispose()

    anyio.run(main)


async def _pool(url: str, stack: AsyncExitStack) -> tuple[Database, Callable[[], Any]]:
    async def init(connection: Any) -> None:
        # What services do: theirs must neither hurt us nor be lost to them.
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=repr, decoder=lambda _text: "theirs"
        )

    pool = await stack.enter_async_context(
        asyncpg.create_pool(url, min_size=1, max_size=6, init=init)
    )

    async def use() -> None:
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT '{}'::jsonb") == "theirs"
            assert await connection.fetchval("SHOW statement_timeout") == "0"

    return AsyncpgDatabase(pool), use


async def _engine(url: str, stack: AsyncExitStack) -> tuple[Database, Callable[[], Any]]:
    arguments = {"poolclass": NullPool} if "psycopg" in url else {"pool_size": 1, "max_overflow": 0}
    engine = create_async_engine(url, **arguments)
    stack.push_async_callback(engine.dispose)

    async def use() -> None:
        async with engine.connect() as connection:
            assert (await connection.exec_driver_sql("SELECT 1")).scalar() == 1

    return SQLAlchemyDatabase(engine), use


@pytest.mark.parametrize("kind", ["pool", "asyncpg", "psycopg", "aiosqlite", "asyncmy"])
def test_a_service_runs_on_what_is_there_and_does_not_close_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "aiosqlite":
        url = f"sqlite+aiosqlite:///{tmp_path / 'inbox.db'}"
    elif kind == "asyncmy":
        url = request.getfixturevalue("shared_mariadb_url").replace("mariadb", "mysql+asyncmy", 1)
        url += "?charset=utf8mb4"
    else:
        url = request.getfixturevalue("shared_postgres_url")
        url = url if kind == "pool" else with_driver(url, kind)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            db, use = await (_pool if kind == "pool" else _engine)(url, stack)
            seen = Seen()
            async with db:
                await create(db)
                await use()
                app = serve(db, seen, listen_notify=kind in ("pool", "asyncpg"))
                async with app.running():
                    await app.broker.publish(JOBS, Work(1), heads={"a": "b"})
                    async with db.transaction() as tx:
                        await insert_rows(tx, Job.of(Work(2), name="jobs"))
                    await seen.until(1, 2)
                    await use()
            await use()

    anyio.run(main)


def test_what_cannot_be_wrapped_is_refused(tmp_path: Path) -> None:
    for wrong in (AsyncpgDatabase, SQLAlchemyDatabase):
        with pytest.raises(DeclarationError, match="takes"):
            wrong("postgresql://localhost/x")  # type: ignore[operator]
    with pytest.raises(DeclarationError, match="own connection only"):
        SQLAlchemyDatabase(create_async_engine("sqlite+aiosqlite:///:memory:"))

    async def main() -> None:
        pool = asyncpg.create_pool("postgresql://127.0.0.1:1/none", min_size=0, max_size=3)
        with pytest.raises(DeclarationError, match="max_size=3"):
            AsyncpgDatabase(pool, pool_size=4)
        engine = create_async_engine("postgresql+asyncpg://127.0.0.1:1/none")
        for db in (AsyncpgDatabase(pool), SQLAlchemyDatabase(engine)):
            with pytest.raises(ConnectError, match="gave no session"):
                await db.open()

    anyio.run(main)
