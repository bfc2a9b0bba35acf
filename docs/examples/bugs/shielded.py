"""A transfer is made twice, because its handler does not let itself be cancelled.

A handler whose lease is lost is cancelled, for by then somebody else may have its row. One that
shields itself so that it "is not interrupted half-way" works on beside the other, and both have seen
that nothing was done yet. The cure is to let the cancellation through: what was cut short is done
by the next delivery.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from _jobs import Job, create_tables

from inboxkit import Broker, Database, Delivery, InboxQueue, Service, subscriber

SECONDS_AT_THE_BANK = 40


@dataclass
class Transfer:
    id: int
    cents: int


TRANSFERS = InboxQueue(Job, "transfers", Transfer)


@subscriber(TRANSFERS)
async def shielded(transfer: Transfer, delivery: Delivery) -> None:
    with anyio.CancelScope(shield=True):
        await make_transfer(transfer, delivery.database)


@subscriber(TRANSFERS)
async def unshielded(transfer: Transfer, delivery: Delivery) -> None:
    await make_transfer(transfer, delivery.database)


async def make_transfer(transfer: Transfer, db: Database) -> None:
    """Once: an earlier delivery may have come to the end of it."""
    if await db.fetch_value("SELECT count(*) FROM transfers WHERE id = $1", transfer.id):
        return
    await anyio.sleep(SECONDS_AT_THE_BANK)
    await db.execute("INSERT INTO transfers VALUES ($1, $2)", transfer.id, transfer.cents)


def buggy(database: Database) -> Service:
    app = Service("bank", Broker(database))
    app.include(shielded)
    return app


def fixed(database: Database) -> Service:
    app = Service("bank", Broker(database))
    app.include(unshielded)
    return app


async def create_schema(db: Database) -> None:
    await create_tables(
        db, "CREATE TABLE IF NOT EXISTS transfers (id integer NOT NULL, cents integer NOT NULL)"
    )
