"""Requests to the web app, in virtual time: a receipt is sent exactly for an order that was placed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

pytest.importorskip("fastapi", reason="it is in the extra dev")
pytest.importorskip("httpx", reason="it is the extra httpx")

import httpx
import web
from web import Order, make_app, send_receipt, service

from inboxkit import Broker, Database, Service, subscriber
from inboxkit_testing import TestApp, VirtualClock

ANN = {"number": 1, "email": "ann@example.com"}


@asynccontextmanager
async def served(receipts: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app inside its lifespan, without a socket between them."""
    app = make_app(receipts)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://web") as client,
    ):
        yield client


async def counts(db: Database) -> tuple[int, int]:
    orders = await db.fetch_value("SELECT count(*) FROM web_orders")
    return orders, await db.fetch_value("SELECT count(*) FROM receipt_jobs")


async def test_an_order_and_its_receipt(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    receipts = service(inbox_database)
    app = TestApp(receipts)  # records what the handlers were given
    async with served(receipts) as client:
        answer = await client.post("/orders", json=ANN)
        assert (answer.status_code, answer.json()) == (201, {"number": 1})
        await frozen_clock.settle()  # no poll has come since
        app.subscriber(send_receipt).assert_called_with(Order(**ANN))
        assert await counts(inbox_database) == (1, 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (ANN, 409),  # placed before
        ({"number": 2, "email": "nowhere"}, 422),  # refused at the end of the transaction
        ({"number": "two"}, 422),  # refused before it
    ],
)
async def test_a_request_that_fails_leaves_no_receipt(
    body: object, status: int, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    receipts = service(inbox_database)
    app = TestApp(receipts)
    async with served(receipts) as client:
        await client.post("/orders", json=ANN)
        await virtual_clock.settle()
        assert (await client.post("/orders", json=body)).status_code == status
        await virtual_clock.settle()
        assert await counts(inbox_database) == (1, 0)
        app.subscriber(send_receipt).assert_called_once()


async def test_an_error_in_the_middle_leaves_nothing(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_order: Order) -> None:
        raise LookupError("in the middle")

    monkeypatch.setattr(web, "check", broken)
    async with served(service(inbox_database)) as client:
        with pytest.raises(LookupError):
            await client.post("/orders", json=ANN)
        assert await counts(inbox_database) == (0, 0)


async def test_the_end_of_the_app_waits_for_the_handlers_in_work(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    ended: list[int] = []

    async def slow(order: Order) -> None:
        await anyio.sleep(5)
        ended.append(order.number)

    receipts = Service("web", Broker(inbox_database))
    receipts.on_startup(web.create_schema)
    receipts.include(subscriber(web.RECEIPTS)(slow))
    async with served(receipts) as client:
        await client.post("/orders", json=ANN)
        await virtual_clock.settle()
        assert ended == []
    assert ended == [1]
    assert await counts(inbox_database) == (1, 0)
