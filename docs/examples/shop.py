"""Enqueue in the order's transaction, later, by priority; finished rows stay for audit."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from _main import main

from inboxkit import (
    Broker,
    ConstraintError,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    ack,
    drop,
    insert_rows,
    role,
    subscriber,
)

log = logging.getLogger("shop")

URGENT = 0
ROUTINE = 10


class PlaceOrder(Inbox, table="checkout_jobs"):
    """A cart that was checked out."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class SendEmail(Inbox, table="email_jobs"):
    """A mail to send; sent ones stay, with ``processed_at`` set."""

    id: int = role.id(generated=True)
    priority: int = role.priority(default=ROUTINE)
    retry_after: datetime | None = role.retry_after(default=None)  # None: due now, by the clock
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Order:
    id: int
    email: str


@dataclass
class Email:
    to: str
    subject: str


CHECKOUTS = InboxQueue(PlaceOrder, "checkout", Order)
EMAILS = InboxQueue(SendEmail, "emails", Email)


def confirmation(order: Order) -> Email:
    return Email(order.email, f"Your order {order.id}")


def review(order: Order) -> Email:
    return Email(order.email, f"How was order {order.id}?")


async def place_order(db: Database, order: Order) -> None:
    """No order without its mails, no mail without its order."""
    async with db.transaction() as tx:
        await tx.execute("INSERT INTO orders (id, email) VALUES ($1, $2)", order.id, order.email)
        await insert_rows(
            tx,
            SendEmail.of(confirmation(order), priority=URGENT),
            SendEmail.of(review(order), retry_after=tx.clock.now() + timedelta(days=3)),
        )


@subscriber(CHECKOUTS)
async def checkout(order: Order, delivery: Delivery) -> Outcome:
    try:
        await place_order(delivery.database, order)
    except ConstraintError:  # and nothing wider: an outage is not a doubled order
        return drop(f"order {order.id} was placed before")
    return ack()


@subscriber(EMAILS)
async def send(email: Email) -> None:
    await deliver(email)


async def deliver(email: Email) -> None:
    """Stands for the mail provider."""
    log.info("mail to %s: %s", email.to, email.subject)


SCHEMA = {
    "sqlite": [
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL)",
        """CREATE TABLE IF NOT EXISTS checkout_jobs (
            id           INTEGER PRIMARY KEY,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
        """CREATE TABLE IF NOT EXISTS email_jobs (
            id           INTEGER PRIMARY KEY,
            priority     INTEGER NOT NULL,
            retry_after  TEXT,
            attempt      INTEGER NOT NULL DEFAULT 1,
            processed_at TEXT,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
        """CREATE INDEX IF NOT EXISTS email_jobs_order
           ON email_jobs (priority, retry_after, id) WHERE processed_at IS NULL""",
    ],
    "postgres": [
        "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, email text NOT NULL)",
        """CREATE TABLE IF NOT EXISTS checkout_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
        """CREATE TABLE IF NOT EXISTS email_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            priority     integer NOT NULL,
            retry_after  timestamptz,
            attempt      integer NOT NULL DEFAULT 1,
            processed_at timestamptz,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
        """CREATE INDEX IF NOT EXISTS email_jobs_order
           ON email_jobs (priority, retry_after, id) WHERE processed_at IS NULL""",
    ],
    "mysql": [
        "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, email text NOT NULL)",
        """CREATE TABLE IF NOT EXISTS checkout_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY checkout_jobs_order (locked_until, id)
        )""",
        """CREATE TABLE IF NOT EXISTS email_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            priority     int NOT NULL,
            retry_after  datetime(6),
            attempt      int NOT NULL DEFAULT 1,
            processed_at datetime(6),
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY email_jobs_order (processed_at, locked_until, priority, retry_after, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = Service("shop", Broker(database, poll_interval=poll_interval))
    app.on_startup(create_schema)
    app.include(checkout)
    app.include(send, workers=4)
    return app


async def publish(broker: Broker, number: int) -> None:
    await broker.publish(CHECKOUTS, Order(1000 + number, f"customer{number}@example.com"))


if __name__ == "__main__":
    main(service, "sqlite:///shop.db", publish)
