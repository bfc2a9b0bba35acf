"""A webhook that is no JSON stops all that came after it, because nothing ever gives it up.

The handler raises, and the row is tried again, after longer and longer pauses, for ever. In a FIFO
queue those behind it wait all the while. The cure is a cap with a dead letter, where a person can
look at the row; or to catch the error and `drop` what can never succeed.
"""

from __future__ import annotations

import json

from _jobs import OrderedJob, create_tables

from inboxkit import Broker, Database, InboxQueue, Service, TransactionalDelivery, subscriber

WEBHOOKS = InboxQueue(OrderedJob, "webhooks", bytes)


@subscriber(WEBHOOKS, transactional=True)
async def receive(body: bytes, delivery: TransactionalDelivery) -> None:
    event = json.loads(body)
    await delivery.tx.execute("INSERT INTO events VALUES ($1)", event["id"])


def buggy(database: Database) -> Service:
    app = Service("webhooks", Broker(database))
    app.include(receive)
    return app


def fixed(database: Database) -> Service:
    app = Service("webhooks", Broker(database))
    app.include(receive, max_attempts=5, dead_letter="webhooks.dead")
    return app


async def create_schema(db: Database) -> None:
    await create_tables(db, "CREATE TABLE IF NOT EXISTS events (id integer NOT NULL)")
