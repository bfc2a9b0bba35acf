"""`insert_rows` on connections of every kind, and `insert_statements` for drivers that nobody knows."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import anyio
import asyncmy
import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inboxkit import (
    Column,
    Database,
    EncodeError,
    Inbox,
    InboxSpec,
    insert_rows,
    insert_statements,
    role,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit.database import Record
from inboxkit_testing import VirtualClock

LATER = datetime(2031, 1, 1, tzinfo=UTC)


class Jobs(Inbox, table="the jobs"):
    id: int = role.id(generated=True)
    name: str = role.group(default="q")
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()
    note: str = ""


BY_HAND = InboxSpec(
    "the jobs",
    id=Column("id", generated=True, type=int),
    group=Column("name", default="q"),
    retry_after=Column("due", default=None),
    payload=Column("payload", type=bytes),
    columns=(Column("note", type=str, default=""), Column("heads", type=str, default="{}")),
)


async def make(url: str) -> None:
    async with Database(url) as db:
        dialect = get_dialect(db.dialect)
        unique = f"CREATE UNIQUE INDEX the_notes ON {dialect.quote('the jobs')} (note)"
        for statement in [*create_table(dialect, Jobs.spec), unique]:
            await db.execute(statement)


READ = 'SELECT id, note, due FROM "the jobs" ORDER BY id'


async def read(db: Database) -> list[Record]:
    return await db.fetch(READ.replace('"', "`") if db.dialect == "mysql" else READ)


def row(note: str, **columns: Any) -> Jobs:
    return Jobs.of({"a": 1}, note=note, heads={"h": note}, **columns)


class Foreign:
    """A connection that the service opened itself, and how its transactions end."""

    def __init__(self, connection: Any, commit: Any, rollback: Any) -> None:
        self.connection = connection
        self.commit = commit
        self.rollback = rollback


@asynccontextmanager
async def asyncpg_plain(url: str) -> AsyncIterator[Foreign]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Foreign(connection, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url: str) -> AsyncIterator[Foreign]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Foreign(connection, transaction.commit, transaction.rollback)


@asynccontextmanager
async def psycopg_plain(url: str) -> AsyncIterator[Foreign]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Foreign(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def psycopg_of_dicts(url: str) -> AsyncIterator[Foreign]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield Foreign(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def asyncmy_plain(url: str) -> AsyncIterator[Foreign]:
    parts = urlsplit(url)
    async with asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        db=parts.path.strip("/"),
        charset="utf8mb4",
        init_command="SET time_zone = '-03:00', sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')",
    ) as connection:
        await connection.begin()
        yield Foreign(connection, connection.commit, connection.rollback)
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT @@SESSION.time_zone")
            assert await cursor.fetchone() == ("-03:00",)


def of_aiosqlite(row_factory: Any) -> Any:
    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[Foreign]:
        async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
            connection.row_factory = row_factory
            yield Foreign(connection, connection.commit, connection.rollback)

    return connect


def of_sqlalchemy(driver: str, kind: str) -> Any:
    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[Foreign]:
        scheme, _, rest = url.partition("://")
        name = "mysql" if scheme == "mariadb" else scheme
        engine = create_async_engine(f"{name}+{driver}://{rest}")
        async with engine.connect() as plain, AsyncSession(engine) as session:
            connection: Any = plain if kind == "connection" else session
            yield Foreign(connection, connection.commit, connection.rollback)
        await engine.dispose()

    return connect


def as_dict(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}


KINDS: dict[str, tuple[str, Any]] = {
    "asyncpg": ("postgres", asyncpg_plain),
    "asyncpg of a pool": ("postgres", asyncpg_pooled),
    "psycopg": ("postgres", psycopg_plain),
    "psycopg of dicts": ("postgres", psycopg_of_dicts),
    "aiosqlite": ("sqlite", of_aiosqlite(None)),
    "aiosqlite of rows": ("sqlite", of_aiosqlite(sqlite3.Row)),
    "aiosqlite of dicts": ("sqlite", of_aiosqlite(as_dict)),
    "SQLAlchemy asyncpg": ("postgres", of_sqlalchemy("asyncpg", "session")),
    "SQLAlchemy psycopg": ("postgres", of_sqlalchemy("psycopg", "connection")),
    "asyncmy": ("mariadb", asyncmy_plain),
    "SQLAlchemy asyncmy": ("mariadb", of_sqlalchemy("asyncmy", "session")),
    "SQLAlchemy aiosqlite": ("sqlite", of_sqlalchemy("aiosqlite", "session")),
}

OnForeign = Callable[[Callable[[Foreign, Database], Awaitable[None]]], None]


@pytest.fixture
def mariadb_url(emptied_mariadb: str) -> str:
    return f"mariadb://{emptied_mariadb}"


@pytest.fixture(params=KINDS)
def on_foreign(request: pytest.FixtureRequest, tmp_path: Any) -> OnForeign:
    """Run a test with a foreign connection inside its own transaction, and a database to look by."""
    dialect, connect = KINDS[request.param]
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    if dialect != "sqlite":
        url = request.getfixturevalue(f"{dialect}_url")

    def run(test: Callable[[Foreign, Database], Awaitable[None]]) -> None:
        async def main() -> None:
            await make(url)
            async with Database(url) as db, connect(url) as foreign:
                await test(foreign, db)

        anyio.run(main)

    return run


def test_rows_are_there_after_the_foreign_commit(on_foreign: OnForeign) -> None:
    async def test(foreign: Foreign, db: Database) -> None:
        notes = [f"note {n}" for n in range(30)]
        ids = await insert_rows(foreign.connection, *map(row, notes))
        by_hand = BY_HAND.of({"a": 1}, note="by hand", due=LATER)
        ids += await insert_rows(foreign.connection, by_hand)
        assert await read(db) == []
        await foreign.commit()
        found = await read(db)
        assert [record["id"] for record in found] == ids
        assert [record["note"] for record in found] == [*notes, "by hand"]
        # None is NULL there, since their clock is not ours; it means due now.
        assert [record["due"] for record in found[:-1]] == [None] * 30
        assert found[-1]["due"] in (LATER, get_dialect(db.dialect).instant(LATER))

    on_foreign(test)


def test_rows_are_gone_after_the_foreign_rollback(on_foreign: OnForeign) -> None:
    async def test(foreign: Foreign, db: Database) -> None:
        await insert_rows(foreign.connection, row("a"), row("b"))
        await foreign.rollback()
        assert await read(db) == []

    on_foreign(test)


def test_refused_rows_are_ignored_on_request(on_foreign: OnForeign) -> None:
    async def test(foreign: Foreign, db: Database) -> None:
        (first,) = await insert_rows(foreign.connection, row("a"))
        ids = await insert_rows(
            foreign.connection, row("b"), row("a"), row("c"), row("b"), on_conflict="ignore"
        )
        await foreign.commit()
        assert [id is None for id in ids] == [False, True, False, True]
        found = {record["note"]: record["id"] for record in await read(db)}
        assert found == {"a": first, "b": ids[0], "c": ids[2]}

    on_foreign(test)


def test_value_that_does_not_fit_sends_nothing(on_foreign: OnForeign) -> None:
    async def test(foreign: Foreign, db: Database) -> None:
        with pytest.raises(EncodeError) as caught:
            await insert_rows(foreign.connection, row("a"), Jobs.of({}, note=7))  # type: ignore[arg-type]
        assert (caught.value.table, caught.value.where) == ("the jobs", "note")
        await insert_rows(foreign.connection, row("b"))
        await foreign.commit()
        assert [record["note"] for record in await read(db)] == ["b"]

    on_foreign(test)


def test_value_that_does_not_fit_is_told_with_queue_and_id() -> None:
    spec = InboxSpec(
        "jobs", id=Column("id", type=int), group=Column("name"), columns=(Column("a", type=int),)
    )
    with pytest.raises(EncodeError) as caught:
        insert_statements("postgres", spec.of(id=7, name="q", a="secret"))
    error = caught.value
    assert (error.table, error.queue, error.id, error.where) == ("jobs", "q", 7, "a")
    assert "secret" not in str(error)


async def test_own_connections_write_the_clocks_now(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    for statement in create_table(get_dialect(inbox_database.dialect), Jobs.spec):
        await inbox_database.execute(statement)
    await frozen_clock.advance(timedelta(seconds=7))
    async with inbox_database.transaction() as tx:
        ids = await insert_rows(tx, row("a"), row("b", due=LATER))
    async with inbox_database.connection() as connection:
        ids += await insert_rows(connection, row("c", due=None))
        assert await insert_rows(connection) == []
    instant = get_dialect(inbox_database.dialect).instant
    now = instant(frozen_clock.now())
    found = [tuple(record) for record in await read(inbox_database)]
    assert found == [(ids[0], "a", now), (ids[1], "b", instant(LATER)), (ids[2], "c", now)]


@pytest.mark.parametrize(
    "connection",
    [None, "postgresql://", sqlite3, object()],
    ids=["None", "url", "module", "object"],
)
def test_unknown_connections_are_refused_by_what_is_accepted(connection: Any) -> None:
    with pytest.raises(TypeError) as caught:
        anyio.run(insert_rows, connection, row("a"))
    for name in (
        "asyncpg",
        "aiosqlite",
        "psycopg",
        "Connection or Transaction",
        "insert_statements()",
    ):
        assert name in str(caught.value)


def test_sync_connections_are_refused(tmp_path: Any) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    with pytest.raises(TypeError, match="insert_statements"):
        anyio.run(insert_rows, connection, row("a"))
    connection.close()


def test_sync_connection_of_psycopg_is_refused(shared_postgres_url: str) -> None:
    with (
        psycopg.connect(shared_postgres_url) as connection,
        pytest.raises(TypeError, match="insert_statements"),
    ):
        anyio.run(insert_rows, connection, row("a"))


def test_pool_is_no_connection(shared_postgres_url: str) -> None:
    async def main() -> None:
        async with asyncpg.create_pool(shared_postgres_url, min_size=1) as pool:
            with pytest.raises(TypeError, match="give inboxkit's Connection or Transaction"):
                await insert_rows(pool, row("a"))

    anyio.run(main)


def test_database_is_no_connection(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match=r"async with db\.transaction\(\)"):
        anyio.run(insert_rows, Database(f"sqlite:///{tmp_path / 'x.db'}"), row("a"))


def test_statements_run_on_sqlite3(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    anyio.run(make, url)
    connection = sqlite3.connect(tmp_path / "inbox.db")
    # Not $1: sqlite3 takes that for a name, and from Python 3.14 on refuses a sequence for it.
    assert "(?1, " in insert_statements("sqlite", row("a"))[0].text
    ids = [
        id
        for statement in insert_statements("sqlite", row("a"), row("b", due=LATER))
        for (id,) in connection.execute(statement.text, statement.parameters).fetchall()
    ]
    connection.commit()
    found = connection.execute(READ).fetchall()
    connection.close()
    instant = get_dialect("sqlite").instant
    assert found == [(ids[0], "a", None), (ids[1], "b", instant(LATER))]


def test_statements_run_on_psycopg(postgres_url: str) -> None:
    anyio.run(make, postgres_url)
    with psycopg.connect(postgres_url, cursor_factory=psycopg.RawCursor) as connection:
        ids = [
            id
            for statement in insert_statements("postgres", row("a"), row("b", due=LATER))
            for (id,) in connection.execute(statement.text.encode(), statement.parameters)
        ]
        found = connection.execute(READ).fetchall()
    assert found == [(ids[0], "a", None), (ids[1], "b", LATER)]
