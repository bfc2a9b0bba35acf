"""Each order is charged once, whatever happens to the service."""

from __future__ import annotations

from charge_twice import ORDERS, Order, buggy, create_schema, fixed
from searching import finds_nothing, finds_the_bug

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic


class Charges(CrashAndResume):
    traffic = (traffic(ORDERS, lambda n: Order(n, cents=500)),)

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        for sent in world.published:
            charges = await world.database.fetch_value(
                "SELECT count(*) FROM charges WHERE order_id = $1", sent.message.id
            )
            assert charges == 1 if sent.is_known else charges <= 1


class Buggy(Charges):
    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Charges):
    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=2)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
