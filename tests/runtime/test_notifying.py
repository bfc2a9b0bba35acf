"""Notifications of PostgreSQL: rows of other processes are found at once, and it never matters."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    another,
    count,
    create,
    killed,
    observed,
    warnings,
)

from inboxkit import (
    Broker,
    Database,
    DatabaseError,
    DeclarationError,
    InboxQueue,
    Service,
    StartupError,
    insert_rows,
    subscriber,
)
from inboxkit.abc import Statement
from inboxkit_testing import TestApp, VirtualClock, open_test_database, run
from inboxkit_testing.servers import PostgresServer

on_postgres = pytest.mark.parametrize("inbox_db", ["postgres"])


def hearing(database: Database, *pairs: Any, name: str = "hears") -> Service:
    """A service that polls once an hour, so that whatever is handled sooner was told of."""
    app = Service(name, Broker(database, poll_interval=HOUR, listen_notify=True))
    for queue, handler in pairs:
        app.include(subscriber(queue)(handler))
    return app


def notices(database: Database) -> list[tuple[str, str]]:
    """What was told, in order."""
    sent = observed(database).recording.statements("notify")
    pairs: list[tuple[str, str]] = []
    for one in sent:
        if "pg_notify" in one.text:
            pairs += zip(*one.parameters, strict=True)
    return pairs


@on_postgres
async def test_rows_of_another_process_are_handled_at_once(
    inbox_database: Database, frozen_clock: VirtualClock, inbox_db: str
) -> None:
    await create(inbox_database, Job, Plain)
    jobs, plain = Handler(), Handler()
    async with (
        another(inbox_database) as elsewhere,
        TestApp(hearing(inbox_database, (JOBS, jobs), (PLAIN, plain))) as app,
    ):
        broker = Broker(elsewhere, listen_notify=True)
        await broker.publish(JOBS, Work(1))
        await app.settle()
        assert jobs.numbers == [1]
        async with elsewhere.transaction() as tx:
            await broker.publish(JOBS, Work(2), within=tx)
            await insert_rows(tx, Job.of(Work(3), name="jobs"), Job.of(Work(4), name="jobs"))
            await broker.publish(PLAIN, Work(5), within=tx)
            async with tx.transaction() as nested:
                await broker.publish(JOBS, Work(6), within=nested)
            with suppress(ZeroDivisionError):
                async with tx.transaction() as undone:
                    await insert_rows(undone, Job.of(Work(7), name="undone"))
                    raise ZeroDivisionError
            assert (jobs.numbers, plain.numbers) == ([1], [])
        await app.settle()
        assert (jobs.numbers, plain.numbers) == ([1, 2, 3, 4, 6], [5])
        # One for each transaction and group, and none of what was undone.
        told = [("public.jobs", "jobs"), ("public.jobs", "jobs"), ("public.plain_jobs", "")]
        assert notices(elsewhere) == told
        with suppress(ZeroDivisionError):
            async with elsewhere.transaction() as tx:
                await broker.publish(JOBS, Work(8), within=tx)
                raise ZeroDivisionError
        assert notices(elsewhere) == told
        assert frozen_clock.monotonic() == 0


@on_postgres
async def test_a_trigger_tells_of_rows_that_are_written_by_other_means(
    inbox_database: Database, frozen_clock: VirtualClock, inbox_db: str
) -> None:
    await create(inbox_database, Job)
    await inbox_database.execute(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify(TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME, NEW.name); RETURN NULL; END $$"
    )
    await inbox_database.execute(
        "CREATE TRIGGER tell AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION tell()"
    )
    handler, others = Handler(), Handler()
    other = InboxQueue(Job, "others", Work)
    async with (
        another(inbox_database) as elsewhere,
        TestApp(hearing(inbox_database, (JOBS, handler), (other, others))) as app,
    ):
        claims = len(observed(inbox_database).recording.transactions("claim"))
        insert = "INSERT INTO jobs (name, priority, payload) VALUES ($1, 5, $2)"
        await elsewhere.execute(insert, "jobs", b'{"n": 1}')
        await app.settle()
        assert (handler.numbers, others.numbers) == ([1], [])
        # One full claim and the empty one after it, by the one queue that it concerned.
        assert len(observed(inbox_database).recording.transactions("claim")) == claims + 2
        # An empty payload is for all queues of the table.
        await elsewhere.execute("ALTER TABLE jobs DISABLE TRIGGER tell")
        await elsewhere.execute(insert, "jobs", b'{"n": 2}')
        await elsewhere.execute(insert, "others", b'{"n": 3}')
        await app.settle()
        assert (handler.numbers, others.numbers) == ([1], [])
        await elsewhere.execute("SELECT pg_notify('public.jobs', '')")
        await app.settle()
        assert (handler.numbers, others.numbers) == ([1, 2], [3])


@on_postgres
async def test_a_lost_connection_is_made_again_each_second_and_then_everything_is_woken(
    inbox_database: Database,
    frozen_clock: VirtualClock,
    inbox_db: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    faults = observed(inbox_database).faults
    async with (
        another(inbox_database) as elsewhere,
        TestApp(hearing(inbox_database, (JOBS, handler))) as app,
    ):
        kill = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query = 'SELECT 1')"
        )
        refusal = DatabaseError("no", statement="listen")
        faults.refuse("listen", times=2, error=lambda _operation: refusal)
        assert await elsewhere.fetch_value(kill) == 1
        await app.settle()
        assert len(warnings(caplog, "notifications are not heard")) == 1
        broker = Broker(elsewhere, listen_notify=True)
        await broker.publish(JOBS, Work(1))
        await app.advance(2.5 * SECOND)
        assert handler.numbers == []
        await app.advance(SECOND)
        assert handler.numbers == [1]
        await broker.publish(JOBS, Work(2))
        await app.settle()
        assert handler.numbers == [1, 2]
        assert len(warnings(caplog, "notifications are not heard")) == 1
        assert len(warnings(caplog, "heard again")) == 1
    assert await _listeners(inbox_database) == 0


async def _listeners(database: Database) -> Any:
    return await database.fetch_value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND (query LIKE 'LISTEN%' OR query = 'SELECT 1')"
    )


@on_postgres
async def test_a_session_whose_server_has_become_read_only_listens_elsewhere(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A former primary that stays up says nothing, and nobody notifies there any more."""
    await create(inbox_database, Job)
    handler = Handler()
    connect, opened = inbox_database.connect_apart, 0

    async def connect_to_a_former_primary() -> Any:
        nonlocal opened
        opened += 1
        session = await connect()
        if opened <= 3:
            text = "SET default_transaction_read_only = on"
            await session.execute(Statement("read-only", text, returns_rows=False))
        return session

    monkeypatch.setattr(inbox_database, "connect_apart", connect_to_a_former_primary)
    async with hearing(inbox_database, (JOBS, handler)).running():
        await virtual_clock.advance(14 * SECOND)
        assert opened == 1
        await virtual_clock.advance(SECOND)
        assert len(warnings(caplog, "the server has become read-only")) == 1
        await virtual_clock.advance(4 * SECOND)
        assert opened == 4, "each second, until one takes writes"
        assert len(warnings(caplog, "heard again")) == 1
        async with another(inbox_database) as other:
            await Broker(other, listen_notify=True).publish(JOBS, Work(1))
        await virtual_clock.settle()
        assert handler.numbers == [1]
        await virtual_clock.advance(HOUR)
        assert opened == 4
    assert len(warnings(caplog, "notifications are not heard")) == 1


@on_postgres
async def test_a_notification_that_cannot_be_sent_is_a_warning(
    inbox_database: Database,
    frozen_clock: VirtualClock,
    inbox_db: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    faults = observed(inbox_database).faults
    refusal = DatabaseError("no such luck", statement="notify")
    async with TestApp(hearing(inbox_database, (JOBS, handler))) as app:
        faults.refuse("notify", times=1, error=lambda _operation: refusal)
        await app.publish(JOBS, Work(1))
        # Really refused inside of the transaction, which would be aborted by it.
        await inbox_database.execute(
            "CREATE FUNCTION public.pg_notify(text, text) RETURNS text LANGUAGE sql "
            "AS $$ SELECT (1 / 0)::text $$"
        )
        await inbox_database.execute(
            f"ALTER DATABASE {await inbox_database.fetch_value('SELECT current_database()')} "
            "SET search_path = public, pg_catalog"
        )
        async with another(inbox_database) as elsewhere:
            broker = Broker(elsewhere, listen_notify=True)
            async with elsewhere.transaction() as tx:
                await broker.publish(JOBS, Work(2), within=tx)
            await broker.publish(JOBS, Work(3))
        app.broker.wake(JOBS)
        await app.settle()
        assert handler.numbers == [1, 2, 3]
        assert len(warnings(caplog, "not notified")) == 3


@on_postgres
async def test_a_name_too_long_for_a_channel_and_a_long_group(
    inbox_database: Database, frozen_clock: VirtualClock, inbox_db: str
) -> None:
    class Long(Job, table="a_table_with_a_name_that_is_far_too_long_for_a_channel_ü"):
        pass

    await create(inbox_database, Long, Job)
    with pytest.raises(DeclarationError, match=r"'public\.a_table.*63"):
        async with hearing(inbox_database, (InboxQueue(Long, "long", Work), Handler())).running():
            pass
    publisher = Broker(inbox_database, listen_notify=True)
    with pytest.raises(DeclarationError, match=r"channel"):  # and before anything is sent
        await publisher.publish(InboxQueue(Long, "long", Work), Work(1))
    assert await count(inbox_database, Long) == 0
    handler = Handler()
    long = InboxQueue(Job, "ü" * 4000, Work)
    async with (
        another(inbox_database) as elsewhere,
        TestApp(hearing(inbox_database, (long, handler))) as app,
    ):
        await Broker(elsewhere, listen_notify=True).publish(long, Work(1))
        await app.settle()
        assert notices(elsewhere) == [("public.jobs", "")]
        assert handler.numbers == [1]


@on_postgres
async def test_a_service_that_may_not_listen_does_not_start(
    inbox_database: Database, frozen_clock: VirtualClock, inbox_db: str
) -> None:
    await create(inbox_database, Job)
    refusal = DatabaseError("no", statement="listen")
    observed(inbox_database).faults.refuse("listen", times=1, error=lambda _operation: refusal)
    with pytest.raises(StartupError, match="cannot listen"):
        async with hearing(inbox_database, (JOBS, Handler())).running():
            pass
    assert await _listeners(inbox_database) == 0


@on_postgres
async def test_a_killed_service_that_listened_leaves_its_rows_to_others(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_db: str
) -> None:
    await create(inbox_database, Job)
    handler, dying = Handler(), Handler(HOUR.total_seconds())
    async with another(inbox_database) as elsewhere:
        async with killed(hearing(elsewhere, (JOBS, dying))):
            await virtual_clock.settle()
            await Broker(inbox_database, listen_notify=True).publish(JOBS, Work(1))
            await virtual_clock.settle()
            assert dying.numbers == [1]
        app = hearing(inbox_database, (JOBS, handler))
        async with app.running():
            await virtual_clock.advance(HOUR)
            assert handler.attempts == [2]
            assert await _listeners(inbox_database) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_seed_repeats_what_two_services_tell_each_other(
    backend: Any, inbox_postgres: PostgresServer
) -> None:
    def once() -> Any:
        clock = VirtualClock()

        async def main(url: str) -> Any:
            async with (
                open_test_database(url, clock=clock, instance="a") as a,
                open_test_database(url, clock=clock, instance="b") as b,
            ):
                await create(a, Job)
                handlers = [Handler(1), Handler(1)]
                one = hearing(a, (JOBS, handlers[0]), name="a")
                two = hearing(b, (JOBS, handlers[1]), name="b")
                async with one.running(), two.running():
                    for n in range(0, 8, 2):
                        await one.broker.publish(JOBS, Work(n))
                        async with b.transaction() as tx:
                            await two.broker.publish(JOBS, Work(n + 1), within=tx)
                    await clock.advance(10 * SECOND)
                assert sum(len(handler.runs) for handler in handlers) == 8
                sent = [[one.name for one in db.recording.statements()] for db in (a, b)]
                return sent, [handler.runs for handler in handlers]

        with inbox_postgres.database() as url:
            return run(main, url, backend=backend, clock=clock, seed=2)

    assert once() == once()


def test_only_postgres_notifies() -> None:
    with pytest.raises(DeclarationError, match="listen_notify needs PostgreSQL"):
        Broker("sqlite:///:memory:", listen_notify=True)
