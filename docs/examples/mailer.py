"""Retry now, retry later, give up, dead letters: a service that sends mail."""

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
    drop,
    retry,
    retry_after,
    role,
    subscriber,
)

log = logging.getLogger("mailer")

BACKOFF = timedelta(seconds=1)


class SendMail(Inbox, table="mail_jobs"):
    """A mail to send; ``name`` is its queue, so that dead letters live in the same table."""

    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Mail:
    to: str
    text: str


EMAILS = InboxQueue(SendMail, "emails", Mail)
DEAD = InboxQueue(SendMail, "emails.dead", Mail)


class Delivered:
    """The provider took it."""


class Busy:
    """The provider asks for a pause."""


class Unavailable:
    """The provider did not answer."""


class Rejected:
    """There is no such address."""


@subscriber(EMAILS)
async def send(mail: Mail, delivery: Delivery) -> Outcome:
    match await deliver(mail):
        case Delivered():
            return ack()
        case Busy():
            return retry_after(BACKOFF * delivery.attempt)
        case Unavailable():
            return retry()
        case Rejected():
            return drop("address rejected")


@subscriber(DEAD)
async def review(mail: Mail, delivery: Delivery) -> None:
    log.error("mail to %s was given up; it arrived here as attempt %d", mail.to, delivery.attempt)


async def deliver(mail: Mail) -> Delivered | Busy | Unavailable | Rejected:
    """Stands for the mail provider: the address says how it answers."""
    answers: dict[str, type[Rejected | Unavailable]] = {
        "rejected": Rejected,
        "unavailable": Unavailable,
    }
    return answers.get(mail.to.partition("@")[0], Delivered)()


SCHEMA = {
    "sqlite": [
        """CREATE TABLE IF NOT EXISTS mail_jobs (
            id           INTEGER PRIMARY KEY,
            name         TEXT NOT NULL,
            attempt      INTEGER NOT NULL DEFAULT 1,
            retry_after  TEXT,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS mail_jobs_order ON mail_jobs (name, retry_after, id)",
    ],
    "postgres": [
        """CREATE TABLE IF NOT EXISTS mail_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name         text NOT NULL,
            attempt      integer NOT NULL DEFAULT 1,
            retry_after  timestamptz,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS mail_jobs_order ON mail_jobs (name, retry_after, id)",
    ],
    "mysql": [
        """CREATE TABLE IF NOT EXISTS mail_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            name         varchar(100) NOT NULL,
            attempt      int NOT NULL DEFAULT 1,
            retry_after  datetime(6),
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY mail_jobs_order (name, locked_until, retry_after, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = Service("mailer", Broker(database, poll_interval=poll_interval))
    app.on_startup(create_schema)
    app.include(send, max_attempts=5, dead_letter="emails.dead")
    app.include(review)
    return app


async def publish(broker: Broker, number: int) -> None:
    kind = ("customer", "customer", "rejected", "customer", "unavailable")[number % 5]
    await broker.publish(EMAILS, Mail(f"{kind}@example.com", f"Newsletter {number}"))


if __name__ == "__main__":
    main(service, "sqlite:///mailer.db", publish)
