"""Jobs that take minutes, under a lease: a service that renders reports."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
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
    role,
    subscriber,
)

log = logging.getLogger("reports")


class RenderReport(Inbox, table="report_jobs"):
    """One row of ``report_jobs``; ``locked_until`` claims it under a lease."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Report:
    id: int
    pages: int


REPORTS = InboxQueue(RenderReport, "reports", Report, lease=timedelta(minutes=1))


@subscriber(REPORTS)
async def render(report: Report, delivery: Delivery) -> Outcome:
    if delivery.attempt > 1:
        log.warning("rendering report %d again: attempt %d", report.id, delivery.attempt)
    await draw(report)  # as long as it takes: the lease is renewed each 30 s
    return ack()


async def draw(report: Report) -> None:
    """Stands for real work: ten milliseconds a page, so 30,000 pages take five minutes."""
    await anyio.sleep(report.pages * 0.01)


SCHEMA = {
    "sqlite": """
        CREATE TABLE IF NOT EXISTS report_jobs (
            id           INTEGER PRIMARY KEY,
            attempt      INTEGER NOT NULL DEFAULT 1,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )
    """,
    "postgres": """
        CREATE TABLE IF NOT EXISTS report_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            attempt      integer NOT NULL DEFAULT 1,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )
    """,
    "mysql": """
        CREATE TABLE IF NOT EXISTS report_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            attempt      int NOT NULL DEFAULT 1,
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY report_jobs_order (locked_until, id)
        )
    """,
}


async def create_schema(db: Database) -> None:
    await db.execute(SCHEMA[db.dialect])


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = Service("reports", Broker(database, poll_interval=poll_interval))  # nothing connects here
    app.on_startup(create_schema)
    app.include(render)  # and routes publishing to REPORTS
    return app


async def publish(broker: Broker, number: int) -> None:
    await broker.publish(REPORTS, Report(id=number, pages=1 + number % 3))


if __name__ == "__main__":
    main(service, "sqlite:///reports.db", publish)
