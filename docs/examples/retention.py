"""Retention: finished rows of the shop's mails stay for thirty days, and are then deleted."""

from __future__ import annotations

from datetime import timedelta

import shop
from _main import main
from shop import SendEmail, publish

from inboxkit import Database, Service
from inboxkit.contrib.retention import delete_finished, keep_finished, retention_index

MONTH = timedelta(days=30)


async def create_index(db: Database) -> None:
    """Once, as a migration would: ``CREATE INDEX … ON email_jobs (processed_at, id)``."""
    if not (await db.describe(SendEmail.spec, fresh=True)).has_index("processed_at", "id"):
        await db.execute(retention_index(db.dialect, SendEmail))


def service(database: Database | str, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    app = shop.service(database, poll_interval)
    app.on_startup(create_index)
    app.beside(keep_finished(SendEmail, MONTH, every=timedelta(hours=1)))
    return app


async def delete_once(url: str) -> int:
    """From a cron job, in place of the task beside the service."""
    async with Database(url) as db:
        return await delete_finished(db, SendEmail, older_than=MONTH)


if __name__ == "__main__":
    main(service, "sqlite:///retention.db", publish)
