"""Unique jobs: one at a time for each customer, or one for ever."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from _main import main

from inboxkit import (
    Broker,
    Connection,
    Database,
    Inbox,
    InboxQueue,
    Service,
    insert_rows,
    role,
    subscriber,
)

log = logging.getLogger("unique")


@dataclass
class Customer:
    number: int


class RefreshProfile(Inbox, table="refresh_jobs"):
    """At most one unfinished row for each customer; finished ones stay."""

    id: int = role.id(generated=True)
    customer: int
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Welcome(Inbox, table="welcome_jobs"):
    """One row for each customer, for ever."""

    id: int = role.id(generated=True)
    customer: int
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


REFRESHES = InboxQueue(RefreshProfile, "refreshes", Customer)
WELCOMES = InboxQueue(Welcome, "welcomes", Customer)


async def ask_for_refresh(connection: Connection, customer: Customer) -> bool:
    """Whether a job was added; False: one is waiting or in work."""
    row = RefreshProfile.of(customer, customer=customer.number)
    (id,) = await insert_rows(connection, row, on_conflict="ignore")
    return id is not None


async def welcome_once(connection: Connection, *customers: Customer) -> list[Customer]:
    """Those who had not been welcomed."""
    rows = [Welcome.of(customer, customer=customer.number) for customer in customers]
    ids = await insert_rows(connection, *rows, on_conflict="ignore")
    return [customer for customer, id in zip(customers, ids, strict=True) if id is not None]


@subscriber(REFRESHES)
async def refresh(customer: Customer) -> None:
    log.info("refreshing the profile of customer %d", customer.number)


@subscriber(WELCOMES)
async def welcome(customer: Customer) -> None:
    log.info("welcome, customer %d", customer.number)


SCHEMA = {
    "sqlite": [
        """CREATE TABLE IF NOT EXISTS refresh_jobs (
            id           INTEGER PRIMARY KEY,
            customer     INTEGER NOT NULL,
            processed_at TEXT,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
        """CREATE UNIQUE INDEX IF NOT EXISTS refresh_jobs_pending
           ON refresh_jobs (customer) WHERE processed_at IS NULL""",
        """CREATE TABLE IF NOT EXISTS welcome_jobs (
            id           INTEGER PRIMARY KEY,
            customer     INTEGER NOT NULL UNIQUE,
            processed_at TEXT,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
    ],
    "postgres": [
        """CREATE TABLE IF NOT EXISTS refresh_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            customer     bigint NOT NULL,
            processed_at timestamptz,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
        """CREATE UNIQUE INDEX IF NOT EXISTS refresh_jobs_pending
           ON refresh_jobs (customer) WHERE processed_at IS NULL""",
        """CREATE TABLE IF NOT EXISTS welcome_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            customer     bigint NOT NULL UNIQUE,
            processed_at timestamptz,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
    ],
    # No partial indexes there: a generated column is NULL where the row is finished, and NULLs are
    # never equal.
    "mysql": [
        """CREATE TABLE IF NOT EXISTS refresh_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            customer     bigint NOT NULL,
            processed_at datetime(6),
            locked_until datetime(6),
            payload      longblob NOT NULL,
            pending      bigint AS (IF(processed_at IS NULL, customer, NULL)) STORED,
            UNIQUE KEY refresh_jobs_pending (pending),
            KEY refresh_jobs_order (processed_at, locked_until, id)
        )""",
        """CREATE TABLE IF NOT EXISTS welcome_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            customer     bigint NOT NULL UNIQUE,
            processed_at datetime(6),
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY welcome_jobs_order (processed_at, locked_until, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str) -> Service:
    app = Service("unique", Broker(database))
    app.on_startup(create_schema)
    app.include(refresh)
    app.include(welcome)
    return app


async def publish(broker: Broker, number: int) -> None:
    """The same four customers again and again."""
    customer = Customer(number % 4)
    async with broker.database.transaction() as tx:
        await ask_for_refresh(tx, customer)
        await welcome_once(tx, customer)


if __name__ == "__main__":
    main(service, "sqlite:///unique.db", publish)
