"""A balance is the sum of its entries."""

from __future__ import annotations

from hypothesis import strategies as st
from lost_update import POSTINGS, Posting, buggy, create_schema, fixed
from searching import finds_nothing, finds_the_bug

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic


class Balances(CrashAndResume):
    traffic = (
        traffic(
            POSTINGS, st.builds(Posting, st.sampled_from(["alice", "bob"]), st.integers(1, 900))
        ),
    )

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        entries = await world.database.fetch(
            "SELECT account, sum(cents) FROM entries GROUP BY account"
        )
        balances = await world.database.fetch("SELECT account, cents FROM balances")
        assert dict(balances) == dict(entries)


class Buggy(Balances):
    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Balances):
    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=2)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
