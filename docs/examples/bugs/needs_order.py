"""An old address wins over a new one, because the handler needs an order that the table does not keep.

Without FIFO the rows of a queue are claimed in order, but nobody waits for the one before: two
instances work side by side, and a row whose handler failed comes again after those behind it. The
cure is one word in the table's description. Else: a version in the message, and only newer ones win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from _jobs import Job, OrderedJob, create_tables

from inboxkit import Broker, Database, Delivery, InboxQueue, Service, subscriber


@dataclass
class Moved:
    customer: int
    address: str


UNORDERED = InboxQueue(Job, "moved", Moved)
ORDERED = InboxQueue(OrderedJob, "moved", Moved)


async def store(moved: Moved, delivery: Delivery[Any, Moved]) -> None:
    await delivery.database.execute(
        """INSERT INTO customers VALUES ($1, $2)
           ON CONFLICT (id) DO UPDATE SET address = excluded.address""",
        moved.customer,
        moved.address,
    )


def buggy(database: Database) -> Service:
    app = Service("customers", Broker(database))
    app.include(subscriber(UNORDERED)(store))
    return app


def fixed(database: Database) -> Service:
    app = Service("customers", Broker(database))
    app.include(subscriber(ORDERED)(store))
    return app


async def create_schema(db: Database) -> None:
    await create_tables(
        db, "CREATE TABLE IF NOT EXISTS customers (id integer PRIMARY KEY, address text NOT NULL)"
    )
