"""FastAPI: the service runs in the app's lifespan, and publishes in a request's own transaction."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from fastapi import FastAPI, HTTPException

from inboxkit import (
    Broker,
    ConstraintError,
    Database,
    Inbox,
    InboxQueue,
    Service,
    role,
    subscriber,
)

log = logging.getLogger("web")


class SendReceipt(Inbox, table="receipt_jobs"):
    """A receipt to send."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Order:
    """What the client sends, and what the receipt is about."""

    number: int
    email: str


RECEIPTS = InboxQueue(SendReceipt, "receipts", Order)


@subscriber(RECEIPTS)
async def send_receipt(order: Order) -> None:
    log.info("receipt of order %d to %s", order.number, order.email)


SCHEMA = {
    "sqlite": [
        "CREATE TABLE IF NOT EXISTS web_orders (number INTEGER PRIMARY KEY, email TEXT NOT NULL)",
        """CREATE TABLE IF NOT EXISTS receipt_jobs (
            id           INTEGER PRIMARY KEY,
            attempt      INTEGER NOT NULL DEFAULT 1,
            locked_until TEXT,
            payload      BLOB NOT NULL
        )""",
    ],
    "postgres": [
        "CREATE TABLE IF NOT EXISTS web_orders (number bigint PRIMARY KEY, email text NOT NULL)",
        """CREATE TABLE IF NOT EXISTS receipt_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            attempt      integer NOT NULL DEFAULT 1,
            locked_until timestamptz,
            payload      bytea NOT NULL
        )""",
    ],
    "mysql": [
        "CREATE TABLE IF NOT EXISTS web_orders (number bigint PRIMARY KEY, email text NOT NULL)",
        """CREATE TABLE IF NOT EXISTS receipt_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            attempt      int NOT NULL DEFAULT 1,
            locked_until datetime(6),
            payload      longblob NOT NULL,
            KEY receipt_jobs_order (locked_until, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(database: Database | str) -> Service:
    app = Service("web", Broker(database))
    app.on_startup(create_schema)
    app.include(send_receipt, workers=4)
    return app


def make_app(receipts: Service) -> FastAPI:
    """The web app over a service, so that a test can give it one over its own database."""
    broker = receipts.broker

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # Beside the app in its own event loop; left, it waits for the handlers in work.
        async with receipts.running():
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def place_order(order: Order) -> dict[str, int]:
        try:
            async with broker.database.transaction() as tx:
                await broker.publish(RECEIPTS, order, within=tx)
                await tx.execute(
                    "INSERT INTO web_orders (number, email) VALUES ($1, $2)",
                    order.number,
                    order.email,
                )
                check(order)
        except ConstraintError:
            raise HTTPException(409, f"order {order.number} was placed before") from None
        return {"number": order.number}

    return app


def check(order: Order) -> None:
    """The end of the transaction: what is refused here was never there."""
    if "@" not in order.email:
        raise HTTPException(422, "no address")


def production() -> FastAPI:
    """``uvicorn --factory web:production``"""
    return make_app(service(os.environ.get("DATABASE_URL", "sqlite:///web.db")))
