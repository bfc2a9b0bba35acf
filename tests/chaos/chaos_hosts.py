"""A service on a host whose clock is wrong, as ``inboxkit run chaos_hosts`` runs it.

Each piece of work leaves a line in a file of the host's: what the network keeps from the database is there.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from chaos_jobs import BEGUN, EFFECT, PLAIN, Job, jobs_table

from inboxkit import Broker, Database, Delivery, InboxQueue, Service, SystemClock, subscriber


class WrongClock(SystemClock):
    """The host's clock, set wrong by so many seconds; its seconds are as long as others'."""

    def __init__(self, ahead: float) -> None:
        self._ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        """What the host takes for the time."""
        return super().now() + self._ahead


async def handle(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Works for so many seconds."""
    await delivery.database.execute(BEGUN, job.number, delivery.attempt, os.getpid())
    since = time.monotonic()
    try:
        await anyio.sleep(job.seconds)
    finally:
        line = f"{job.number} {since} {time.monotonic()}\n"
        _note(line)
    values = (PLAIN, job.number, job.target, job.sequence, delivery.attempt, os.getpid())
    await delivery.database.execute(EFFECT, *values)


def _note(line: str) -> None:
    with Path(os.environ["CHAOS_WORK"]).open("a") as file:
        file.write(line)


def service(url: str) -> Service:
    """What `inboxkit run` serves."""
    lease = timedelta(seconds=float(os.environ["CHAOS_LEASE"]))
    clock = WrongClock(float(os.environ["CHAOS_SKEW"]))
    broker = Broker(
        Database(url, clock=clock, statement_timeout=timedelta(seconds=1)),
        poll_interval=timedelta(seconds=0.1),
    )
    app = Service("chaos", broker, drain_timeout=timedelta(seconds=10))
    queue = InboxQueue(jobs_table("lease"), PLAIN, Job, lease=lease)
    app.include(subscriber(queue)(handle), workers=20)
    return app
