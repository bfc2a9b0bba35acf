"""Retention: old finished rows go, in bounded batches, and no other row does."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from database_cells import everywhere, on, on_servers

from inboxkit import (
    Broker,
    ConstraintError,
    Database,
    DatabaseError,
    DeclarationError,
    Inbox,
    InboxQueue,
    InboxSpec,
    SchemaError,
    Service,
    ack,
    insert_rows,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.retention import finished
from inboxkit._sql.table import bind
from inboxkit.contrib.retention import delete_finished, keep_finished, retention_index
from inboxkit_testing import ObservedDatabase, TestApp, VirtualClock

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NONE = timedelta(0)
MONTH = 30 * DAY


class Job(Inbox, table="kept jobs"):
    id: int = role.id(generated=True)
    name: str = role.group(default="q")
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class RowLocked(Inbox, table="kept jobs"):
    """The same, in the row lock form."""

    id: int = role.id(generated=True)
    name: str = role.group(default="q")
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    payload: bytes = role.payload()


class Forgotten(Inbox, table="forgotten"):
    """Rows that are deleted when they are finished."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "q", bytes)


async def make(db: Database, row: type[Inbox] = Job, *, indexed: bool = True) -> None:
    statements = create_table(get_dialect(db.dialect), row.spec)
    for statement in [*statements, *([retention_index(db.dialect, row)] if indexed else [])]:
        await db.execute(statement)


def named(db: Database) -> str:
    return get_dialect(db.dialect).quote("kept jobs")


async def finish(db: Database, *ages: timedelta, row: Any = Job) -> list[int]:
    """Rows that were finished so long ago; returns their ids."""
    now, dialect = db.clock.now(), get_dialect(db.dialect)
    ids: list[int] = []
    async with db.transaction() as tx:
        ids = await insert_rows(tx, *(row.of(b"x") for _ in ages))
        for id, age in zip(ids, ages, strict=True):
            await tx.execute(
                f"UPDATE {named(db)} SET processed_at = $1 WHERE id = $2",
                dialect.instant(now - age),
                id,
            )
    return ids


async def left(db: Database) -> list[int]:
    return [row[0] for row in await db.fetch(f"SELECT id FROM {named(db)} ORDER BY id")]


def recorded(db: Database, name: str) -> list[Any]:
    assert isinstance(db, ObservedDatabase)
    return [one for one in db.recording.statements() if one.name == name]


@everywhere
async def test_only_rows_that_were_finished_long_ago_are_deleted(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    old, at_the_edge, young, of_the_future = await finish(
        db, 40 * DAY, MONTH, MONTH - timedelta(microseconds=1), -DAY
    )
    waiting, leased = await finish(db, DAY, DAY)
    await db.execute(f"UPDATE {named(db)} SET processed_at = NULL WHERE id >= $1", waiting)
    until = get_dialect(db.dialect).instant(db.clock.now() - 90 * DAY)
    await db.execute(f"UPDATE {named(db)} SET locked_until = $1 WHERE id = $2", until, leased)
    assert await delete_finished(db, Job, older_than=MONTH) == 2
    assert await left(db) == [young, of_the_future, waiting, leased]
    assert await delete_finished(db, Job, older_than=MONTH) == 0
    assert await delete_finished(db, Job, older_than=timedelta(0)) == 1
    assert await left(db) == [of_the_future, waiting, leased]
    # An age that reaches back before all time is no age of any row.
    assert await delete_finished(db, Job, older_than=timedelta.max) == 0
    assert {old, at_the_edge}.isdisjoint(await left(db))


@everywhere
async def test_batches_are_short_transactions_with_a_pause_between_them(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    # Many of one instant, so that a batch ends among them; and a full last batch.
    ids = await finish(db, *[50 * DAY] * 5, *[40 * DAY + n * SECOND for n in range(7)], DAY)
    start = virtual_clock.now()
    count = await delete_finished(db, Job, older_than=MONTH, batch=4, pause=SECOND)
    assert (count, await left(db)) == (12, ids[-1:])
    assert virtual_clock.now() - start == 3 * SECOND
    assert len(recorded(db, "retention")) == 4
    deleted = recorded(db, "purge")
    singly = db.dialect == "mysql"  # of several rows a DELETE may read, and wait for, others there
    assert [len(one.parameters) for one in deleted] == ([1] * 12 if singly else [4, 4, 4])


@everywhere
@pytest.mark.parametrize("row", [Job, RowLocked])
async def test_locked_rows_are_passed_over_and_waited_for_by_nobody(
    row: type[Inbox], inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    if db.dialect == "sqlite":
        pytest.skip("SQLite locks no rows")
    await make(db)
    first, *rest = await finish(db, *[40 * DAY] * 5)
    async with db.transaction() as holder:
        await holder.fetch(f"SELECT id FROM {named(db)} WHERE id = $1 FOR UPDATE", first)
        assert await delete_finished(db, row, older_than=MONTH, batch=2, pause=NONE) == 4
    assert await left(db) == [first]
    assert await delete_finished(db, row.spec, older_than=MONTH) == 1
    assert rest


@everywhere
async def test_instances_that_delete_at_once_delete_each_row_once(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    await finish(db, *[40 * DAY] * 30)
    counts: list[int] = []

    async def delete() -> None:
        counts.append(await delete_finished(db, Job, older_than=MONTH, batch=4))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(delete)
    counts.append(await delete_finished(db, Job, older_than=MONTH))
    assert sum(counts) == 30
    assert await left(db) == []


@everywhere
async def test_a_service_keeps_its_finished_rows_so_long_and_no_longer(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="inboxkit")
    db = inbox_database
    await make(db)

    async def work(_message: bytes) -> None: ...

    app = Service("keeps", Broker(db, poll_interval=HOUR))
    app.include(subscriber(JOBS)(work))
    app.beside(keep_finished(Job, 4 * HOUR, every=HOUR))
    async with TestApp(app) as kit:
        first = await kit.publish(JOBS, b"1")
        await kit.advance(2 * HOUR)
        second = await kit.publish(JOBS, b"2")
        assert await left(db) == [first, second]
        await kit.advance(2 * HOUR - SECOND)
        assert await left(db) == [first, second]
        await kit.advance(HOUR + 2 * SECOND)
        assert await left(db) == [second]
        await kit.advance(2 * HOUR)
        assert await left(db) == []
    told = [r.getMessage() for r in caplog.records if "deleted" in r.getMessage()]
    assert told == ["deleted 1 old rows of table 'kept jobs'"] * 2
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@everywhere
async def test_an_outage_is_a_warning_and_the_next_round_deletes(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db = inbox_database
    assert isinstance(db, ObservedDatabase)
    await make(db)
    await finish(db, *[40 * DAY] * 5)
    app = Service("keeps", Broker(db))
    app.beside(keep_finished(Job, MONTH, every=HOUR, batch=2))
    db.faults.refuse("purge", times=3, error=lambda _: DatabaseError("no", statement="purge"))
    async with app.running():
        await virtual_clock.advance(SECOND)
        assert len(await left(db)) == 5
        await virtual_clock.advance(HOUR)
        assert len(await left(db)) == 5
        await virtual_clock.advance(2 * HOUR)
        assert await left(db) == []
    told = [r.getMessage() for r in caplog.records if "next round" in r.getMessage()]
    assert (
        told == ["old rows of table 'kept jobs' are left for the next round: DatabaseError: no"] * 3
    )


@everywhere
async def test_a_busy_database_is_tried_again_at_once(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    assert isinstance(db, ObservedDatabase)
    await make(db)
    await finish(db, *[40 * DAY] * 5)
    db.faults.refuse("purge", times=2)
    assert await delete_finished(db, Job, older_than=MONTH) == 5


@everywhere
async def test_a_stop_ends_between_two_batches(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    await finish(db, *[40 * DAY] * 9)
    await db.execute(f"UPDATE {named(db)} SET processed_at = NULL WHERE id = 9")
    handled: list[bytes] = []

    async def work(message: bytes) -> None:
        await anyio.sleep(2.5)
        handled.append(message)

    app = Service("keeps", Broker(db))
    app.include(subscriber(JOBS)(work))
    app.beside(keep_finished(Job, MONTH, batch=2, pause=SECOND))
    start = virtual_clock.now()
    async with app.running() as handle:
        await virtual_clock.settle()
        handle.stop()
    # The handler in work is waited for, and old rows go on being deleted beside it.
    assert handled == [b"x"]
    assert virtual_clock.now() - start == timedelta(seconds=2.5)
    assert await left(db) == [7, 8, 9]


@everywhere
async def test_a_row_that_others_refer_to_keeps_its_batch(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    first, *_ = await finish(db, *[50 * DAY - n * SECOND for n in range(4)])
    if db.dialect == "sqlite":
        pytest.skip("foreign keys are off there, where nobody turns them on")
    await db.execute(
        f"CREATE TABLE refers (job bigint, FOREIGN KEY (job) REFERENCES {named(db)} (id))"
    )
    await db.execute("INSERT INTO refers VALUES ($1)", first)
    try:
        with pytest.raises(ConstraintError):
            await delete_finished(db, Job, older_than=MONTH, batch=2)
        assert len(await left(db)) == 4
    finally:
        await db.execute("DROP TABLE refers")


@on("sqlite")
async def test_a_time_that_cannot_be_read_is_of_no_age(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    ids = await finish(db, *[40 * DAY] * 8)
    odd = ["", "yesterday", "1999-01-01 00:00:00", "1999-01-01", b"\x00", "0"]
    for id, text in zip(ids, odd, strict=False):
        await db.execute(f"UPDATE {named(db)} SET processed_at = $1 WHERE id = $2", text, id)
    assert await delete_finished(db, Job, older_than=MONTH, batch=1) == 2
    assert await left(db) == ids[:6]


@everywhere
async def test_a_table_without_the_index_is_told_with_the_statement_that_makes_it(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db = inbox_database
    await make(db, indexed=False)
    await finish(db, 40 * DAY)
    assert await delete_finished(db, Job, older_than=MONTH) == 1
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    statement = warning.partition(": ")[2]
    assert statement == retention_index(db.dialect, Job)
    await db.execute(statement)
    caplog.clear()
    await delete_finished(db, Job, older_than=MONTH)
    assert caplog.records == []


async def test_what_keeps_no_finished_rows_is_refused(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    for row in (Forgotten, Forgotten.spec):
        with pytest.raises(DeclarationError, match=r"role\.processed_at"):
            await delete_finished(inbox_database, row, older_than=DAY)
        with pytest.raises(DeclarationError, match=r"role\.processed_at"):
            keep_finished(row, DAY)
        with pytest.raises(DeclarationError, match=r"role\.processed_at"):
            retention_index("sqlite", row)
    with pytest.raises(SchemaError, match="kept jobs"):
        await delete_finished(inbox_database, Job, older_than=DAY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep": -DAY},
        {"keep": 30},
        {"every": timedelta(0)},
        {"every": 1},
        {"batch": 0},
        {"batch": 5001},
        {"batch": True},
        {"pause": -SECOND},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        keep_finished(Job, **{"keep": DAY, **wrong})


ROWS = 4000


async def fill(db: Database) -> Any:
    """Many rows that wait, many that were finished lately, and many that are old."""
    await make(db)
    table = bind(get_dialect(db.dialect), Job.spec, await db.describe(Job.spec))
    lines = ", ".join(["('q', $1, '')"] * 1000)
    cast = "::timestamptz" if db.dialect == "postgres" else ""
    lines = lines.replace("$1", f"$1{cast}")
    now = db.clock.now()
    for at in (None, now, now - 40 * DAY):
        given = None if at is None else table.instant(at)
        for _ in range(ROWS // 1000):
            await db.execute(
                f"INSERT INTO {table.sql} (name, processed_at, payload) VALUES {lines}", given
            )
    await db.execute(f"ANALYZE {'TABLE ' if db.dialect == 'mysql' else ''}{table.sql}")
    return table


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@on("sqlite", "postgres", "mariadb", "mysql", once=("mariadb", "mysql"))
async def test_a_batch_walks_no_more_rows_than_it_deletes(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    table = await fill(db)
    old = table.instant(db.clock.now() - MONTH)
    time = table.instant(db.clock.now() - 40 * DAY)
    for after in (None, (time, 2 * ROWS + 1000)):
        statement = finished(table, before=old, after=after, limit=100)
        async with db.transaction() as tx:
            if db.dialect == "postgres":
                text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
                found = await tx.fetch_value(text, *statement.parameters)
                plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
                scans = [one for one in nodes(plan) if "Scan" in one["Node Type"]]
                assert [one.get("Index Name") for one in scans] == ["kept jobs_finished"]
                walked = sum(
                    one["Actual Rows"] + one.get("Rows Removed by Filter", 0) for one in scans
                )
                # Those of the same instant before the one where the last batch ended.
                assert walked <= (100 if after is None else 1200)
            elif db.dialect == "sqlite":
                rows = await tx.fetch(f"EXPLAIN QUERY PLAN {statement.text}", *statement.parameters)
                plan = " ".join(str(row[3]) for row in rows)
                assert "kept jobs_finished" in plan
                assert "TEMP B-TREE" not in plan
            else:
                before = await handled(tx)
                await tx.fetch(statement.text, *statement.parameters)
                assert await handled(tx) - before <= (110 if after is None else 1210)
    assert await delete_finished(db, Job, older_than=MONTH) == ROWS


async def handled(tx: Any) -> int:
    """Rows that the session has read so far."""
    rows = await tx.fetch("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(row[1]) for row in rows)


@on_servers
async def test_claims_and_retention_do_not_wait_for_each_other(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db)
    await finish(db, *[40 * DAY] * 20)
    handled: list[bytes] = []

    async def work(message: bytes) -> Any:
        handled.append(message)
        return ack()

    async with db.transaction() as holder:
        # What a batch of another instance holds in the middle of it.
        table = bind(get_dialect(db.dialect), Job.spec, await db.describe(Job.spec))
        old = table.instant(db.clock.now() - MONTH)
        statement = finished(table, before=old, after=None, limit=10)
        assert len(await holder.fetch(statement.text, *statement.parameters)) == 10
        app = Service("keeps", Broker(db))
        app.include(subscriber(JOBS)(work), workers=4)
        async with app.running():
            for _ in range(5):
                await app.broker.publish(JOBS, b"new")
            await virtual_clock.settle()
            assert handled == [b"new"] * 5
            assert await delete_finished(db, Job, older_than=MONTH) == 10


def test_the_description_by_hand_serves_too() -> None:
    spec = InboxSpec(
        "t", id=Job.spec.id, processed_at=Job.spec.processed_at, payload=Job.spec.payload
    )
    assert retention_index("postgres", spec) == (
        'CREATE INDEX "t_finished" ON "t" ("processed_at", "id") WHERE "processed_at" IS NOT NULL'
    )
    assert retention_index("mysql", spec) == (
        "CREATE INDEX `t_finished` ON `t` (`processed_at`, `id`)"
    )
