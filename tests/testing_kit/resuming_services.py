"""A small shop with one fault at a time, for the crash-and-resume machine to find."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import anyio
from hypothesis import strategies as st

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    TransactionalDelivery,
    ack,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import CrashAndResume, World, traffic

SECOND = timedelta(seconds=1)


class OrderRow(Inbox, table="order_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class LockedRow(Inbox, table="order_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class AdvisoryRow(Inbox, table="order_jobs", advisory_lock="orders-{id}"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


@dataclass
class Order:
    id: int
    cents: int = 5


ORDERS = InboxQueue(OrderRow, "orders", Order, lease=10 * SECOND, poll_interval=4 * SECOND)
LOCKED = InboxQueue(LockedRow, "orders", Order, poll_interval=4 * SECOND)
ADVISORY = InboxQueue(AdvisoryRow, "orders", Order, poll_interval=4 * SECOND)


async def create_schema(db: Database) -> None:
    for statement in create_table(get_dialect(db.dialect), OrderRow.spec):
        await db.execute(statement)
    await db.execute("CREATE TABLE bills (order_id integer NOT NULL, place integer NOT NULL)")
    await db.execute("CREATE TABLE totals (cents integer NOT NULL)")


async def total(world: World) -> int:
    found: int = await world.database.fetch_value("SELECT COALESCE(SUM(cents), 0) FROM totals")
    return found


class Shop(CrashAndResume):
    """Bills each order once; subclasses do it wrongly."""

    queue: ClassVar[InboxQueue[Any, Order]] = ORDERS
    traffic = (traffic(ORDERS, Order),)
    settings_of_include: ClassVar[dict[str, Any]] = {}
    transactional: ClassVar[bool] = True

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        await delivery.tx.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()

    def service(self, database: Database) -> Service:
        app = Service("shop", Broker(database))
        if self.transactional:

            @subscriber(self.queue, transactional=True)
            async def bill_in_one(
                order: Order, delivery: TransactionalDelivery[Any, Any]
            ) -> Outcome | None:
                return await self.handle(order, delivery)

            app.include(bill_in_one, **self.settings_of_include)
        else:

            @subscriber(self.queue)
            async def bill(order: Order, delivery: Delivery[Any, Any]) -> Outcome | None:
                return await self.handle(order, delivery)

            app.include(bill, **self.settings_of_include)
        return app

    async def check(self, world: World) -> None:
        for sent in world.published:
            bills = await world.database.fetch_value(
                "SELECT count(*) FROM bills WHERE order_id = $1", sent.message.id
            )
            assert bills == 1 if sent.is_known else bills <= 1


class SoundLocked(Shop):
    queue = LOCKED
    traffic = (traffic(LOCKED, Order),)


class SoundAdvisory(Shop):
    queue = ADVISORY
    traffic = (traffic(ADVISORY, Order),)


class BillsTwice(Shop):
    """The effect is committed before the message is: a crash between the two repeats it."""

    transactional = False

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        await delivery.database.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()


class ForgetsOnRetry(Shop):
    """Marks the order first and bills it then: who meets the mark believes that all was done."""

    transactional = False

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        db: Database = delivery.database
        mark = "SELECT count(*) FROM totals WHERE cents = $1"
        if not await db.fetch_value(mark, order.id):
            await db.execute("INSERT INTO totals VALUES ($1)", order.id)
            await db.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()


class LosesUpdates(Shop):
    """Reads a total, and writes what it makes of it, while others do the same."""

    transactional = False
    settings_of_include: ClassVar[dict[str, Any]] = {"workers": 3}

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        db: Database = delivery.database
        done = "SELECT count(*) FROM bills WHERE order_id = $1"
        if await db.fetch_value(done, order.id):
            return ack()
        before = await db.fetch_value("SELECT max(cents) FROM totals") or 0
        async with db.transaction() as tx:
            await tx.execute("DELETE FROM totals")
            await tx.execute("INSERT INTO totals VALUES ($1)", before + order.cents)
            await tx.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()

    async def check(self, world: World) -> None:
        bills = await world.database.fetch_value("SELECT count(*) FROM bills")
        assert await total(world) == 5 * bills


class TrustsOrder(Shop):
    """Gives out numbers in the order in which it comes to the orders, and expects that of publishing."""

    settings_of_include: ClassVar[dict[str, Any]] = {"workers": 3}

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        place = await delivery.tx.fetch_value("SELECT count(*) FROM bills")
        await delivery.tx.execute("INSERT INTO bills VALUES ($1, $2)", order.id, place)
        return ack()

    async def check(self, world: World) -> None:
        rows = await world.database.fetch("SELECT order_id FROM bills ORDER BY place, order_id")
        found = [row[0] for row in rows]
        assert found == sorted(found)


class TellsTooEarly(Shop):
    """Sends a mail before the bill is committed: mails without bills, or two for one bill."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[int] = []

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        self.mails.append(order.id)
        await delivery.tx.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()

    async def check(self, world: World) -> None:
        await super().check(world)
        assert len(self.mails) == len(set(self.mails))


class GivesUpOnCrashes(Shop):
    """Two attempts, and crashes count: a healthy order goes to the dead letter."""

    settings_of_include: ClassVar[dict[str, Any]] = {"max_attempts": 2, "dead_letter": "dead_jobs"}

    async def setup(self, database: Database) -> None:
        await create_schema(database)
        for statement in create_table(get_dialect(database.dialect), OrderRow.spec):
            await database.execute(statement.replace("order_jobs", "dead_jobs"))


class Poisoned(Shop):
    """One order can never be billed, and nothing ever gives it up."""

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        if order.cents == 13:
            raise ValueError("unlucky")
        return await super().handle(order, delivery)

    traffic = (traffic(ORDERS, lambda n: st.builds(Order, st.just(n), st.sampled_from([5, 13]))),)


class WorksOnWithoutItsLease(Shop):
    """Long work that no cancellation reaches: when the lease is lost, two do it."""

    transactional = False

    async def handle(self, order: Order, delivery: Any) -> Outcome | None:
        db: Database = delivery.database
        with anyio.CancelScope(shield=True):
            done = await db.fetch_value("SELECT count(*) FROM bills WHERE order_id = $1", order.id)
            await anyio.sleep(15)
            if not done:
                await db.execute("INSERT INTO bills VALUES ($1, $1)", order.id)
        return ack()


FAULTY: list[type[Shop]] = [
    BillsTwice,
    ForgetsOnRetry,
    LosesUpdates,
    TrustsOrder,
    TellsTooEarly,
    GivesUpOnCrashes,
    Poisoned,
    WorksOnWithoutItsLease,
]
