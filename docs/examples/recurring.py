"""Recurring jobs: each run plans the next one in its own transaction."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from _main import main

from inboxkit import (
    Broker,
    Connection,
    Database,
    Inbox,
    InboxQueue,
    Service,
    TransactionalDelivery,
    insert_rows,
    role,
    subscriber,
)
from inboxkit.contrib.cron import next_run

log = logging.getLogger("recurring")

SCHEDULES = {
    "close the books": ("30 2 * * *", "Europe/Berlin"),
    "exchange rates": ("0 * * * *", "UTC"),
}


class ScheduledRun(Inbox, table="scheduled_runs"):
    """One run of a recurring job; finished ones stay, so that none is ever planned twice."""

    id: int = role.id(generated=True)
    name: str = role.group()
    planned_for: datetime  # with `name` unique
    retry_after: datetime | None = role.retry_after()
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()


BOOKS = InboxQueue(ScheduledRun, "close the books")
RATES = InboxQueue(ScheduledRun, "exchange rates")


async def plan(connection: Connection, name: str, *, after: datetime) -> None:
    """Plan the next run; it is planned once, whoever plans it and however often."""
    due = next_run(*SCHEDULES[name], after=after)
    run = ScheduledRun(name=name, planned_for=due, retry_after=due)
    await insert_rows(connection, run, on_conflict="ignore")


async def done(run: ScheduledRun, delivery: TransactionalDelivery) -> None:
    """What was done, the next run and the ack are one commit."""
    await delivery.tx.execute(
        "INSERT INTO finished_runs (name, planned_for) VALUES ($1, $2)",
        run.name,
        run.planned_for.isoformat(),
    )
    # From now, not from when this run was planned for: a day that was missed is made up for once.
    await plan(delivery.tx, run.name, after=max(delivery.clock.now(), run.planned_for))


@subscriber(BOOKS, transactional=True)
async def close_books(run: ScheduledRun, delivery: TransactionalDelivery) -> None:
    log.info("closing the books of %s", run.planned_for.date())
    await done(run, delivery)


@subscriber(RATES, transactional=True)
async def fetch_rates(run: ScheduledRun, delivery: TransactionalDelivery) -> None:
    log.info("fetching exchange rates for %s", run.planned_for)
    await done(run, delivery)


async def plan_all(service: Service) -> None:
    """At each start, on each host: what is planned already is left alone."""
    async with service.broker.database.transaction() as tx:
        for name in SCHEDULES:
            await plan(tx, name, after=tx.clock.now())


SCHEMA = {
    "sqlite": [
        """CREATE TABLE IF NOT EXISTS scheduled_runs (
            id           INTEGER PRIMARY KEY,
            name         TEXT NOT NULL,
            planned_for  TEXT NOT NULL,
            retry_after  TEXT,
            attempt      INTEGER NOT NULL DEFAULT 1,
            processed_at TEXT,
            locked_until TEXT,
            UNIQUE (name, planned_for)
        )""",
        """CREATE INDEX IF NOT EXISTS scheduled_runs_order
           ON scheduled_runs (name, retry_after, id) WHERE processed_at IS NULL""",
        "CREATE TABLE IF NOT EXISTS finished_runs (name TEXT NOT NULL, planned_for TEXT NOT NULL)",
    ],
    "postgres": [
        """CREATE TABLE IF NOT EXISTS scheduled_runs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name         text NOT NULL,
            planned_for  timestamptz NOT NULL,
            retry_after  timestamptz,
            attempt      integer NOT NULL DEFAULT 1,
            processed_at timestamptz,
            locked_until timestamptz,
            UNIQUE (name, planned_for)
        )""",
        """CREATE INDEX IF NOT EXISTS scheduled_runs_order
           ON scheduled_runs (name, retry_after, id) WHERE processed_at IS NULL""",
        "CREATE TABLE IF NOT EXISTS finished_runs (name text NOT NULL, planned_for text NOT NULL)",
    ],
    "mysql": [
        """CREATE TABLE IF NOT EXISTS scheduled_runs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            name         varchar(100) NOT NULL,
            planned_for  datetime(6) NOT NULL,
            retry_after  datetime(6),
            attempt      int NOT NULL DEFAULT 1,
            processed_at datetime(6),
            locked_until datetime(6),
            UNIQUE (name, planned_for),
            KEY scheduled_runs_order (name, processed_at, locked_until, retry_after, id)
        )""",
        """CREATE TABLE IF NOT EXISTS finished_runs (
            name varchar(100) NOT NULL, planned_for varchar(40) NOT NULL
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = Service("recurring", Broker(database, poll_interval=poll_interval))
    app.on_startup(create_schema)
    app.include(close_books)
    app.include(fetch_rates)
    app.beside(plan_all)
    return app


async def publish(broker: Broker, number: int) -> None:
    """A run by hand, for an hour that is over."""
    past = broker.database.clock.now().replace(minute=0, second=0, microsecond=0)
    past -= timedelta(hours=number)
    await broker.publish(RATES, ScheduledRun(name=RATES.name, planned_for=past, retry_after=past))


if __name__ == "__main__":
    main(service, "sqlite:///recurring.db", publish)
