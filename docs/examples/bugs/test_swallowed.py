"""Each order is invoiced, whatever happens to the database."""

from __future__ import annotations

from searching import finds_nothing, finds_the_bug
from swallowed import ORDERS, Order, buggy, create_schema, fixed

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic


class Invoices(CrashAndResume):
    traffic = (traffic(ORDERS, lambda n: Order(n, cents=500)),)

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        invoiced = {row[0] for row in await world.database.fetch("SELECT order_id FROM invoices")}
        for sent in world.published:
            assert sent.message.id in invoiced or not sent.is_known


class Buggy(Invoices):
    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Invoices):
    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=3)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
