"""Order by FIFO group and by partition key: changes for a CRM, postings for a ledger."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from _main import main

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    ack,
    retry,
    role,
    subscriber,
)

log = logging.getLogger("accounts")


class CrmChange(Inbox, table="crm_jobs"):
    """Changes reach the CRM one at a time, in the order in which they were made."""

    id: int = role.id(generated=True)
    target: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class LedgerPosting(Inbox, table="ledger_jobs"):
    """Postings of one account are posted in order; accounts go side by side."""

    id: int = role.id(generated=True)
    account: str = role.partition_key()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Contact:
    id: int
    email: str


@dataclass
class Posting:
    account: str
    cents: int


CRM = InboxQueue(CrmChange, "crm", Contact)
POSTINGS = InboxQueue(LedgerPosting, "postings", Posting)


@subscriber(CRM)
async def sync(contact: Contact, delivery: Delivery) -> Outcome:
    if not await send_to_crm(contact):
        log.warning("the CRM refused contact %d, attempt %d", contact.id, delivery.attempt)
        return retry()  # keeps its place: nothing behind it goes out before it
    return ack()


@subscriber(POSTINGS)
async def post(posting: Posting) -> None:
    await post_to_ledger(posting)


async def send_to_crm(contact: Contact) -> bool:
    """Stands for the CRM: it refuses contacts without an address."""
    return "@" in contact.email


async def post_to_ledger(posting: Posting) -> None:
    """Stands for the ledger."""
    log.info("%s: %+d cents", posting.account, posting.cents)


SCHEMA = {
    "sqlite": [
        """CREATE TABLE IF NOT EXISTS crm_jobs (
            id           INTEGER PRIMARY KEY,
            target       TEXT NOT NULL,
            attempt      INTEGER NOT NULL DEFAULT 1,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS crm_jobs_order ON crm_jobs (target, id)",
        """CREATE TABLE IF NOT EXISTS ledger_jobs (
            id           INTEGER PRIMARY KEY,
            account      TEXT NOT NULL,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
    ],
    "postgres": [
        """CREATE TABLE IF NOT EXISTS crm_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            target       text NOT NULL,
            attempt      integer NOT NULL DEFAULT 1,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS crm_jobs_order ON crm_jobs (target, id)",
        """CREATE TABLE IF NOT EXISTS ledger_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            account      text NOT NULL,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
    ],
    "mysql": [
        """CREATE TABLE IF NOT EXISTS crm_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            target       varchar(100) NOT NULL,
            attempt      int NOT NULL DEFAULT 1,
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY crm_jobs_order (target, id),
            KEY crm_jobs_lease (target, locked_until)
        )""",
        """CREATE TABLE IF NOT EXISTS ledger_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            account      varchar(100) NOT NULL,
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY ledger_jobs_order (locked_until, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = Service("accounts", Broker(database, poll_interval=poll_interval))
    app.on_startup(create_schema)
    app.include(sync, max_attempts=3, dead_letter="crm.parked")
    app.include(post, workers_by_key=4)
    return app


async def publish(broker: Broker, number: int) -> None:
    if number % 2:
        account = f"account-{number % 3}"
        await broker.publish(POSTINGS, Posting(account, 100 * number), account=account)
    else:
        email = "" if number % 10 == 4 else f"contact{number}@example.com"
        await broker.publish(CRM, Contact(number, email))


if __name__ == "__main__":
    main(service, "sqlite:///accounts.db", publish)
