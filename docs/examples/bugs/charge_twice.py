"""A card is charged twice, because the charge and the ack are two commits.

A process that dies between the two has charged, and still has the row in its queue. When the lease
ends, somebody else charges again. The cure is one commit for both; where the charge is a call to
another service, an idempotency key that both attempts have in common, such as the order's number.
"""

from __future__ import annotations

from dataclasses import dataclass

from _jobs import Job, create_tables

from inboxkit import (
    Broker,
    Connection,
    Database,
    Delivery,
    InboxQueue,
    Service,
    TransactionalDelivery,
    subscriber,
)


@dataclass
class Order:
    id: int
    cents: int


ORDERS = InboxQueue(Job, "orders", Order)


@subscriber(ORDERS)
async def charge_and_ack(order: Order, delivery: Delivery) -> None:
    async with delivery.database.connection() as connection:
        await charge(connection, order)
    # Here the process may die.


@subscriber(ORDERS, transactional=True)
async def charge_with_ack(order: Order, delivery: TransactionalDelivery) -> None:
    await charge(delivery.tx, order)


async def charge(connection: Connection, order: Order) -> None:
    await connection.execute("INSERT INTO charges VALUES ($1, $2)", order.id, order.cents)


def buggy(database: Database) -> Service:
    app = Service("shop", Broker(database))
    app.include(charge_and_ack)
    return app


def fixed(database: Database) -> Service:
    app = Service("shop", Broker(database))
    app.include(charge_with_ack)
    return app


async def create_schema(db: Database) -> None:
    await create_tables(
        db, "CREATE TABLE IF NOT EXISTS charges (order_id integer NOT NULL, cents integer NOT NULL)"
    )
