"""The service of the chaos tests, as ``inboxkit run chaos_jobs`` runs it: handlers whose effects are rows.

`chaos_workers` starts it, and says by variables how it is to be.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio

from inboxkit import (
    Broker,
    Column,
    Database,
    Delivery,
    InboxQueue,
    InboxSpec,
    Service,
    TransactionalDelivery,
    subscriber,
)
from inboxkit._core.backoff import Backoff

UNORDERED = "lease, no FIFO groups"
FORMS = ("lease", "row lock", "advisory lock", UNORDERED)
ONCE, PLAIN, SINGLE = "once", "plain", "single"
"""Queues: of a transactional handler, of a plain one, and a FIFO group with a plain one of its own."""


@dataclass
class Job:
    """A message: its number among all that are published, and its place in its group."""

    number: int
    target: str
    sequence: int
    seconds: float


def jobs_table(form: str) -> InboxSpec:
    """Two queues without order."""
    roles: dict[str, Any] = {"retry_after": Column("retry_after", default=None), **_held_by(form)}
    if form == "advisory lock":
        roles["advisory_lock"] = "jobs-{id}"
    return _table("jobs", group=Column("queue"), **roles)


def ordered_table(form: str) -> InboxSpec | None:
    """FIFO groups; None: this form has none, or is run without."""
    if form in ("advisory lock", UNORDERED):
        return None
    return _table("ordered", group=Column("target"), fifo=True, **_held_by(form))


def _held_by(form: str) -> dict[str, Any]:
    return {"locked_until": Column("locked_until")} if form in ("lease", UNORDERED) else {}


def _table(name: str, **roles: Any) -> InboxSpec:
    return InboxSpec(
        name,
        id=Column("id", generated=True, type=int),
        attempt=Column("attempt", generated=True),
        payload=Column("payload", type=bytes),
        **roles,
    )


EFFECT = "INSERT INTO effects (queue, number, target, sequence, attempt, worker) VALUES ($1, $2, $3, $4, $5, $6)"
BEGUN = "INSERT INTO begun (number, attempt, worker) VALUES ($1, $2, $3)"


async def once(job: Job, delivery: TransactionalDelivery[Any, Job]) -> None:
    """The effect is committed with the ack, or not at all."""
    await anyio.sleep(job.seconds)
    await delivery.tx.execute(EFFECT, *_values(ONCE, job, delivery.attempt))


async def plain(job: Job, delivery: Delivery[Any, Job]) -> None:
    """The effect is committed before the ack: at least once."""
    await delivery.database.execute(BEGUN, job.number, delivery.attempt, os.getpid())
    await anyio.sleep(job.seconds)
    await delivery.database.execute(EFFECT, *_values(PLAIN, job, delivery.attempt))


async def single(job: Job, delivery: Delivery[Any, Job]) -> None:
    """As `plain`, in the order of its group."""
    await delivery.database.execute(EFFECT, *_values(SINGLE, job, delivery.attempt))


async def in_order(job: Job, delivery: TransactionalDelivery[Any, Job]) -> None:
    """As `once`, in the order of each group."""
    await anyio.sleep(job.seconds)
    await delivery.tx.execute(EFFECT, *_values("ordered", job, delivery.attempt))


def _values(queue: str, job: Job, attempt: int) -> tuple[Any, ...]:
    return queue, job.number, job.target, job.sequence, attempt, os.getpid()


def database(url: str) -> Database:
    """The database, with the settings that variables say."""
    settings: dict[str, Any] = {"pool_size": int(os.environ.get("CHAOS_POOL", "12"))}
    if seconds := os.environ.get("CHAOS_STATEMENT"):
        settings["statement_timeout"] = timedelta(seconds=float(seconds))
    return Database(url, **settings)


def service(url: str) -> Service:
    """What `inboxkit run` serves."""
    form = os.environ["CHAOS_FORM"]
    held_by = _held_by(form)
    lease = timedelta(seconds=float(os.environ["CHAOS_LEASE"])) if held_by else None
    policy: dict[str, Any] = {"on_error": Backoff.fixed(timedelta(seconds=0.2), jitter=0.1)}
    broker = Broker(database(url), poll_interval=timedelta(seconds=0.1))
    app = Service("chaos", broker, drain_timeout=timedelta(seconds=10))
    jobs, ordered = jobs_table(form), ordered_table(form)
    unordered = InboxQueue(jobs, ONCE, Job, lease=lease)
    app.include(subscriber(unordered, transactional=True)(once), workers=4, **policy)
    app.include(subscriber(InboxQueue(jobs, PLAIN, Job, lease=lease))(plain), workers=4, **policy)
    if ordered is not None:
        every = InboxQueue.every_group(ordered, Job, lease=lease)
        app.include(subscriber(every, transactional=True)(in_order), workers=4, **policy)
        app.include(subscriber(InboxQueue(ordered, SINGLE, Job, lease=lease))(single), **policy)
    return app
