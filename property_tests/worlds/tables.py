"""The shapes of the table, as the service describes them, and their services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from inboxkit import (
    Backoff,
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    role,
    subscriber,
)

from .schedule import Job, Schedule, Shape

__all__ = ["BACKOFF", "FAILED_FOR", "Task", "columns_of", "make_service", "queue_of", "served"]

FAILED_FOR = 3.0
BACKOFF = Backoff.fixed(timedelta(seconds=FAILED_FOR))


class Plain(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    number: int
    grp: str = role.group()
    priority: int | None = role.priority()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Kept(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    number: int
    grp: str = role.group()
    priority: int | None = role.priority()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Fifo(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    number: int
    grp: str = role.group(fifo=True)
    priority: int | None = role.priority()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class BareFifo(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    number: int
    grp: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Keyed(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    number: int
    account: str = role.partition_key()
    priority: int | None = role.priority()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Task:
    """The message."""

    number: int


_ROWS: dict[Shape, type[Inbox]] = {
    "plain": Plain,
    "kept": Kept,
    "fifo": Fifo,
    "bare fifo": BareFifo,
    "keyed": Keyed,
}
_QUEUES: dict[tuple[Shape, str], InboxQueue[Any, Task]] = {
    (shape, group): InboxQueue(row, group, Task) for shape, row in _ROWS.items() for group in "ab"
}

Handle = Callable[[Task, Delivery[Any, Any]], Awaitable[Outcome | None]]


def served(shape: Shape) -> tuple[str, ...]:
    """The groups that have a subscription; "b" of a plain table has none."""
    return ("a", "b") if shape in ("fifo", "bare fifo") else ("a",)


def queue_of(shape: Shape, job: Job) -> InboxQueue[Any, Task]:
    """Where a job is published."""
    return _QUEUES[shape, "a" if shape == "keyed" else job.group]


def columns_of(shape: Shape, job: Job, number: int, now: datetime) -> dict[str, Any]:
    """The row's columns beside group and payload."""
    columns: dict[str, Any] = {"number": number}
    if shape == "keyed":
        columns["account"] = job.key
    if shape != "bare fifo":
        columns["priority"] = job.priority
        if job.due_in is not None:
            columns["retry_after"] = now + timedelta(seconds=job.due_in)
    return columns


def make_service(schedule: Schedule, name: str, database: Database, handle: Handle) -> Service:
    """One instance."""
    broker = Broker(
        database,
        lease=timedelta(seconds=schedule.lease),
        poll_interval=timedelta(seconds=schedule.poll),
    )
    app = Service(name, broker)
    for group in ("{group}",) if schedule.every_group else served(schedule.shape):

        async def work(message: Task, delivery: Delivery) -> Outcome | None:
            return await handle(message, delivery)

        settings: dict[str, Any] = {"on_error": BACKOFF}
        if schedule.cap is not None:
            settings |= {"max_attempts": schedule.cap, "dead_letter": f"{group}.dead"}
        settings["workers_by_key" if schedule.shape == "keyed" else "workers"] = schedule.workers
        if schedule.prefetch:
            settings["prefetch"] = schedule.prefetch
        queue = (
            InboxQueue.every_group(_ROWS[schedule.shape], Task)
            if schedule.every_group
            else _QUEUES[schedule.shape, group]
        )
        app.include(subscriber(queue)(work), **settings)
    return app
