"""An update is lost, because two handlers read the same balance and each writes what it makes of it.

That the balance is written together with the ack does not help: it was read before. The cure is to
let the database add. Else: a partition key, so that the postings of one account go one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from _jobs import Job, create_tables

from inboxkit import (
    Broker,
    Database,
    InboxQueue,
    Service,
    TransactionalDelivery,
    subscriber,
)


@dataclass
class Posting:
    account: str
    cents: int


POSTINGS = InboxQueue(Job, "postings", Posting)


@subscriber(POSTINGS, transactional=True)
async def read_and_write(posting: Posting, delivery: TransactionalDelivery) -> None:
    balance = await delivery.database.fetch_value(
        "SELECT cents FROM balances WHERE account = $1", posting.account
    )
    await delivery.tx.execute(
        """INSERT INTO balances VALUES ($1, $2)
           ON CONFLICT (account) DO UPDATE SET cents = excluded.cents""",
        posting.account,
        (balance or 0) + posting.cents,
    )
    await note(posting, delivery)


@subscriber(POSTINGS, transactional=True)
async def add(posting: Posting, delivery: TransactionalDelivery) -> None:
    await delivery.tx.execute(
        """INSERT INTO balances VALUES ($1, $2)
           ON CONFLICT (account) DO UPDATE SET cents = balances.cents + excluded.cents""",
        posting.account,
        posting.cents,
    )
    await note(posting, delivery)


async def note(posting: Posting, delivery: TransactionalDelivery) -> None:
    """What the balance is the sum of."""
    await delivery.tx.execute("INSERT INTO entries VALUES ($1, $2)", posting.account, posting.cents)


def buggy(database: Database) -> Service:
    app = Service("ledger", Broker(database))
    app.include(read_and_write, workers=4)
    return app


def fixed(database: Database) -> Service:
    app = Service("ledger", Broker(database))
    app.include(add, workers=4)
    return app


async def create_schema(db: Database) -> None:
    await create_tables(
        db,
        "CREATE TABLE IF NOT EXISTS entries (account text NOT NULL, cents integer NOT NULL)",
        "CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, cents integer NOT NULL)",
    )
