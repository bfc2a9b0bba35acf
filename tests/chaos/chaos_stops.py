"""A service whose handlers do not end as they should, as ``inboxkit run chaos_stops`` runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import anyio
from chaos_jobs import BEGUN, EFFECT, PLAIN, Job, database, jobs_table

from inboxkit import Broker, Delivery, InboxQueue, Service, subscriber
from inboxkit._runtime import serving, stopping, subscription

Work: TypeAlias = Callable[[Job, Delivery[Any, Job]], Awaitable[None]]


async def sleeps(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Takes its time, and returns."""
    await anyio.sleep(job.seconds)


async def never_returns(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Waits for what never comes."""
    await anyio.sleep_forever()


async def shields(job: Job, delivery: Delivery[Any, Job]) -> None:
    """So too, and cannot be cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


async def blocks(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Keeps the event loop."""
    time.sleep(1_000_000)  # noqa: ASYNC251 - what is not to be done


async def blocks_in_a_thread(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Waits for a thread that does not end."""
    await anyio.to_thread.run_sync(time.sleep, 1_000_000)


async def asks(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Asks the database again and again, until it does not answer."""
    while True:
        await delivery.database.execute("SELECT 1")
        await anyio.sleep(0.02)


HANDLERS: dict[str, Work] = {
    work.__name__: work
    for work in (sleeps, never_returns, shields, blocks, blocks_in_a_thread, asks)
}


async def handle(job: Job, delivery: Delivery[Any, Job]) -> None:
    """Notes its begin, works, and notes its effect."""
    await delivery.database.execute(BEGUN, job.number, delivery.attempt, os.getpid())
    await HANDLERS[os.environ["CHAOS_HANDLER"]](job, delivery)
    values = (PLAIN, job.number, job.target, job.sequence, delivery.attempt, os.getpid())
    await delivery.database.execute(EFFECT, *values)


def service(url: str) -> Service:
    """What `inboxkit run` serves."""
    if seconds := os.environ.get("CHAOS_PHASES"):
        _shorten(float(seconds))
    form = os.environ["CHAOS_FORM"]
    lease = timedelta(seconds=float(os.environ["CHAOS_LEASE"])) if form == "lease" else None
    drain = timedelta(seconds=float(os.environ["CHAOS_DRAIN"]))
    broker = Broker(database(url), poll_interval=timedelta(seconds=0.1))
    app = Service("chaos", broker, drain_timeout=drain)
    app.include(
        subscriber(InboxQueue(jobs_table(form), PLAIN, Job, lease=lease))(handle), workers=2
    )
    return app


def _shorten(seconds: float) -> None:
    """The phases of a stop after the drain, for tests that cannot wait for the real ones."""
    stopping._LATE_SECONDS = 2 * seconds / 5
    for module in (stopping, serving, subscription):
        for name in ("CANCEL_SECONDS", "RELEASE_SECONDS"):
            if hasattr(module, name):
                setattr(module, name, seconds)
