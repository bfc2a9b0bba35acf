"""Pools that a service made itself, of one connection, or with JSON codecs of its own."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import anyio
import asyncpg
import pytest
from cases_kit import SECOND, another, make, on, serve

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    ack,
    insert_rows,
    role,
    subscriber,
)
from inboxkit.contrib.asyncpg import AsyncpgDatabase
from inboxkit.errors import InboxkitError
from inboxkit_testing import TestApp, VirtualClock


class Texts(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    lease: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: str = role.payload()
    more: dict[str, Any] = role.column(default_factory=dict)


QUEUE = InboxQueue(Texts, "jobs", dict[str, Any])


class Wrapped:
    def __init__(self, value: Any) -> None:
        self.value = value


async def _plain(connection: Any) -> None: ...
async def _python(connection: Any) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )


async def _objects(connection: Any) -> None:
    def decode(text: str) -> Wrapped:
        return Wrapped(json.loads(text))

    def encode(value: Any) -> str:
        return json.dumps(value.value if isinstance(value, Wrapped) else value)

    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=encode, decoder=decode)


CODECS = {"none": _plain, "Python values": _python, "objects": _objects}
MESSAGE = {"a": [1, "x", None], "b": {"c": "1"}}


@pytest.mark.parametrize("codec", CODECS)
def test_json_codecs_of_a_services_own_pool_are_no_concern(codec: str, postgres_url: str) -> None:
    """Each way to publish stores an object, and each pool hands the same message to the handler."""

    async def main() -> None:
        async with Database(postgres_url) as own:
            await make(
                own, payload="payload jsonb", heads="heads jsonb", more="more jsonb NOT NULL"
            )
            async with asyncpg.create_pool(postgres_url, init=CODECS[codec], min_size=1) as pool:
                theirs = AsyncpgDatabase(pool)
                row = Texts.of(MESSAGE, name="jobs", heads={"h": "1"}, more={"m": [1]})
                async with theirs:
                    for database in (own, theirs):
                        async with database.transaction() as tx:
                            await insert_rows(tx, row)
                    async with pool.acquire() as connection, connection.transaction():
                        await insert_rows(connection, row)
                    kinds = "SELECT DISTINCT jsonb_typeof(payload), jsonb_typeof(heads), jsonb_typeof(more) FROM jobs"
                    assert [tuple(found) for found in await own.fetch(kinds)] == [("object",) * 3]
                    for database in (own, theirs):
                        await own.execute("UPDATE jobs SET lease = NULL")
                        seen: list[Any] = []
                        done = anyio.Event()

                        async def handle(
                            message: dict[str, Any],
                            delivery: Delivery,
                            seen: list[Any] = seen,
                            done: anyio.Event = done,
                        ) -> None:
                            seen.append((message, dict(delivery.headers), delivery.row.more))
                            if len(seen) == 3:
                                done.set()
                            await anyio.sleep_forever()

                        app = Service("service", Broker(database, poll_interval=SECOND))
                        app.include(subscriber(QUEUE)(handle), workers=3)
                        with anyio.fail_after(10):
                            async with app.running() as handled:
                                await done.wait()
                                handled.cancel()
                        assert seen == [(MESSAGE, {"h": "1"}, {"m": [1]})] * 3

    anyio.run(main)


class Leased(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="jobs", advisory_lock="job-{id}"):
    id: int = role.id(generated=True)
    payload: bytes = role.payload()


@on("sqlite", "postgres")
@pytest.mark.parametrize("row", [Leased, Locked, Keyed])
async def test_handler_that_needs_a_connection_of_a_pool_of_one(
    row: Any, inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Never a hang: it is served, or told the pool's size and what needs more; at the start or in the
    handler."""
    if row is Locked and inbox_database.dialect == "sqlite":
        pytest.skip("SQLite has no row locks")
    await make(inbox_database)
    queue = InboxQueue(row, "jobs", bytes)
    errors: list[BaseException] = []

    async def work(message: bytes, delivery: Any) -> Any:
        if message == b"second":
            return ack()
        try:
            await delivery.publish(queue, b"second")
            assert await delivery.database.fetch_value("SELECT 1") == 1
        except InboxkitError as error:
            errors.append(error)
            raise
        return ack()

    async with another(inbox_database, pool_size=1) as db:
        app, seen = serve(db, queue, work, on_error="drop")
        async with TestApp(app) as kit:
            await kit.publish(queue, b"first")
            await kit.advance(60 * SECOND)
    if errors:
        assert "pool_size" in str(errors[0])
    else:
        assert [message for message, _ in seen] == [b"first", b"second"]
