"""A receipt for exactly the orders that were committed. In real time, on asyncio, as SQLAlchemy is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest

pytest.importorskip("sqlalchemy", reason="it is the extra sqlalchemy")

from orders_sqlalchemy import RECEIPTS, Base, Receipt, create_schema, main, place_order
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from inboxkit import Broker, Database, Service, subscriber
from inboxkit.contrib.sqlalchemy import SQLAlchemyDatabase

DRIVERS = {
    "sqlite": "sqlite+aiosqlite:///",
    "postgres": "postgresql+asyncpg://",
    "mysql": "mysql+asyncmy://",
}
ANN = "ann@example.com"


class Sent:
    """What the handler was given."""

    def __init__(self) -> None:
        self.orders: list[int] = []
        self._changed = anyio.Event()

    async def __call__(self, receipt: Receipt) -> None:
        self.orders.append(receipt.order)
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, *orders: int) -> None:
        with anyio.fail_after(20):
            while sorted(self.orders) != sorted(orders):
                await self._changed.wait()


@asynccontextmanager
async def running(
    db: Database,
) -> AsyncIterator[tuple[async_sessionmaker[AsyncSession], Broker, Sent]]:
    assert db._url is not None
    location = db._url.location.rpartition("://")[2]
    engine = create_async_engine(f"{DRIVERS[db.dialect]}{location}")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    sent = Sent()
    # A poll would come after an hour: what is handled was woken for.
    broker = Broker(SQLAlchemyDatabase(engine), poll_interval=timedelta(hours=1))
    app = Service("orders", broker)
    app.on_startup(create_schema)
    app.include(subscriber(RECEIPTS)(sent))  # type: ignore[arg-type]
    async with app.running():
        yield async_sessionmaker(engine), broker, sent
    await engine.dispose()


@pytest.mark.parametrize("inbox_backend", ["asyncio"])
async def test_receipts_follow_the_commits_of_sessions(
    inbox_database: Database, inbox_backend: str
) -> None:
    async with running(inbox_database) as (sessions, broker, sent):
        async with sessions.begin() as session:
            await place_order(session, broker, 1, ANN)
        await sent.until(1)

        async def broken(order: Callable[[AsyncSession], Awaitable[None]], error: type) -> None:
            with pytest.raises(error):
                async with sessions.begin() as session:
                    await order(session)

        async def in_the_middle(session: AsyncSession) -> None:
            await place_order(session, broker, 2, ANN)
            raise LookupError

        async def placed_before(session: AsyncSession) -> None:
            await place_order(session, broker, 1, ANN)
            await session.flush()

        await broken(in_the_middle, LookupError)
        await broken(placed_before, IntegrityError)
        async with sessions.begin() as session:
            nested = await session.begin_nested()
            await place_order(session, broker, 3, ANN)
            await nested.rollback()
            await place_order(session, broker, 4, ANN)
        await sent.until(1, 4)
    assert await inbox_database.fetch_value("SELECT count(*) FROM alchemy_jobs") == 0
    orders = await inbox_database.fetch("SELECT number FROM alchemy_orders ORDER BY number")
    assert [row[0] for row in orders] == [1, 4]


def test_the_example_runs(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]
    caplog.set_level("INFO", logger="orders")
    anyio.run(main)
    assert [record.args[0] for record in caplog.records] == [0, 1, 2]  # type: ignore[index]
