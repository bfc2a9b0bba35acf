"""Each transfer is made once, however long the bank takes."""

from __future__ import annotations

from searching import finds_nothing, finds_the_bug
from shielded import TRANSFERS, Transfer, buggy, create_schema, fixed

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic


class Transfers(CrashAndResume):
    traffic = (traffic(TRANSFERS, lambda n: Transfer(n, cents=10_000)),)

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        for sent in world.published:
            made = await world.database.fetch_value(
                "SELECT count(*) FROM transfers WHERE id = $1", sent.message.id
            )
            assert made == 1 if sent.is_known else made <= 1


class Buggy(Transfers):
    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Transfers):
    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=2)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
