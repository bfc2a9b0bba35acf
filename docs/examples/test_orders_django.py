"""Django's transactions, in threads beside a service in virtual time: a job for each order that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import pymysql
import pytest

pytest.importorskip("django", reason="it is in the extra dev")

import _django_project  # noqa: F401 - before any model
from django.db import IntegrityError, connections, transaction
from orders_django import (
    Order,
    Receipt,
    SendReceipt,
    insert_in_django,
    place_order,
    send,
)

from inboxkit import Broker, Database, Service
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import ObservedDatabase, TestApp, VirtualClock

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
ANN = "ann@example.com"


def settings_of(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme in ("mysql", "mariadb"):
        pymysql.install_as_MySQLdb()
    if parts.scheme.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.partition(":///")[2]}
    return {
        "ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}",
        "NAME": parts.path.strip("/"),
        "HOST": parts.hostname,
        "PORT": parts.port or "",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }


@contextmanager
def connected(url: str) -> Iterator[None]:
    """Django is of the thread that does this, for as long as the block."""
    connections.settings = connections.configure_settings({"default": settings_of(url)})
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]


async def in_django(db: Database, work: Callable[[], object]) -> None:
    assert isinstance(db, ObservedDatabase)

    def run() -> None:
        with connected(db.url):
            work()

    await anyio.to_thread.run_sync(run)


async def serve(db: Database, poll_interval: timedelta = timedelta(seconds=1)) -> Service:
    order = "django_orders (number integer PRIMARY KEY, email varchar(200) NOT NULL)"
    for statement in [
        *create_table(get_dialect(db.dialect), SendReceipt.spec),
        f"CREATE TABLE {order}",
    ]:
        await db.execute(statement)
    app = Service("django", Broker(db, poll_interval=poll_interval))
    app.include(send)
    return app


def commits() -> None:
    place_order(1, ANN)


def rolls_back() -> None:
    with suppress(LookupError), transaction.atomic():
        place_order(1, ANN)
        raise LookupError


def rolls_back_a_nested_block() -> None:
    with transaction.atomic():
        Order.objects.create(number=2, email=ANN)
        with suppress(LookupError), transaction.atomic():
            place_order(1, ANN)
            raise LookupError


def fails_in_the_middle() -> None:
    Order.objects.create(number=1, email=ANN)
    with suppress(IntegrityError), transaction.atomic():
        insert_in_django(SendReceipt.of(Receipt(1, ANN)))
        Order.objects.create(number=1, email=ANN)
    try:
        place_order(1, ANN)
    except IntegrityError:
        return
    raise AssertionError("placed twice")


def refuses_to_write_outside_of_a_transaction() -> None:
    with pytest.raises(transaction.TransactionManagementError):
        insert_in_django(SendReceipt.of(Receipt(1, ANN)))


@pytest.mark.parametrize(
    ("work", "orders", "jobs"),
    [
        (commits, [1], 1),
        (rolls_back, [], 0),
        (rolls_back_a_nested_block, [2], 0),
        (fails_in_the_middle, [1], 0),
        (refuses_to_write_outside_of_a_transaction, [], 0),
    ],
)
async def test_a_job_is_there_exactly_if_the_block_was_committed(
    work: Callable[[], None],
    orders: list[int],
    jobs: int,
    inbox_database: Database,
    virtual_clock: VirtualClock,
) -> None:
    await serve(inbox_database)
    await in_django(inbox_database, work)
    found = await inbox_database.fetch("SELECT number FROM django_orders ORDER BY number")
    assert [row[0] for row in found] == orders
    assert await inbox_database.fetch_value("SELECT count(*) FROM django_jobs") == jobs


async def test_a_commit_wakes_a_service_of_this_process(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    app = await serve(inbox_database, timedelta(hours=1))
    async with TestApp(app) as kit:

        def wake() -> None:
            anyio.from_thread.run_sync(app.broker.wake, "receipts")

        def work() -> None:
            with suppress(LookupError), transaction.atomic():
                place_order(1, ANN, wake)
                raise LookupError
            place_order(2, ANN, wake)

        await in_django(inbox_database, work)
        await kit.settle()
        kit.subscriber(send).assert_called_with(Receipt(2, ANN))


async def test_the_ids_are_those_of_the_rows(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await serve(inbox_database)
    ids: list[int] = []

    def work() -> None:
        with transaction.atomic():
            for number in range(2):
                ids.extend(insert_in_django(SendReceipt.of(Receipt(number, ANN))))

    await in_django(inbox_database, work)
    rows = await inbox_database.fetch("SELECT id FROM django_jobs ORDER BY id")
    assert [row[0] for row in rows] == ids
