"""A service whose handlers take all connections and want more, as ``inboxkit run chaos_greedy`` runs it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import anyio
from chaos_jobs import BEGUN, EFFECT, PLAIN, Job, database, jobs_table

from inboxkit import Broker, Delivery, InboxQueue, Service, subscriber
from inboxkit._core.backoff import Backoff
from inboxkit._db import pool


async def greedy(job: Job, delivery: Delivery[Any, Job]) -> None:
    """At the first attempt of each fifth job, holds a connection and waits for a second one."""
    values = (PLAIN, job.number, job.target, job.sequence, delivery.attempt, os.getpid())
    if job.number % 5 or delivery.attempt > 1:
        await delivery.database.execute(EFFECT, *values)
        return
    await delivery.database.execute(BEGUN, job.number, delivery.attempt, os.getpid())
    async with delivery.database.connection() as first:
        await first.fetch("SELECT 1")
        await anyio.sleep(0.2)  # until the others have theirs
        async with delivery.database.connection() as second:
            await second.execute(EFFECT, *values)


def service(url: str) -> Service:
    """What `inboxkit run` serves: as many handlers as there are connections."""
    pool._PATIENCE = float(os.environ["CHAOS_PATIENCE"])
    form = os.environ["CHAOS_FORM"]
    lease = timedelta(seconds=float(os.environ["CHAOS_LEASE"])) if form == "lease" else None
    broker = Broker(database(url), poll_interval=timedelta(seconds=0.1))
    app = Service("chaos", broker, drain_timeout=timedelta(seconds=10))
    app.include(
        subscriber(InboxQueue(jobs_table(form), PLAIN, Job, lease=lease))(greedy),
        workers=int(os.environ["CHAOS_POOL"]),
        on_error=Backoff.fixed(timedelta(seconds=0.2), jitter=0.1),
    )
    return app
