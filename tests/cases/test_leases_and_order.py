"""Leases and the order of claims where columns, clocks and pools are not as good as they could be."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest
from cases_kit import (
    JOBS,
    SECOND,
    Job,
    another,
    each_once,
    everywhere,
    make,
    on,
    serve,
)

from inboxkit import (
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    SchemaError,
    ack,
    events,
    insert_rows,
    role,
)
from inboxkit._core.lease import ExpirySteps
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.statement import Statement
from inboxkit_testing import ObservedDatabase, TestApp, VirtualClock, open_test_database, recorded

COARSE = {
    "postgres": ("timestamptz(0)", "timestamptz(3)"),
    "mysql": ("DATETIME", "DATETIME(3)", "TIMESTAMP NULL"),
}


class Bare(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@on("postgres", "mariadb")
@pytest.mark.parametrize("n", range(3))
async def test_lease_column_of_few_digits(
    n: int, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """With attempts its rows are settled once, renewed, and renewed again at the same instant; without
    them the start is refused."""
    db = inbox_database
    if n >= len(COARSE[db.dialect]):
        pytest.skip("one kind less")
    await make(db, lease=f"lease {COARSE[db.dialect][n]}")
    await virtual_clock.sleep(0.999999)
    app, seen = serve(db, JOBS, lambda _m, delivery: delivery.clock.sleep(100))
    with recorded() as timeline:
        async with TestApp(app) as kit:
            await kit.publish(JOBS, b"x")
            await kit.advance(102 * SECOND)
            assert await kit.rows(Job) == []
    assert seen == [(b"x", 1)]
    assert timeline.of(events.Lost) == []
    assert len(timeline.of(events.Finished)) == 1
    form = open_form(
        db,
        Job.spec,
        await db.describe(Job.spec),
        get_dialect(db.dialect),
        group="jobs",
        lease=30 * SECOND,
        cap=None,
        steps=ExpirySteps(0),
    )
    async with db.transaction() as tx:
        await insert_rows(tx, Job.of(b"x", name="jobs"))
    (claimed,) = (await form.claim(limit=1)).rows
    renewal = await form.renew([(claimed.fence, claimed.reading)], timeout=5)
    assert (set(renewal.renewed), renewal.lost) == ({claimed.fence.id}, frozenset())
    bare, _ = serve(db, InboxQueue(Bare, "bare", bytes), lambda *_: ack())
    with pytest.raises(SchemaError, match="fraction digits"):
        await bare.run()


@everywhere
async def test_renewal_that_changes_nothing_keeps_the_lease(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """At the very instant of the claim, twice: a row that was found counts, though it was not changed."""
    db = inbox_database
    await make(db)
    form = open_form(
        db,
        Job.spec,
        await db.describe(Job.spec),
        get_dialect(db.dialect),
        group="jobs",
        lease=30 * SECOND,
        cap=None,
        steps=ExpirySteps(0),
    )
    async with db.transaction() as tx:
        await insert_rows(tx, *(Job.of(b"x", name="jobs") for _ in range(2)))
    holds = [(row.fence, row.reading) for row in (await form.claim(limit=2)).rows]
    for _ in range(3):
        renewal = await form.renew(holds, timeout=5)
        assert renewal.lost == frozenset()
        assert set(renewal.renewed) == {1, 2}
        holds = [
            (
                type(fence)(fence.id, (*fence.tokens, renewal.renewed[fence.id]), fence.attempt),
                reading,
            )
            for fence, reading in holds
        ]


@each_once
async def test_renewals_that_find_no_connection_end_the_hold_in_time(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Handlers keep the whole pool: the hold is lost before its lease ends, and another takes the row."""
    await make(inbox_database)
    if inbox_database.dialect == "sqlite":
        pytest.skip("a connection that is lent holds up nothing that waits here")
    cancelled: list[float] = []

    async def work(_message: bytes, delivery: Any) -> Any:
        if delivery.attempt > 1:
            return ack()
        try:
            async with anyio.create_task_group() as tasks:

                async def hog() -> None:
                    async with delivery.database.connection():
                        await anyio.sleep(60)

                for _ in range(3):
                    tasks.start_soon(hog)
        finally:
            cancelled.append(delivery.clock.monotonic())
        return ack()

    queue = InboxQueue(Job, "jobs", bytes, lease=10 * SECOND)
    async with another(inbox_database, pool_size=3) as narrow, another(inbox_database) as wide:
        app, seen = serve(narrow, queue, work)
        other, seen_by_other = serve(wide, queue, work)
        with recorded() as timeline:
            async with TestApp(app) as kit:
                await kit.publish(queue, b"x")
                start = virtual_clock.monotonic()
                async with other.running():
                    await kit.advance(15 * SECOND)
                    assert (seen, seen_by_other) == ([(b"x", 1)], [(b"x", 2)])
                    assert 8 < cancelled[0] - start <= 10
                assert await wide.fetch("SELECT id FROM jobs") == []
    assert len(timeline.of(events.Lost)) == 1


@everywhere
async def test_renewals_go_before_handlers_that_wait_for_a_connection(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """However many wait: no lease is lost while connections come free."""
    await make(inbox_database)

    async def work(_message: bytes, delivery: Any) -> Any:
        for _ in range(5):
            async with delivery.database.connection():
                await anyio.sleep(0.7)
        return ack()

    queue = InboxQueue(Job, "jobs", bytes, lease=10 * SECOND)
    async with another(inbox_database, pool_size=2) as narrow:
        app, seen = serve(narrow, queue, work, workers=16)
        with recorded() as timeline:
            async with TestApp(app) as kit:
                for n in range(16):
                    await kit.publish(queue, b"%d" % n)
                await kit.advance(60 * SECOND)
                assert await kit.rows(Job) == []
    assert timeline.of(events.Lost) == []
    assert len(seen) == 16


@each_once
async def test_clock_that_is_set_back_shortens_no_lease(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Renewals go by monotonic time, and no other process sees the row as free."""
    await make(inbox_database)
    host = virtual_clock.at("stepped")
    assert isinstance(inbox_database, ObservedDatabase)
    url = str(inbox_database.url)
    async with open_test_database(url, clock=host, instance="stepped") as stepped:
        app, seen = serve(stepped, JOBS, lambda _m, delivery: delivery.clock.sleep(70))
        other, seen_by_other = serve(inbox_database, JOBS, lambda *_: ack())
        with recorded() as timeline:
            async with app.running():
                async with inbox_database.transaction() as tx:
                    await insert_rows(tx, Job.of(b"x", name="jobs"))
                await virtual_clock.advance(10 * SECOND)
                before = await inbox_database.fetch_value("SELECT lease FROM jobs")
                host.offset -= timedelta(minutes=2)
                await virtual_clock.advance(10 * SECOND)
                after = await inbox_database.fetch_value("SELECT lease FROM jobs")
                assert after > before
                async with other.running():
                    await virtual_clock.advance(60 * SECOND)
        assert (seen, seen_by_other) == ([(b"x", 1)], [])
    assert timeline.of(events.Lost) == []


class ById(Inbox, table="jobs"):
    id: UUID = role.id()
    name: str = role.group(fifo=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class ByText(Inbox, table="jobs"):
    id: str = role.id()
    name: str = role.group(fifo=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


UUID_KINDS = {
    "sqlite": ("TEXT", "BLOB"),
    "postgres": ("uuid",),
    "mysql": ("char(36) CHARACTER SET ascii COLLATE ascii_bin", "binary(16)"),
}


@each_once
@pytest.mark.parametrize("kind", range(2))
async def test_ids_break_ties_by_their_own_order(
    kind: int, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """Random ones at random, those of version 7 by their time, texts letter by letter."""
    db = inbox_database
    kinds = UUID_KINDS[db.dialect]
    if kind >= len(kinds):
        pytest.skip("one kind less")
    draw = Random(3)
    v4 = [UUID(int=draw.getrandbits(128), version=4) for _ in range(6)]
    v7 = [
        UUID(int=((10**12 + n) << 80) | (7 << 76) | (2 << 62) | draw.getrandbits(60))
        for n in range(6)
    ]
    texts = ["9", "10", "b", "B", "a"]
    for row, ids, declared, collation in (
        (ById, v4, kinds[kind], ""),
        (ById, v7, kinds[kind], ""),
        (
            ByText,
            texts,
            "varchar(9)",
            {"postgres": ' COLLATE "C"', "mysql": " COLLATE utf8mb4_bin"},
        ),
    ):
        suffix = collation.get(db.dialect, "") if isinstance(collation, dict) else ""
        await make(db, id=f"id {declared}{suffix} NOT NULL PRIMARY KEY")
        queue: InboxQueue[Any, Any] = InboxQueue(row, "q", bytes)
        async with db.transaction() as tx:
            await insert_rows(tx, *(row.of(str(id).encode(), id=id, name="q") for id in ids))
        app, seen = serve(db, queue, lambda *_: ack())
        async with TestApp(app) as kit:
            await kit.advance(10 * SECOND)
            assert [message.decode() for message, _ in seen] == [str(id) for id in sorted(ids)]
        await db.execute("DROP TABLE jobs")


@each_once
async def test_null_priorities_come_first_on_every_database(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, priority="priority integer")
    for message, priority in ((b"one", 1), (b"null", None), (b"five", 5)):
        await db.execute(
            "INSERT INTO jobs (name, priority, payload) VALUES ('jobs', $1, $2)", priority, message
        )
    app, seen = serve(db, JOBS, lambda *_: ack())
    async with TestApp(app) as kit:
        await kit.settle()
    assert [message for message, _ in seen] == [b"null", b"one", b"five"]


class Locked(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    due: datetime | None = role.retry_after(default=None)
    payload: bytes = role.payload()


@on("mariadb", "mysql", once=True)
@pytest.mark.parametrize("row", [Job, Locked], ids=["lease", "row lock"])
async def test_claims_side_by_side_take_different_rows_without_an_index(
    row: Any, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """By a sort of all candidates, and an index on the group alone."""
    db = inbox_database
    await make(db, index="KEY by_group (name)")
    async with db.transaction() as tx:
        await insert_rows(tx, *(row.of(b"%d" % n, name="jobs") for n in range(12)))
    queue: InboxQueue[Any, Any] = InboxQueue(row, "jobs", bytes)
    async with another(db) as beside:
        apps = [
            serve(database, queue, lambda _m, delivery: delivery.clock.sleep(5), workers=6)
            for database in (db, beside)
        ]
        async with apps[0][0].running(), apps[1][0].running():
            await virtual_clock.advance(4 * SECOND)
            found = [message for _, seen in apps for message, _ in seen]
            assert sorted(found) == sorted(b"%d" % n for n in range(12))
            await virtual_clock.advance(5 * SECOND)
    assert await db.fetch_value("SELECT count(*) FROM jobs") == 0


@on("sqlite", "postgres", "mariadb")
async def test_lease_begins_when_a_connection_was_had(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Not when the claim began to wait for one."""
    db = inbox_database
    await make(db)
    leases: list[Any] = []

    async def answer(_message: bytes, delivery: Delivery) -> Outcome:
        leases.append(await delivery.database.fetch_value("SELECT lease FROM jobs"))
        return ack()

    app, _ = serve(db, JOBS, answer)
    async with TestApp(app):
        start = virtual_clock.now()
        taken = [await db.acquire() for _ in range(db.pool_size)]
        insert = "INSERT INTO jobs (name, priority, payload) VALUES ('jobs', 5, $1)"
        await taken[0].execute(Statement("insert", insert, (b"1",), returns_rows=False))
        await virtual_clock.advance(12 * SECOND)
        assert leases == []
        for connection in taken:
            await db.release(connection)
        await virtual_clock.advance(SECOND)
    (lease,) = [datetime.fromisoformat(at) if isinstance(at, str) else at for at in leases]
    assert timedelta(0) <= lease - start - timedelta(seconds=42) <= 2 * SECOND
