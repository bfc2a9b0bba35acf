"""MariaDB and MySQL through a whole service: names, other databases, transactions of the caller."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from cases_kit import JOBS, SECOND, Job, another, make, on, serve

from inboxkit import (
    Column,
    Database,
    Inbox,
    InboxQueue,
    InboxSpec,
    SchemaError,
    ack,
    insert_rows,
    retry,
    retry_after,
    role,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock

mariadb = on("mariadb")
both = on("mariadb", "mysql", once=True)

NAME = "a`%s 100%%(x)s\"'.$1?:x --/*\\ select"


@both
async def test_any_name_from_publish_to_the_dead_letter(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Names, groups, keys and headers with whatever a driver or the server might take for its own."""
    db = inbox_database
    spec = InboxSpec(
        NAME,
        id=Column(NAME + "0", generated=True, type=int),
        group=Column(NAME + "1"),
        retry_after=Column(NAME + "2", default=None),
        attempt=Column(NAME + "3", generated=True),
        locked_until=Column(NAME + "4"),
        headers=Column(NAME + "5"),
        payload=Column(NAME + "6", type=bytes),
        columns=(Column(NAME + "7", type=str),),
        fields={"id": NAME + "0", "group": NAME + "1", "due": NAME + "2", "attempt": NAME + "3",
                "heads": NAME + "5", "payload": NAME + "6", "note": NAME + "7"},
    )  # fmt: skip
    for statement in create_table(get_dialect("mysql"), spec):
        await db.execute(statement)
    queue: InboxQueue[Any, Any] = InboxQueue(spec, NAME, bytes, lease=2 * SECOND)
    heads: list[Any] = []

    def answer(message: bytes, delivery: Any) -> Any:
        heads.append(dict(delivery.headers))
        if message == b"slow":
            return delivery.clock.sleep(5)
        return retry_after(SECOND) if delivery.attempt == 1 else retry()

    app, seen = serve(db, queue, answer, workers=2, max_attempts=2, dead_letter=NAME + " dead")
    async with TestApp(app) as kit:
        for message in (b"slow", b"bad"):
            await kit.publish(queue, message, heads={NAME: NAME}, note=NAME)
        await kit.advance(6 * SECOND)
        (row,) = await kit.rows(spec)
    assert (row["payload"], row["group"], row["note"]) == (b"bad", NAME + " dead", NAME)
    assert seen == [(b"slow", 1), (b"bad", 1), (b"bad", 2)]
    assert heads == [{NAME: NAME}] * 3


@both
async def test_table_of_another_database(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Nothing is read from, or written to, the table of the same name in the session's own database."""
    db = inbox_database
    other = f"{await db.fetch_value('SELECT DATABASE()')}-eu"
    await make(db)
    await make(db, "dead_jobs")
    await db.execute("INSERT INTO jobs (id, name, payload) VALUES (77, 'q', 'decoy')")
    await db.execute(f"CREATE DATABASE `{other}`")
    try:
        row, dead = (
            InboxSpec(
                table,
                schema=other,
                **{
                    name: getattr(Plain.spec, name)
                    for name in ("id", "attempt", "locked_until", "payload")
                },
            )
            for table in ("jobs", "dead_jobs")
        )
        for spec in (row, dead):
            for statement in create_table(get_dialect("mysql"), spec):
                await db.execute(statement)
        queue: InboxQueue[Any, Any] = InboxQueue(row, "q", bytes, lease=4 * SECOND)
        app, seen = serve(
            db,
            queue,
            lambda message, delivery: delivery.clock.sleep(10) if message == b"slow" else retry(),
            workers=2,
            max_attempts=2,
            dead_letter=InboxQueue(dead, "d", bytes),
        )
        async with TestApp(app) as kit:
            await kit.publish(queue, b"slow")
            await kit.publish(queue, b"bad")
            await kit.advance(12 * SECOND)
            assert await kit.rows(row) == []
            assert [found["payload"] for found in await kit.rows(dead)] == [b"bad"]
        assert [message for message, _ in seen] == [b"slow", b"bad", b"bad"]
        assert [tuple(found) for found in await db.fetch("SELECT id, attempt FROM jobs")] == [
            (77, 1)
        ]
        assert await db.fetch("SELECT id FROM dead_jobs") == []
    finally:
        await db.execute(f"DROP DATABASE `{other}`")


class Plain(Inbox, table="jobs"):
    """No groups, so that dead letters go to a table."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@both
async def test_first_publish_inside_a_transaction_commits_nothing(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """What the library asks about its table is no statement that commits by itself."""
    await make(inbox_database)
    await inbox_database.execute("CREATE TABLE orders (id integer)")
    async with another(inbox_database) as fresh:
        app, seen = serve(fresh, JOBS, lambda *_: ack())
        with suppress(ZeroDivisionError):
            async with fresh.transaction() as tx:
                await tx.execute("INSERT INTO orders VALUES (7)")
                await app.broker.publish(JOBS, b"x", within=tx)
                await insert_rows(tx, Job.of(b"y", name="jobs"))
                raise ZeroDivisionError
        assert await fresh.fetch("SELECT id FROM orders") == []
        assert await fresh.fetch("SELECT id FROM jobs") == []
        async with TestApp(app):
            await virtual_clock.advance(2 * SECOND)
        assert seen == []


@both
async def test_lease_that_the_server_moves_by_itself_stops_the_start(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """The first TIMESTAMP of a table, where explicit_defaults_for_timestamp is off."""
    db = inbox_database
    async with db.connection() as connection:
        await connection.execute("SET SESSION explicit_defaults_for_timestamp = OFF")
        await connection.execute("SET SESSION sql_mode = ''")
        await connection.execute(
            "CREATE TABLE jobs (id bigint AUTO_INCREMENT PRIMARY KEY, attempt int DEFAULT 1, "
            "locked_until TIMESTAMP, payload longblob)"
        )
    app, _ = serve(db, InboxQueue(Plain, "q", bytes), lambda *_: ack())
    with pytest.raises(SchemaError, match="'locked_until'") as caught:
        await app.run()
    cure = str(caught.value).partition("; ")[2]
    assert "MODIFY COLUMN" in cure
    await db.execute("ALTER TABLE jobs MODIFY COLUMN locked_until TIMESTAMP(6) NULL DEFAULT NULL")
    app, seen = serve(db, InboxQueue(Plain, "q", bytes), lambda *_: ack())
    async with TestApp(app) as kit:
        await kit.publish("q", b"x")
        assert seen == [(b"x", 1)]
        assert await kit.rows(Plain) == []


@both
async def test_what_cannot_be_read_or_handled_ends_in_the_dead_letter(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Counted, backed off and named without their content, beside rows of the same claim."""
    db = inbox_database
    await make(db)
    queue = InboxQueue(Job, "jobs", dict[str, Any])
    bad = (b"[" * 5000 + b"]" * 5000, b"hunter2", b"{\xff}", b"")
    for payload in (*bad, b"{}", b'{"fails": 1}'):
        await db.execute("INSERT INTO jobs (name, payload) VALUES ('jobs', $1)", payload)
    app, seen = serve(
        db,
        queue,
        lambda message, _: 1 / 0 if message else ack(),
        workers=6,
        max_attempts=3,
        dead_letter="dead",
    )
    async with TestApp(app) as kit:
        await kit.advance(timedelta(minutes=1))
        rows = await kit.rows(Job)
    assert [(row.name, row.attempt) for row in rows] == [("dead", 4)] * 5
    assert [row.payload for row in rows] == [*bad, b'{"fails": 1}']
    assert sorted(attempt or 0 for _, attempt in seen) == [1, 1, 2, 3]
    assert "hunter2" not in caplog.text
    assert "row 1" in caplog.text


@mariadb
async def test_timeouts_of_idle_transactions_do_not_end_a_delivery(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """The row lock form's transaction idles while its handler works elsewhere."""
    names = [f"idle_{kind}transaction_timeout" for kind in ("", "readonly_", "write_")]
    for name in names:
        await inbox_database.execute(f"SET GLOBAL {name} = 1000")
    try:
        async with another(inbox_database) as fresh:
            assert await fresh.fetch_value(f"SELECT @@global.{names[0]}") == 1000
            assert [await fresh.fetch_value(f"SELECT @@{name}") for name in names] == [0, 0, 0]
    finally:
        for name in names:
            await inbox_database.execute(f"SET GLOBAL {name} = 0")
