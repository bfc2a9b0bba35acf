"""Rows that somebody else deletes, keys that two subscriptions want, and cancellations at any moment."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import anyio
import psycopg
import pymysql
import pytest
from cases_kit import JOBS, SECOND, Job, another, each_once, make, on, serve

from inboxkit import (
    Broker,
    Database,
    Inbox,
    InboxQueue,
    Service,
    ack,
    events,
    insert_rows,
    insert_statements,
    role,
)
from inboxkit._db.mysql_url import read_target
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock, recorded


class Locked(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="jobs", advisory_lock="account-{account}"):
    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()
    account: str = ""


async def make_keyed(db: Database) -> None:
    await make(db, account="account varchar(9) NOT NULL DEFAULT ''")


@each_once
@pytest.mark.parametrize("fails", [False, True], ids=["acked", "failed"])
async def test_row_that_is_deleted_while_its_key_is_held(
    fails: bool, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Nothing is made out of nothing, dead letters included; one warning tells the id."""
    db = inbox_database
    await make_keyed(db)
    queue = InboxQueue(Keyed, "jobs", bytes)

    async def work(_message: bytes, delivery: Any) -> Any:
        await delivery.clock.sleep(2)
        if fails:
            raise ValueError("no")
        return ack()

    app, seen = serve(db, queue, work, max_attempts=1, dead_letter="dead")
    async with TestApp(app) as kit:
        await kit.publish(queue, b"x")
        await db.execute("DELETE FROM jobs")
        await kit.advance(5 * SECOND)
        assert await kit.rows(Keyed) == []
        told = [r.getMessage() for r in caplog.records if "row 1" in r.getMessage()]
        (lost,) = [text for text in told if "failed" not in text]
        assert "the row is gone" in lost
        assert "connection" not in lost
        assert "handed out again" not in lost
        await kit.publish(queue, b"y")
        await kit.advance(5 * SECOND)
    assert [message for message, _ in seen] == [b"x", b"y"]


@on("postgres")
async def test_deletion_of_a_locked_row_waits_for_its_settlement(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    queue = InboxQueue(Locked, "jobs", bytes)
    deleted: list[int] = []
    app, seen = serve(db, queue, lambda _m, delivery: delivery.clock.sleep(5))
    with recorded() as timeline:
        async with another(db, "operator") as operator, TestApp(app) as kit:
            await kit.publish(queue, b"x")

            async def delete() -> None:
                deleted.append(await operator.execute("DELETE FROM jobs"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(delete)
                await kit.advance(3 * SECOND)
                assert deleted == []
                await kit.advance(3 * SECOND)
    assert (deleted, len(seen)) == ([0], 1)
    assert len(timeline.of(events.Finished)) == 1


@on("sqlite", "postgres")
async def test_key_of_two_subscriptions_and_two_services(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """One row of a key is in work, its key is free at once after it, and no session keeps one."""
    db = inbox_database
    await make_keyed(db)
    now: list[str] = []
    most: list[int] = []

    async def work(message: bytes, delivery: Any) -> Any:
        account = delivery.row.account
        now.append(account)
        most.append(now.count(account))
        await delivery.clock.sleep(1)
        now.remove(account)
        return ack()

    first, second = (InboxQueue(Keyed, name, bytes) for name in ("one", "two"))
    async with db.transaction() as tx:
        for name in ("one", "two"):
            await insert_rows(
                tx, *(Keyed.of(b"%d" % n, name=name, account="ab"[n % 2]) for n in range(6))
            )
    app = Service("service", Broker(db, poll_interval=timedelta(seconds=0.1)))
    _, seen = serve(db, first, work, app=app, workers=4)
    _, also_seen = serve(db, second, work, app=app, workers=4)
    async with app.running():
        await virtual_clock.advance(8 * SECOND)
        assert len(seen) + len(also_seen) == 12, "six rows of each key, one after the other"
    assert max(most) == 1
    if db.dialect == "postgres":
        locks = (
            "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
            "WHERE locktype = 'advisory' AND d.datname = current_database()"
        )
        assert await db.fetch_value(locks) == 0


@on("sqlite", "postgres", "mariadb")
async def test_cancellations_around_settlements_settle_or_free_the_row(
    inbox_database: Database,
) -> None:
    """In real time, each a little later than the one before: never both, and never left leased."""
    db = inbox_database
    await make(db)
    draw = Random(5)
    gone = freed = 0
    for _ in range(20):
        async with db.transaction() as tx:
            await insert_rows(tx, Job.of(b"x", name="jobs"))
        handled = anyio.Event()

        def answer(_message: bytes, _delivery: Any, handled: anyio.Event = handled) -> Any:
            handled.set()
            return ack()

        app, seen = serve(db, JOBS, answer)
        with anyio.fail_after(10):
            async with app.running() as handle:
                await handled.wait()
                with anyio.move_on_after(draw.uniform(0, 0.003)):
                    await anyio.sleep_forever()
                handle.cancel()
        rows = await db.fetch("SELECT attempt, lease FROM jobs")
        assert len(seen) == 1
        assert [tuple(row) for row in rows] in ([], [(1, None)])
        gone, freed = gone + (not rows), freed + bool(rows)
        await db.execute("DELETE FROM jobs")
    assert gone + freed == 20


@on("postgres")
async def test_row_locks_of_cancelled_services_are_free(inbox_database: Database) -> None:
    """Cancelled from outside while handlers wait, many times: no session stays in its transaction."""
    db = inbox_database
    await make(db)
    queue = InboxQueue(Locked, "jobs", bytes)
    async with db.transaction() as tx:
        await insert_rows(tx, *(Locked.of(b"%d" % n, name="jobs") for n in range(3)))
    draw = Random(6)
    for n in range(15):
        app, _ = serve(db, queue, lambda *_: anyio.sleep_forever(), workers=3)
        with anyio.move_on_after(draw.uniform(0, 0.02) if n else 0.1):
            await app.run()
    left = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in transaction%'"
    )
    assert await db.fetch_value(left) == 0
    async with db.transaction() as tx:
        free = await tx.fetch("SELECT attempt FROM jobs FOR UPDATE SKIP LOCKED")
        assert [tuple(row) for row in free] == [(1,)] * 3
    assert db._pool is not None
    assert db._pool.in_use == 0


class Full(Inbox, table="full_jobs"):
    id: int = role.id()
    name: str = role.group()
    priority: int = role.priority(default=10)
    account: str = role.partition_key(default="none")
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()
    note: str | None = None
    ref: UUID = UUID(int=0)
    count: int = role.column(default=7)


@each_once
async def test_rows_are_equal_however_they_are_written(
    inbox_database: Database, inbox_db: str
) -> None:
    """One by one by publish, together by insert_rows, and by a sync driver with insert_statements."""
    db = inbox_database
    for statement in create_table(get_dialect(db.dialect), Full.spec):
        await db.execute(statement)
    queue = InboxQueue(Full, "q", dict[str, int])
    due = datetime(2031, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
    given: list[dict[str, Any]] = [
        {
            "priority": n % 3,
            "due": due + timedelta(seconds=n),
            **({"account": f"é{n}"} if n % 2 else {}),
            **({"heads": {"h": f"{n}'\"\\"}} if n % 3 else {}),
            **({"note": f"n%s{n}"} if n % 5 else {}),
            **({"ref": UUID(int=n)} if n % 7 else {}),
        }
        for n in range(30)
    ]

    async def all_rows() -> list[tuple[Any, ...]]:
        names = [column.name for _role, column in Full.spec.roles()]
        quoted = ", ".join(get_dialect(db.dialect).quote(name) for name in names)
        found = await db.fetch(f"SELECT {quoted} FROM full_jobs ORDER BY id")
        await db.execute("DELETE FROM full_jobs")
        return [tuple(row) for row in found]

    broker = Broker(db)
    for n, columns in enumerate(given):
        await broker.publish(queue, {"n": n}, id=n, **columns)
    one_by_one = await all_rows()
    rows = [Full.of({"n": n}, id=n, name="q", **columns) for n, columns in enumerate(given)]
    async with db.transaction() as tx:
        assert await insert_rows(tx, *rows) == list(range(30))
        assert await insert_rows(tx) == []
    together = await all_rows()
    assert insert_statements(db.dialect) == []
    statements = insert_statements(db.dialect, *rows)
    assert db._url is not None
    location = db._url.location
    if inbox_db.startswith("sqlite"):
        connection: Any = sqlite3.connect(location)
        with connection:
            for statement in statements:
                connection.execute(statement.text, statement.parameters)
        connection.close()
    elif inbox_db == "postgres":
        with psycopg.connect(location) as connection:
            for statement in statements:
                psycopg.RawCursor(connection).execute(statement.text.encode(), statement.parameters)
    else:
        target = read_target(location)
        connection = pymysql.connect(
            host=target.host, port=target.port, user=target.user, password=target.password,
            database=target.database, init_command="SET time_zone = '+00:00'", ssl_disabled=True,
        )  # fmt: skip
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.text, statement.parameters)
            connection.commit()
    assert len(one_by_one) == 30
    assert together == one_by_one
    assert await all_rows() == one_by_one
