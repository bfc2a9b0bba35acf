"""Hosts whose clocks are wrong: the service is told, or goes by the database's."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from database_cells import on_servers

from inboxkit import (
    Broker,
    Database,
    DatabaseClock,
    DatabaseError,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    Outcome,
    Service,
    SystemClock,
    ack,
    insert_rows,
    retry_after,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import ObservedDatabase, VirtualClock, open_test_database
from inboxkit_testing.hosts import HostClock

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@dataclass
class Work:
    n: int


class Job(Inbox, table="clock_jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "jobs", Work)
NOW = {
    "postgres": "SELECT clock_timestamp()",
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}


async def create(database: Database, spec: InboxSpec = Job.spec) -> None:
    await database.execute(f"DROP TABLE IF EXISTS {spec.table}")
    for statement in create_table(get_dialect(database.dialect), spec):
        await database.execute(statement)


async def stored(database: Database, column: str) -> datetime:
    return aware(await database.fetch_value(f"SELECT {column} FROM clock_jobs"))


async def servers(database: Database) -> datetime:
    return aware(await database.fetch_value(NOW[database.dialect]))


def aware(value: Any) -> datetime:
    """MariaDB and MySQL tell UTC without saying so."""
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@pytest.mark.parametrize("days", [-30, 30])
def test_with_a_database_clock_the_hosts_does_not_matter(
    url: str, inbox_backend: str, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease, a due time and a back-off of a host that is a month off."""
    monkeypatch.setattr(SystemClock, "now", lambda self: datetime.now(UTC) + days * DAY)

    async def main() -> None:
        done = anyio.Event()
        seen: list[Any] = []

        async def handle(work: Work, delivery: Delivery) -> Outcome:
            lease, now = await stored(delivery.database, "locked_until"), await servers(db)
            assert 28 * SECOND < lease - now <= 30.001 * SECOND
            assert abs(delivery.clock.now() - now) < SECOND
            assert delivery.deadline is not None
            assert 25 * SECOND < delivery.deadline - now < 28 * SECOND
            seen.append(delivery.attempt)
            if delivery.attempt == 1:
                return retry_after(timedelta(milliseconds=20))
            done.set()
            return retry_after(2 * DAY)

        async with Database(url, clock=DatabaseClock()) as db:
            assert abs(db.clock.now() - await servers(db)) < SECOND  # known from the opening on
            await create(db)
            app = Service("clocks", Broker(db, poll_interval=timedelta(hours=1)))
            app.include(subscriber(JOBS)(handle))
            with anyio.fail_after(20):
                async with app.running():
                    async with db.transaction() as tx:
                        await insert_rows(tx, Job.of(Work(1), name="jobs"))
                    await done.wait()
            assert seen == [1, 2]
            due = await stored(db, "retry_after") - await servers(db)
            assert 1.99 * DAY < due <= 2 * DAY
            with pytest.raises(DeclarationError, match="of its own"):
                Database(url, clock=db.clock)

    anyio.run(main, backend=inbox_backend)


class Locked(Inbox, table="clock_locked"):
    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Locked, table="clock_keyed", advisory_lock="clock-{id}"):
    """The same, under an advisory lock."""


PAUSE = timedelta(seconds=0.3)


@pytest.mark.parametrize("inbox_db", ["sqlite", "postgres", "mariadb", "mysql"])
def test_a_retry_comes_due_by_the_servers_clock_in_each_claim_form(
    url: str, inbox_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real time, since the server's is; all forms wait side by side."""
    monkeypatch.setattr(SystemClock, "now", lambda self: datetime.now(UTC) - 30 * DAY)
    queues = [InboxQueue(row, row.spec.table, Work) for row in (Job, Locked, Keyed)]
    seen: dict[str, list[tuple[int, datetime]]] = {}

    async def main() -> None:
        all_done = anyio.Event()

        async def handle(work: Work, delivery: Delivery) -> Outcome:
            now = await servers(delivery.database)
            seen.setdefault(delivery.queue.name, []).append((delivery.attempt, now))
            if sum(map(len, seen.values())) == 2 * len(served):
                all_done.set()
            return retry_after(PAUSE) if delivery.attempt == 1 else ack()

        async with Database(url, clock=DatabaseClock()) as db:
            served = queues if db.dialect != "sqlite" else [queues[0], queues[2]]
            app = Service("clocks", Broker(db, poll_interval=timedelta(hours=1)))
            for queue in served:
                await create(db, queue.spec)
                app.include(subscriber(queue)(handle))
            with anyio.fail_after(20):
                async with app.running():
                    for queue in served:
                        await app.broker.publish(queue, Work(1))
                    await all_done.wait()
            for queue in served:
                (first, early), (second, late) = seen[queue.name]
                assert (first, second) == (1, 2)
                assert late - early >= PAUSE
                assert await db.fetch(f"SELECT id FROM {queue.spec.table}") == []

    anyio.run(main, backend=inbox_backend)


async def test_in_virtual_time_the_databases_clock_is_a_host_of_its_own(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    assert isinstance(inbox_database, ObservedDatabase)
    await create(inbox_database)
    ahead = virtual_clock.at("database", offset=2 * DAY)
    started = anyio.Event()

    async def handle(work: Work, delivery: Delivery) -> Outcome:
        started.set()
        await delivery.clock.sleep(5)
        return ack()

    async with open_test_database(inbox_database.url, clock=ahead) as database:
        app = Service("clocks", Broker(database))
        app.include(subscriber(JOBS)(handle))
        async with app.running():
            await app.broker.publish(JOBS, Work(1))
            await started.wait()
            lease = await stored(inbox_database, "locked_until")
            assert abs(lease - (virtual_clock.now() + 2 * DAY + 30 * SECOND)) < SECOND


class Real(HostClock):
    """A virtual host that shows the world's time, wrong by as much as the test says."""

    is_virtual = False  # type: ignore[assignment,misc]
    error = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.error


@on_servers
async def test_a_wrong_clock_is_told_once_for_each_excess(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    inbox_db: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(inbox_database, ObservedDatabase)
    caplog.set_level(logging.INFO, logger="inboxkit")
    await create(inbox_database)
    clock = Real(virtual_clock, "wrong", offset=timedelta(0), drift=0.0)

    async def handle(work: Work) -> None:
        pass

    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "this host's clock" in r.getMessage()]

    async with open_test_database(inbox_database.url, clock=clock) as database:
        app = Service("clocks", Broker(database, lease=300 * SECOND, poll_interval=DAY))
        app.include(subscriber(InboxQueue(Job, "jobs", Work, lease=30 * SECOND))(handle))
        app.include(subscriber(InboxQueue(Job, "others", Work))(handle))
        clock.error = -10 * SECOND
        async with app.running():
            assert len(told()) == 1
            assert "clock is 10.0" in told()[0] or "clock is 9.9" in told()[0]
            assert "s behind the database server's, and leases bear 3 s" in told()[0]
            await virtual_clock.advance(150 * SECOND)
            assert len(told()) == 1
            clock.error = 2 * SECOND
            await virtual_clock.advance(60 * SECOND)
            assert len(told()) == 1
            clock.error = 4 * SECOND
            await virtual_clock.advance(60 * SECOND)
            assert len(told()) == 2
            assert "ahead of" in told()[1]
            # An outage is another's to tell, and ends nothing.
            refusal = DatabaseError("no", statement="clock")
            database.faults.refuse("clock", times=1, error=lambda _operation: refusal)
            await virtual_clock.advance(60 * SECOND)
            sent = len(database.recording.statements("clock"))
            await virtual_clock.advance(60 * SECOND)
            assert len(database.recording.statements("clock")) == sent + 1
        assert len(told()) == 2
