"""Every webhook is received or given up; none is in the way of the others."""

from __future__ import annotations

import json

from _jobs import OrderedJob
from hypothesis import strategies as st
from poison import WEBHOOKS, buggy, create_schema, fixed
from searching import finds_nothing, finds_the_bug

from inboxkit import Database, Service
from inboxkit_testing import CrashAndResume, World, traffic

NO_JSON = b"<html>502 Bad Gateway</html>"


def body(number: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from([json.dumps({"id": number}).encode(), NO_JSON])


class Webhooks(CrashAndResume):
    traffic = (traffic(WEBHOOKS, body),)

    async def setup(self, database: Database) -> None:
        await create_schema(database)

    async def check(self, world: World) -> None:
        received = [row[0] for row in await world.database.fetch("SELECT id FROM events")]
        given_up = [row.payload for row in await world.rows(OrderedJob)]
        assert len(received) == len(set(received))
        for sent in world.published:
            is_received = sent.message != NO_JSON and json.loads(sent.message)["id"] in received
            assert is_received or sent.message in given_up or not sent.is_known


class Buggy(Webhooks):
    def service(self, database: Database) -> Service:
        return buggy(database)


class Fixed(Webhooks):
    def service(self, database: Database) -> Service:
        return fixed(database)


test_the_bug_is_found = finds_the_bug(Buggy, number=1)
test_nothing_is_found_in_the_twin = finds_nothing(Fixed)
