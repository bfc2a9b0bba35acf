"""Dead letters that their target does not take: seen at start-up where it can be, else of that row alone."""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Any

import anyio
import pytest
from cases_kit import BYTES, IDS, JOBS, SECOND, TIMES, Job, each_once, make, on, serve

from inboxkit import Database, Inbox, InboxQueue, SchemaError, ack, insert_rows, retry, role
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit.errors import DatabaseError
from inboxkit_testing import TestApp, VirtualClock


@each_once
async def test_name_that_the_group_column_cannot_hold_is_found_at_the_start(
    inbox_database: Database, frozen_clock: VirtualClock, inbox_db: str
) -> None:
    """Not at the first death, when every settlement of the row would fail. SQLite's columns hold all."""
    db = inbox_database
    await make(db, name="name varchar(12)")
    app, seen = serve(db, JOBS, lambda *_: retry(), max_attempts=1, dead_letter="jobs.dead.letters")
    if inbox_db.startswith("sqlite"):
        async with TestApp(app) as kit:
            await kit.publish(JOBS, b"x")
            assert [row.name for row in await kit.rows(Job)] == ["jobs.dead.letters"]
        return
    with pytest.raises(SchemaError) as caught:
        await app.run()
    assert (caught.value.table, caught.value.column) == ("jobs", "name")
    assert "'jobs.dead.letters'" in str(caught.value)
    assert "takes 12 characters, and this has 17" in str(caught.value)
    assert "ALTER TABLE" in str(caught.value)
    app, seen = serve(db, InboxQueue(Job, "é" * 12, bytes), lambda *_: ack())
    async with TestApp(app) as kit:
        await kit.publish("é" * 12, b"x")
        assert seen == [(b"x", 1)]
    app, _ = serve(db, InboxQueue(Job, "e" * 13, bytes), lambda *_: ack())
    with pytest.raises(SchemaError, match="'eeeeeeeeeeeee'"):
        await app.run()


@on("mariadb", "mysql", "postgres", once=True)
@pytest.mark.parametrize("when", ["settled", "claimed"])
async def test_move_that_a_unique_index_refuses_leaves_its_row_alone(
    when: str, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """The others of the same group settle, and the row comes back once in each lease."""
    db = inbox_database
    await make(db, more="key_ varchar(9), CONSTRAINT once UNIQUE (name, key_)")
    await db.execute("INSERT INTO jobs (name, key_, payload) VALUES ('dead', 'k', $1)", b"old")
    attempt = 4 if when == "claimed" else 3
    for number in range(5):
        await db.execute(
            "INSERT INTO jobs (name, key_, attempt, payload) VALUES ('jobs', $1, $2, $3)",
            "k" if number == 0 else f"k{number}",
            attempt,
            b"%d" % number,
        )
    app, seen = serve(db, JOBS, lambda *_: retry(), workers=5, max_attempts=3, dead_letter="dead")
    async with TestApp(app) as kit:
        await kit.advance(70 * SECOND)
        rows = await kit.rows(Job)
        assert sorted(row.payload for row in rows if row.name == "dead") == [
            b"1",
            b"2",
            b"3",
            b"4",
            b"old",
        ]
        assert [row.payload for row in rows if row.name == "jobs"] == [b"0"]
        assert [attempt for _, attempt in seen] == ([3] * 5 if when == "settled" else [])
        told = [r.getMessage() for r in caplog.records if "could not be settled" in r.getMessage()]
        assert 1 <= len(told) <= 4
        await db.execute("DELETE FROM jobs WHERE payload = $1", b"old")
        await kit.advance(31 * SECOND)
        assert sorted(row.payload for row in await kit.rows(Job)) == [b"0", b"1", b"2", b"3", b"4"]
        assert {row.name for row in await kit.rows(Job)} == {"dead"}
    assert "once" in caplog.text


class Plain(Inbox, table="jobs"):
    """No groups, so that dead letters go to a table."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Dead(Plain, table="dead_jobs"):
    """Where its dead letters go."""


@on("mariadb", "mysql", once=True)
async def test_lock_wait_that_times_out_in_a_move_leaves_no_copy(inbox_database: Database) -> None:
    """The server undoes the one statement that waited; what went with it must neither be lost nor stay."""
    await make(inbox_database)
    await make(inbox_database, "dead_jobs")
    assert inbox_database._url is not None
    url = inbox_database._url.location
    finish, move = (
        Settlement(verb, destination=Destination(table="dead_jobs") if verb is Verb.MOVE else None)
        for verb in (Verb.FINISH, Verb.MOVE)
    )
    async with Database(url, statement_timeout=SECOND, random=Random(0)) as db:
        async with db.transaction() as tx:
            await insert_rows(tx, *(Plain.of(message) for message in (b"1", b"2", b"3", b"4")))
        form = open_form(
            db,
            Plain.spec,
            await db.describe(Plain.spec),
            get_dialect("mysql"),
            group=None,
            lease=60 * SECOND,
            cap=None,
            steps=ExpirySteps(0),
        )
        fences = [row.fence for row in (await form.claim(limit=4)).rows]
        async with db.transaction() as blocker:
            await blocker.execute("INSERT INTO dead_jobs (id, payload) VALUES (2, 'blocks')")
            endings = zip(fences, (finish, move, move, finish), strict=True)
            settled = await form.settle(list(endings))
            assert [one.result for one in settled] == ["written", "failed", "written", "written"]
            assert isinstance(settled[1].error, DatabaseError)
            assert [row[0] for row in await db.fetch("SELECT id FROM jobs")] == [2]
            assert [row[0] for row in await db.fetch("SELECT id FROM dead_jobs")] == [3]
            await blocker.execute("DELETE FROM dead_jobs WHERE id = 2")
        (settled_later,) = await form.settle([(fences[1], move)])
        assert settled_later.result == "written"
        assert await db.fetch("SELECT id FROM jobs") == []
        assert [row[0] for row in await db.fetch("SELECT id FROM dead_jobs ORDER BY id")] == [2, 3]


class Bare(Inbox, table="jobs"):
    """No attempt: the lease alone tells one row from another of its id."""

    id: int = role.id(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class DeadBare(Bare, table="dead_jobs"):
    """Where its dead letters go."""


@on("sqlite")
async def test_id_that_the_database_gives_again_is_another_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Without AUTOINCREMENT, SQLite gives the largest id again once its row is gone."""
    db = inbox_database
    for table in ("jobs", "dead_jobs"):
        await db.execute(
            f"CREATE TABLE {table} ({IDS['sqlite']}, lease {TIMES['sqlite']}, payload {BYTES['sqlite']})"
        )
    queue = InboxQueue(Bare, "jobs", bytes)

    async def stubborn(message: bytes, delivery: Any) -> Any:
        if message == b"old":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(10)
        else:
            await delivery.clock.sleep(20)
        return ack()

    app, seen = serve(db, queue, stubborn, workers=2)
    async with TestApp(app) as kit:
        await kit.publish(queue, b"old")
        # An operator moves it away, while its handler runs.
        await db.execute("INSERT INTO dead_jobs SELECT id, NULL, payload FROM jobs")
        await db.execute("DELETE FROM jobs")
        assert await kit.publish(queue, b"new") == 1
        await kit.advance(12 * SECOND)
        assert [row.payload for row in await kit.rows(Bare)] == [b"new"], (
            "the old holder wrote nothing"
        )
        await kit.advance(12 * SECOND)
        assert await kit.rows(Bare) == []
    assert [message for message, _ in seen] == [b"old", b"new"]
