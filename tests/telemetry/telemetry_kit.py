"""Tables, services and scrapes that the tests of telemetry share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    drop,
    retry,
    retry_after,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass
class Work:
    """What is to become of it, and how long it takes."""

    what: str = "ack"
    seconds: float = 0


class Job(Inbox, table="traced_jobs"):
    """With headers, groups, due times and leases."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()


class Plain(Inbox, table="untraced_jobs"):
    """Without headers and attempts."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class RowLocked(Inbox, table="row_locked_jobs"):
    """Under the lock of a transaction."""

    id: int = role.id(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Whole(Inbox, table="whole_jobs"):
    """Its rows are their own messages."""

    id: int = role.id(generated=True)
    what: str = role.column()
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)


JOBS = InboxQueue(Job, "jobs", Work)
DEAD = InboxQueue(Job, "jobs.dead", Work)
PLAIN = InboxQueue(Plain, "plain", Work)
ROW_LOCKED = InboxQueue(RowLocked, "row-locked", Work)
WHOLE = InboxQueue(Whole, "whole")


async def handle(work: Work, delivery: Delivery) -> Outcome | None:
    """Do what the message says."""
    if work.seconds:
        await delivery.clock.sleep(work.seconds)
    match work.what:
        case "drop":
            return drop("no")
        case "retry":
            return retry()
        case "later":
            return retry_after(10 * SECOND)
        case "raise":
            raise ValueError("no such work")
        case "publish":
            await delivery.publish(JOBS, Work())
        case _:
            pass
    return None


async def create(database: Database, *tables: Any) -> None:
    """Make the tables of these classes."""
    for table in tables:
        for statement in create_table(get_dialect(database.dialect), table.spec):
            await database.execute(statement)


def serve(
    database: Database, queue: InboxQueue[Any, Any] = JOBS, function: Any = handle, **settings: Any
) -> Service:
    """A service of one subscription, not running."""
    app = Service("worker", Broker(database, poll_interval=SECOND))
    batch = settings.pop("batch", None)
    app.include(subscriber(queue, batch=batch)(function), **settings)
    return app


Samples = dict[tuple[str, str], float]


def scrape(registry: CollectorRegistry, queue: str | None = "jobs") -> Samples:
    """The text exposition's samples of one queue (None: those without), by name and the further label."""
    found: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.endswith("_created") or labels.pop("queue", None) != queue:
                continue
            assert labels.pop("service") == "worker"
            if "le" not in labels:
                found[sample.name, ",".join(labels.values())] = sample.value
    return found
