"""An order is never invoiced, because its handler takes an outage for something to be logged.

The database is away for a moment, the handler's statement fails, the handler says so in the log and
returns, which is an ack: the row is gone, and nobody comes back to it. The cure is to let the error
through, so that the row is tried again after a pause; whoever wants to catch it answers `retry_after`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from _jobs import Job, create_tables

from inboxkit import Broker, Database, Delivery, InboxQueue, Service, subscriber
from inboxkit.errors import DatabaseError

log = logging.getLogger("invoices")


@dataclass
class Order:
    id: int
    cents: int


ORDERS = InboxQueue(Job, "orders", Order)


@subscriber(ORDERS)
async def log_and_go_on(order: Order, delivery: Delivery) -> None:
    try:
        await write_invoice(order, delivery.database)
    except DatabaseError as error:
        log.warning("order %s is not invoiced: %s", order.id, error)


@subscriber(ORDERS)
async def let_through(order: Order, delivery: Delivery) -> None:
    await write_invoice(order, delivery.database)


async def write_invoice(order: Order, db: Database) -> None:
    """Once: an earlier delivery may have done it."""
    await db.execute(
        "INSERT INTO invoices VALUES ($1, $2) ON CONFLICT (order_id) DO NOTHING",
        order.id,
        order.cents,
    )


def buggy(database: Database) -> Service:
    app = Service("invoices", Broker(database))
    app.include(log_and_go_on)
    return app


def fixed(database: Database) -> Service:
    app = Service("invoices", Broker(database))
    app.include(let_through)
    return app


async def create_schema(db: Database) -> None:
    await create_tables(
        db,
        "CREATE TABLE IF NOT EXISTS invoices (order_id integer PRIMARY KEY, cents integer NOT NULL)",
    )
