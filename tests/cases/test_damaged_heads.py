"""Heads of FIFO groups that nobody can read: set aside, and the group goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest
from cases_kit import make, on, serve

from inboxkit import Database, Inbox, InboxQueue, ack, role
from inboxkit_testing import TestApp, VirtualClock


class Line(Inbox, table="jobs"):
    id: UUID = role.id()
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@on("sqlite")
@pytest.mark.parametrize("damage", ["attempt", "payload"])
async def test_head_that_cannot_be_read_does_not_hold_its_group_for_ever(
    damage: str, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    db = inbox_database
    await make(db, id="id TEXT PRIMARY KEY", attempt="attempt DEFAULT 1")
    good = UUID(int=2**120)
    await db.execute(
        "INSERT INTO jobs (id, name, attempt, payload) VALUES ($1, 'g', $2, $3)",
        str(UUID(int=1)),
        "many" if damage == "attempt" else 1,
        b"no number" if damage == "payload" else b"1",
    )
    await db.execute("INSERT INTO jobs (id, name, payload) VALUES ($1, 'g', $2)", str(good), b"2")
    app, seen = serve(
        db, InboxQueue(Line, "g", int), lambda *_: ack(), max_attempts=3, dead_letter="dead"
    )
    async with TestApp(app) as kit:
        await kit.advance(timedelta(minutes=5))
        left = [tuple(row) for row in await db.fetch("SELECT id, name FROM jobs")]
    assert (2, 1) in seen
    if damage == "attempt":
        assert seen == [(1, 1), (2, 1)]
        assert left == []
    else:
        assert seen == [(2, 1)]
        assert left == [(str(UUID(int=1)), "dead")]
    assert damage in caplog.text


class LockedLine(Inbox, table="jobs"):
    id: UUID = role.id()
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


forms = pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "line"),
    [
        (database, backend, line)
        for database, line in (
            ("sqlite", Line),
            ("mariadb", Line),
            ("mariadb", LockedLine),
            ("mysql", Line),
            ("mysql", LockedLine),
        )
        for backend in (("asyncio", "trio") if database != "mysql" else ("trio",))
    ],
)


@forms
async def test_group_goes_on_without_a_head_whose_id_cannot_be_read(
    line: Any, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Also where a row's handler works for longer than the lease."""
    db = inbox_database
    await make(db, id="id varchar(40) PRIMARY KEY", name="name varchar(40)")
    insert = "INSERT INTO jobs (id, name, payload) VALUES ($1, 'g', $2)"
    await db.execute(insert, "!no uuid", b"1")
    await db.execute(insert, "!none too", b"2")
    for n in (3, 4):
        await db.execute(insert, str(UUID(int=n)), b"%d" % n)

    async def work(*_: Any) -> Any:
        await anyio.sleep(70)
        return ack()

    app, seen = serve(db, InboxQueue(line, "g", int), work)
    async with TestApp(app) as kit:
        await kit.advance(timedelta(minutes=3))
        await kit.publish(InboxQueue(line, "g", int), 5, id=UUID(int=5))
        await kit.advance(timedelta(minutes=3))
    assert seen == [(3, 1), (4, 1), (5, 1)]
    left = await db.fetch("SELECT id FROM jobs ORDER BY id")
    assert [row[0] for row in left] == ["!no uuid", "!none too"]
    assert "id" in caplog.text
    assert "set aside" in caplog.text


@forms
async def test_each_group_goes_on_without_a_head_whose_id_cannot_be_read(
    line: Any, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Every group of a table: those with damaged heads, and one without."""
    db = inbox_database
    name = "name varchar(40)" + (" COLLATE utf8mb4_bin" if db.dialect == "mysql" else "")
    await make(db, id="id varchar(40) PRIMARY KEY", name=name)
    insert = "INSERT INTO jobs (id, name, payload) VALUES ($1, $2, $3)"
    for group, id in (("a", "!no uuid"), ("a", "!none too"), ("b", "!nor this"), ("d", "!alone")):
        await db.execute(insert, id, group, b"0")
    for n, group in enumerate("abcabc", 1):
        await db.execute(insert, str(UUID(int=n)), group, b"%d" % n)

    async def work(*_: Any) -> Any:
        await anyio.sleep(50)
        return ack()

    every = InboxQueue.every_group(line, int)
    app, seen = serve(db, every, work, workers=3)
    async with TestApp(app) as kit:
        await kit.advance(timedelta(seconds=10))
        assert {message for message, _ in seen} == {1, 2, 3}
        await kit.advance(timedelta(minutes=3))
        await kit.publish(every.group("b"), 7, id=UUID(int=7))
        await kit.advance(timedelta(minutes=2))
    assert sorted(seen) == [(n, 1) for n in range(1, 8)]
    left = await db.fetch("SELECT id FROM jobs ORDER BY id")
    assert [row[0] for row in left] == ["!alone", "!no uuid", "!none too", "!nor this"]
    assert "set aside" in caplog.text
