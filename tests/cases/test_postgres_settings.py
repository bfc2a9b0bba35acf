"""Settings of a PostgreSQL server, role or table that a service did not choose."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from cases_kit import JOBS, SECOND, Job, another, make, on, serve

from inboxkit import (
    Column,
    Database,
    DatabaseClock,
    Inbox,
    InboxQueue,
    InboxSpec,
    ack,
    events,
    insert_rows,
    retry,
    role,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import (
    ObservedDatabase,
    TestApp,
    VirtualClock,
    open_test_database,
    recorded,
    run,
)

postgres = on("postgres")


class Locked(Inbox, table="jobs"):
    """The row lock form."""

    id: int = role.id(generated=True)
    name: str = role.group()
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


LOCKED = InboxQueue(Locked, "jobs", bytes)


async def configure(db: Database, **settings: str) -> None:
    """Settings of every session of this database from now on."""
    name = await db.fetch_value("SELECT current_database()")
    for setting, value in settings.items():
        await db.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")


@postgres
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("queue", [JOBS, LOCKED], ids=["lease", "row lock"])
async def test_stricter_isolation_fails_no_claim(
    queue: Any, isolation: str, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Claims of several processes at once; one that fails by it is repeated, and charges no attempt."""
    db = inbox_database
    await make(db)
    await configure(db, default_transaction_isolation=isolation)
    seen: list[Any] = []
    async with another(db, "one") as one, another(db, "two") as two:
        assert await one.fetch_value("SHOW default_transaction_isolation") == isolation
        async with one.transaction() as tx:
            await insert_rows(tx, *(queue.row.of(b"%d" % n, name="jobs") for n in range(40)))
        apps = []
        for database in (one, two):
            app, found = serve(database, queue, lambda *_: ack(), workers=4)
            apps.append(app)
            seen.append(found)
        async with apps[0].running(), apps[1].running():
            await virtual_clock.advance(10 * SECOND)
    assert sorted(seen[0] + seen[1]) == sorted((b"%d" % n, 1) for n in range(40))
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text for text in told if "a claim failed" not in text] == []
    assert queue is JOBS or told == [], "a row lock's transaction says its isolation"
    assert await db.fetch_value("SELECT count(*) FROM jobs") == 0


@postgres
async def test_timeouts_of_idle_transactions_do_not_end_a_delivery(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """The row lock form's transaction idles while its handler works elsewhere; others' still end."""
    db = inbox_database
    await make(db)
    known = await db.fetch(
        "SELECT name FROM pg_settings WHERE name = 'transaction_timeout'"
    )  # from 17
    bounds = {"transaction_timeout": "60ms"} if known else {}
    await configure(db, idle_in_transaction_session_timeout="30ms", **bounds)

    async def work(_message: bytes, delivery: Any) -> Any:
        async with db.connection() as beside:
            with virtual_clock.external("real work"):
                await beside.execute("SELECT pg_sleep(0.15)")
        return ack()

    async with another(db) as database:
        app, seen = serve(database, LOCKED, work)
        with recorded() as timeline:
            async with TestApp(app) as kit:
                await kit.publish(LOCKED, b"x")
                await kit.advance(2 * SECOND)
                assert await kit.rows(Locked) == []
    assert seen == [(b"x", 1)]
    assert timeline.of(events.Lost) == []


@postgres
@pytest.mark.parametrize("queue", [JOBS, LOCKED], ids=["lease", "row lock"])
async def test_statement_timeout_in_a_handler_is_its_failure(
    queue: Any, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Counted, backed off and settled, on whatever session the form settles on."""
    db = inbox_database
    await make(db)

    async def work(_message: bytes, delivery: Any) -> Any:
        if delivery.attempt == 1:
            async with delivery.database.transaction() as tx:
                await tx.execute("SET LOCAL statement_timeout = 20")
                await tx.execute("SELECT pg_sleep(5)")
        return ack()

    app, seen = serve(db, queue, work)
    async with TestApp(app) as kit:
        await kit.publish(queue, b"x")
        (row,) = await kit.rows(queue.row)
        assert row.attempt == 2
        assert 0.5 <= (row.due - virtual_clock.now()) / SECOND <= 1.5
        await kit.advance(2 * SECOND)
        assert seen == [(b"x", 1), (b"x", 2)]
        assert await kit.rows(queue.row) == []


CHANGES = (
    "ALTER TABLE jobs ADD COLUMN note text",
    "ALTER TABLE jobs ALTER COLUMN attempt TYPE bigint",
    "ALTER TABLE jobs ALTER COLUMN payload TYPE bytea USING payload || ''",
    "CREATE INDEX more ON jobs (name, priority, due, id)",
    "DROP INDEX more",
    "ALTER TABLE jobs DROP COLUMN note",
)


@postgres
@pytest.mark.parametrize("queue", [JOBS, LOCKED], ids=["lease", "row lock"])
async def test_table_that_is_altered_under_a_running_service(
    queue: Any, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """Statements that are prepared already, of every kind, on every session."""
    db = inbox_database
    await make(db)
    async with another(db, "operator") as operator:
        app, seen = serve(
            db,
            queue,
            lambda message, delivery: retry() if delivery.attempt == 1 else ack(),
            workers=2,
        )
        async with TestApp(app) as kit:
            for number, change in enumerate(("SELECT 1", *CHANGES)):
                await operator.execute(change)
                for within in (False, True):
                    message = b"%d %d" % (number, within)
                    if within:
                        async with db.transaction() as tx:
                            await kit.broker.publish(queue, message, within=tx)
                    else:
                        await kit.publish(queue, message)
                await kit.advance(2 * SECOND)
                assert await kit.rows(queue.row) == [], change
    assert "a claim failed" not in caplog.text
    assert len(seen) == 4 * (len(CHANGES) + 1)
    assert {attempt for _, attempt in seen} == {1, 2}


@postgres
async def test_table_of_another_schema_and_an_empty_search_path(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Nothing is read from, or written to, the table of the same name in another schema."""
    db = inbox_database
    schema = "Jobs-EU"
    row, dead = (
        InboxSpec(
            table,
            schema=schema,
            **{
                name: getattr(Plain.spec, name)
                for name in ("id", "attempt", "locked_until", "payload")
            },
        )
        for table in ("jobs", "dead jobs")
    )
    await db.execute(f'CREATE SCHEMA "{schema}"')
    for spec in (row, dead):
        for statement in create_table(get_dialect("postgres"), spec):
            await db.execute(statement)
    await make(db)
    await db.execute("INSERT INTO jobs (id, name, payload) VALUES (77, 'q', 'decoy')")
    await make(db, '"dead jobs"')
    await configure(db, search_path="")
    async with another(db) as database:
        assert await database.fetch_value("SELECT current_schemas(false)") == []
        queue: InboxQueue[Any, Any] = InboxQueue(row, "q", bytes, lease=4 * SECOND)

        async def work(message: bytes, delivery: Any) -> Any:
            if message == b"slow":
                await delivery.clock.sleep(10)  # is renewed
                return ack()
            return retry()

        app, seen = serve(
            database,
            queue,
            work,
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
    assert await db.fetch_value("SELECT count(*) FROM public.jobs WHERE payload = 'decoy'") == 1
    assert await db.fetch_value("SELECT count(*) FROM public.jobs") == 1
    assert await db.fetch_value('SELECT count(*) FROM public."dead jobs"') == 0


class Plain(Inbox, table="jobs"):
    """No groups, so that dead letters go to a table."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@postgres
async def test_server_that_is_read_only_for_a_while(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    """As after a fail-over: claims wait, what is in work settles afterwards, and no attempt is charged."""
    db = inbox_database
    await make(db)

    async def become(read_only: bool, database: ObservedDatabase) -> None:
        async with another(db, "administrator") as administrator:
            await administrator.execute("SET default_transaction_read_only = off")
            await configure(administrator, default_transaction_read_only=str(read_only))
        for session in list(database.observed._connections):
            session.terminate()

    async with another(db, "service") as database:
        app, seen = serve(database, JOBS, lambda _m, delivery: delivery.clock.sleep(5))
        async with app.running():
            async with database.transaction() as tx:
                await insert_rows(tx, *(Job.of(b"%d" % n, name="jobs") for n in range(2)))
            await virtual_clock.advance(3 * SECOND)
            await become(True, database)
            await virtual_clock.advance(15 * SECOND)
            assert seen == [(b"0", 1)]
            await become(False, database)
            await virtual_clock.advance(40 * SECOND)
            assert seen == [(b"0", 1), (b"1", 1)]
            assert await database.fetch("SELECT id FROM jobs") == []
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) <= 2, told


@postgres
async def test_indexes_of_tables_of_long_names_have_names_of_their_own(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """The recommended tables can be made beside each other, though their names differ at the end alone."""
    for end in ("a", "b"):
        for statement in create_table(
            get_dialect("postgres"),
            InboxSpec(
                "é" * 30 + end,
                id=Column("id", generated=True, type=int),
                group=Column("name"),
                locked_until=Column("lease"),
                payload=Column("payload", type=bytes),
            ),
        ):
            await inbox_database.execute(statement)
    found = await inbox_database.fetch("SELECT indexname FROM pg_indexes WHERE indexname LIKE 'é%'")
    assert len({name for (name,) in found}) == 6
    assert all(len(name.encode()) <= 63 for (name,) in found)


AUTUMN = datetime(2026, 10, 25, 0, 59, 50, tzinfo=UTC)
"""02:59:50 in Berlin; ten seconds later it is 02:00:00 again."""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_leases_over_the_hour_that_comes_twice(backend: Any, postgres_url: str) -> None:
    """The session's time zone has no part in what is written, compared, read and asked for."""
    clock = VirtualClock(start=AUTUMN)

    async def main() -> None:
        async with open_test_database(postgres_url, clock=clock) as db:
            await make(db)
            await configure(db, timezone="Europe/Berlin")
        async with (
            open_test_database(postgres_url, clock=clock, instance="one") as one,
            open_test_database(postgres_url, clock=clock, instance="two") as two,
        ):
            app, seen = serve(one, JOBS, lambda _m, delivery: delivery.clock.sleep(40))
            other, seen_by_other = serve(two, JOBS, lambda *_: ack())
            async with TestApp(app) as kit:
                await kit.publish(JOBS, b"x")
                (row,) = await kit.rows(Job)
                assert 0 <= (row.lease - AUTUMN) / SECOND - 30 < 0.001
                async with other.running():
                    await kit.advance(39 * SECOND)
                    assert (len(seen), seen_by_other) == (1, [])

    run(main, backend=backend, clock=clock)

    async def ask() -> None:
        async with Database(postgres_url, clock=DatabaseClock()) as db:
            assert await db.fetch_value("SHOW timezone") == "Europe/Berlin"
            reading = await db.read_clock()
            assert abs(reading.now - datetime.now(UTC)) < timedelta(minutes=1)

    anyio.run(ask, backend=backend)


@on("sqlite", "postgres", "mariadb", "mysql", once=True)
async def test_aware_times_of_any_zone_are_one_instant(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    from datetime import timezone

    db = inbox_database
    await make(db)
    berlin = timezone(timedelta(hours=2))
    later = frozen_clock.now() + 3 * SECOND
    async with db.transaction() as tx:
        for due in (later, later.astimezone(berlin), later.astimezone(timezone.min)):
            await insert_rows(tx, Job.of(b"x", name="jobs", due=due))
    if db.dialect == "postgres":
        await configure(db, timezone="Asia/Kathmandu")
    app, seen = serve(db, JOBS, lambda *_: ack(), workers=3)
    async with TestApp(app) as kit:
        assert {(row.due, row.due.tzinfo) for row in await kit.rows(Job)} == {(later, UTC)}
        await kit.advance(3 * SECOND - timedelta(microseconds=1))
        assert seen == []
        await kit.advance(SECOND)
        assert len(seen) == 3
