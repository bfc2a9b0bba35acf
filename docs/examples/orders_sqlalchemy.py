"""SQLAlchemy: the engine and the sessions that a service has already, and a job with each order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

import anyio
from sqlalchemy import String
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, role, subscriber
from inboxkit.contrib.sqlalchemy import SQLAlchemyDatabase

log = logging.getLogger("orders")


class Base(DeclarativeBase):
    """The service's own tables."""


class Order(Base):
    __tablename__ = "alchemy_orders"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    email: Mapped[str] = mapped_column(String(200))


class SendReceipt(Inbox, table="alchemy_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Receipt:
    order: int
    email: str


RECEIPTS = InboxQueue(SendReceipt, "receipts", Receipt)


@subscriber(RECEIPTS)
async def send(receipt: Receipt) -> None:
    log.info("receipt of order %d to %s", receipt.order, receipt.email)


async def place_order(session: AsyncSession, broker: Broker, number: int, email: str) -> None:
    """The receipt is sent after the session's commit, and never if it is rolled back."""
    session.add(Order(number=number, email=email))
    await broker.publish(RECEIPTS, Receipt(number, email), within=session)


JOBS = {
    "sqlite": """CREATE TABLE IF NOT EXISTS alchemy_jobs (
        id           INTEGER PRIMARY KEY,
        attempt      INTEGER NOT NULL DEFAULT 1,
        locked_until TEXT,
        payload      BLOB NOT NULL
    )""",
    "postgres": """CREATE TABLE IF NOT EXISTS alchemy_jobs (
        id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        attempt      integer NOT NULL DEFAULT 1,
        locked_until timestamptz,
        payload      bytea NOT NULL
    )""",
    "mysql": """CREATE TABLE IF NOT EXISTS alchemy_jobs (
        id           bigint AUTO_INCREMENT PRIMARY KEY,
        attempt      int NOT NULL DEFAULT 1,
        locked_until datetime(6),
        payload      longblob NOT NULL,
        KEY alchemy_jobs_order (locked_until, id)
    )""",
}


async def create_schema(db: Database) -> None:
    await db.execute(JOBS[db.dialect])


def service(engine: AsyncEngine) -> Service:
    """Over the engine's own URL and settings; the engine stays the caller's to dispose of."""
    app = Service("orders", Broker(SQLAlchemyDatabase(engine)))
    app.on_startup(create_schema)
    app.include(send)
    return app


async def main(url: str = "sqlite+aiosqlite:///orders.db") -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    sessions = async_sessionmaker(engine)
    app = service(engine)
    async with app.running():
        for number in range(3):
            async with sessions.begin() as session:
                await place_order(session, app.broker, number, "ann@example.com")
        await anyio.sleep(0.5)
    await engine.dispose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    anyio.run(main)
