"""Checked by mypy and pyright, not run: a line that ends in ``# error`` must be refused by both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from inboxkit import (
    Backoff,
    Broker,
    Column,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    NewRow,
    Outcome,
    Record,
    Service,
    Transaction,
    ack,
    drop,
    insert_rows,
    insert_statements,
    retry,
    retry_after,
    role,
    subscriber,
)
from inboxkit.clock import SystemClock
from inboxkit_testing import TestApp, VirtualClock, delivery, run


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    priority: int = role.priority(default=1)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Report:
    pages: int


@dataclass
class LongReport(Report):
    chapters: int


@dataclass
class Mail:
    to: str


class Grouped(Inbox, table="grouped"):
    id: int = role.id(generated=True)
    tenant: str = role.group(fifo=True)
    payload: bytes = role.payload()


SPEC = InboxSpec("jobs", id=Column("id"), payload=Column("payload"))
REPORTS = InboxQueue(Jobs, "reports", Report)
MAILS = InboxQueue(Jobs, "mails", Mail)
BY_HAND = InboxQueue(SPEC, "by hand", Report)
UNTYPED = InboxQueue(Jobs, "untyped")
EVERY = InboxQueue.every_group(Grouped, Report, poll_interval=timedelta(seconds=3))
EVERY_BY_HAND = InboxQueue.every_group(SPEC, name="by hand")


@subscriber(REPORTS)
async def render(report: Report, delivery: Delivery[Jobs, Report]) -> Outcome:
    assert_type(delivery.database, Database)
    await delivery.publish(MAILS, Mail("a"))
    await delivery.publish(MAILS, report)  # error
    async with delivery.database.transaction() as tx:
        await delivery.publish(MAILS, Mail("a"), within=tx, priority=3)
    return ack()


async def publishing(broker: Broker, tx: Transaction) -> None:
    await broker.publish(REPORTS, Report(1))
    await broker.publish(REPORTS, LongReport(1, 2), within=tx, priority=3)
    await broker.publish(BY_HAND, Report(1))
    await broker.publish(UNTYPED, object())
    await broker.publish("by name", object())
    await broker.publish(REPORTS, Mail("a"))  # error
    await broker.publish(BY_HAND, Mail("a"))  # error
    await broker.publish(REPORTS, {"pages": 1})  # error
    await broker.publish(REPORTS)  # error
    await broker.publish(3, Report(1))  # error
    await broker.publish(Jobs, Report(1))  # error
    broker.route("mails.*", Jobs)
    broker.route("mails.*", SPEC)
    broker.route("mails.*", REPORTS)  # error
    broker.wake(REPORTS)
    broker.wake("reports")


@subscriber(EVERY)
async def render_each(report: Report, delivery: Delivery[Grouped, Report]) -> None:
    assert_type(delivery.row.tenant, str)
    await delivery.publish(EVERY.group("acme"), report)
    await delivery.publish(EVERY.group("acme"), Mail("a"))  # error


@subscriber(EVERY)  # error
async def of_another_message(mail: Mail) -> None: ...


async def every_group(broker: Broker) -> None:
    assert_type(EVERY.group("acme"), InboxQueue[Grouped, Report])
    await broker.publish(EVERY.group("acme"), Report(1), tenant="acme")
    await broker.publish(EVERY_BY_HAND.group("acme"), object())
    await broker.publish(EVERY.group("acme"), Mail("a"))  # error
    broker.wake(EVERY)
    EVERY.group(3)  # error
    InboxQueue.every_group(Grouped, "acme", Report)  # error
    InboxQueue.every_group(Grouped, Report, lease=30)  # error
    InboxQueue.every_group("grouped")  # error


def including(app: Service) -> None:
    app.include(render_each, workers=8, max_attempts=3, dead_letter="{group}.dead")
    app.include(render)
    app.include(render, workers=3, timeout=timedelta(seconds=1))
    app.include(render, workers_by_key=3)
    app.include(render, max_attempts=3, dead_letter="dead")
    app.include(render, max_attempts=3, dead_letter=MAILS, on_error=Backoff.immediate())
    app.include(render, on_error="drop", on_decode_error="stop")
    app.include(render, max_attempts=3)  # error
    app.include(render, dead_letter="dead")  # error
    app.include(render, max_attempts=3, dead_letter=None)  # error
    app.include(render, max_attempts="3", dead_letter="dead")  # error
    app.include(render, on_error="retry")  # error
    app.include(render, timeout=3)  # error
    app.include(render, 3)  # error
    app.include(REPORTS)  # error


async def create_schema(db: Database) -> None: ...
async def wrong_hook() -> None: ...


async def middleware(
    delivery: Delivery[Any, Any],
    call_next: Callable[[Delivery[Any, Any]], Awaitable[Outcome]],
) -> Outcome:
    return await call_next(delivery)


@asynccontextmanager
async def lifespan(service: Service) -> AsyncIterator[dict[str, int]]:
    yield {"a": 1}


async def services(db: Database) -> None:
    app = Service("a", Broker(db), lifespan=lifespan, drain_timeout=timedelta(seconds=1))
    Broker("sqlite:///x.db", lease=timedelta(seconds=3), poll_interval=timedelta(seconds=1))
    app.on_startup(create_schema)
    app.use(middleware)
    async with app.running() as handle:
        await handle.ready.wait()
        handle.stop()
        handle.cancel()
    app.on_startup(wrong_hook)  # error
    app.use(wrong_hook)  # error
    Service("a", db)  # error
    Service("a", Broker(db), drain_timeout=30)  # error
    Broker(db, lease=30)  # error
    Database("sqlite:///x.db", clock=SystemClock(), statement_timeout=timedelta(seconds=1))
    Database("sqlite:///x.db", clock=VirtualClock())
    Database("sqlite:///x.db", clock=datetime.now)  # error
    Database("sqlite:///x.db", statement_timeout=30)  # error
    Database()  # error


async def inserting(tx: Transaction) -> None:
    assert_type(await insert_rows(tx, Jobs.of(Report(1))), list[Any])
    await insert_rows(tx, Jobs.of(Report(1)), SPEC.of(Report(1)), on_conflict="ignore")
    rows: list[Inbox | NewRow] = [Jobs.of(Report(1), priority=3), SPEC.of(Report(1))]
    await insert_rows(tx, *rows)
    insert_statements("sqlite", *rows)
    await insert_rows(tx, Report(1))  # error
    await insert_rows(tx, Jobs.of(Report(1)), on_conflict="replace")  # error
    await insert_rows(tx, Jobs)  # error
    insert_statements("oracle", *rows)  # error
    insert_statements("postgres", Report(1))  # error


async def statements(db: Database) -> None:
    assert_type(await db.execute("SELECT $1", 1), int)
    assert_type(await db.fetch("SELECT 1"), list[Record])
    assert_type(await db.fetch_one("SELECT 1"), Record | None)
    async with db.transaction() as tx:
        assert_type(tx.clock.now(), datetime)
        tx.after_commit(lambda: None)
    await db.execute(1)  # error


def outcomes() -> None:
    made: list[Outcome] = [ack(), retry(), retry_after(timedelta(1)), drop(), drop("spam")]
    retry_after(3)  # error
    retry_after()  # error
    drop(3)  # error
    print(made)


async def testing(app: TestApp) -> None:
    assert_type(delivery(REPORTS, Report(1), attempt=2), Delivery[Jobs, Report])
    await render(Report(1), delivery(REPORTS, Report(1)))
    await render(Report(1), delivery(attempt=2, row=Jobs.stored(id=1)))
    delivery(REPORTS, Mail("a"))  # error
    app.subscriber(render).assert_called_once()
    app.subscriber("render").assert_called_with(Report(1))
    await app.advance(timedelta(1))
    await app.advance(3)  # error
    await app.rows(Jobs)
    await app.dead(SPEC)


async def main(a: int) -> str:
    return str(a)


assert_type(run(main, 1, backend="trio", clock=VirtualClock(), seed=1), str)
run(main, 1, backend="curio")  # error
