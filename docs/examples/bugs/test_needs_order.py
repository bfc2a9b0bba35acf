"""Of a customer's addresses the last one is kept."""

from __future__ import annotations

from needs_order import ORDERED, UNORDERED, Moved, buggy, create_schema, fixed
from searching import finds_nothing, finds_the_bug

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic


def moved(number: int) -> Moved:
    return Moved(customer=1, address=f"{number} High Street")


class Addresses(CrashAndResume):
    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        kept = await world.database.fetch_value("SELECT address FROM customers")
        expected: set[str | None] = {None}
        for sent in world.published:
            # One that is not known of may be there or not.
            expected = (set() if sent.is_known else expected) | {sent.message.address}
        assert kept in expected


class Buggy(Addresses):
    traffic = (traffic(UNORDERED, moved),)

    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Addresses):
    traffic = (traffic(ORDERED, moved),)

    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=2)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
