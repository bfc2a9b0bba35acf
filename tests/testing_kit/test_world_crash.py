"""A crashed instance, in every claim form and on every database: nothing that it tries is in the database.

Seen by a client that is not the kit's.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import anyio
import psycopg
import pymysql
import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    TransactionalDelivery,
    events,
    role,
    subscriber,
)
from inboxkit._db.mysql_url import read_target
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import ObservedDatabase, World
from inboxkit_testing.marks import Crashed

SECOND = timedelta(seconds=1)
Start = Callable[[Callable[[Database], Service]], Awaitable[World]]


class Leased(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="jobs", advisory_lock="job-{id}"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


FORMS = {"lease": Leased, "row lock": Locked, "advisory lock": Keyed}
LEASE = 10.0
CELLS = [
    (database, backend, form)
    for database, backend, form in itertools.product(
        ("sqlite", "sqlite-inloop", "postgres", "mariadb", "mysql"), ("asyncio", "trio"), FORMS
    )
    if (form != "row lock" or not database.startswith("sqlite"))
    and (database, backend) not in {("mysql", "trio"), ("sqlite-inloop", "asyncio")}
]
every_cell = pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "form"), CELLS, ids=["-".join(cell) for cell in CELLS]
)


async def create(database: Database, form: str) -> None:
    for statement in create_table(get_dialect(database.dialect), FORMS[form].spec):
        await database.execute(statement)
    await database.execute("CREATE TABLE effects (what varchar(40) PRIMARY KEY)")


@contextmanager
def outside(database: Database) -> Iterator[Any]:
    """A cursor of another client than the kit's."""
    assert isinstance(database, ObservedDatabase)
    connection: Any
    if database.dialect == "mysql":
        target = read_target(database.url)
        connection = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            ssl_disabled=True,
        )
    elif database.dialect == "postgres":
        connection = psycopg.connect(database.url)
    else:
        connection = sqlite3.connect(database.url.partition("///")[2], timeout=0)
    try:
        yield connection.cursor()
    finally:
        connection.rollback()
        connection.close()


def seen(database: Database, form: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The effects, and attempt and lease of each row; all of it can be locked at once."""
    is_leased = form == "lease"
    lock = "" if database.dialect == "sqlite" else " FOR UPDATE NOWAIT"
    with outside(database) as cursor:
        if not lock:
            cursor.execute("BEGIN IMMEDIATE")
        cursor.execute(f"SELECT what FROM effects ORDER BY what{lock}")
        effects = [what for (what,) in cursor.fetchall()]
        cursor.execute(f"SELECT attempt{', locked_until' * is_leased} FROM jobs ORDER BY id{lock}")
        rows = [(attempt, *(until is not None for until in rest)) for attempt, *rest in cursor]
    return effects, rows


class Dying:
    """A handler whose first run tries all that clean-up code tries."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.attempts: list[int] = []

    async def __call__(self, message: bytes, delivery: Delivery[Any, Any]) -> None:
        self.attempts.append(delivery.attempt)
        if len(self.attempts) > 1:
            return
        await self._write(delivery, "before")
        try:
            await delivery.clock.sleep(3)
        except BaseException:
            self.ran.append("except")
            await self._shielded(delivery, "except")
            raise
        finally:
            self.ran.append("finally")
            try:
                await self._shielded(delivery, "finally")
            finally:
                self.ran.append("finally of finally")
                await self._write(delivery, "last")

    async def _shielded(self, delivery: Delivery[Any, Any], what: str) -> None:
        with anyio.CancelScope(shield=True):
            columns = "attempt = 0"
            if delivery.queue.spec.locked_until is not None:
                columns += ", locked_until = NULL"
            try:
                async with delivery.database.transaction() as tx:
                    await tx.execute(f"UPDATE jobs SET {columns}")
                    await tx.execute("INSERT INTO effects (what) VALUES ($1)", f"{what} in tx")
            finally:
                await self._write(delivery, what)

    async def _write(self, delivery: Delivery[Any, Any], what: str) -> None:
        await delivery.database.execute("INSERT INTO effects (what) VALUES ($1)", what)


def serving(form: str, handler: Any, *, transactional: bool = False) -> Any:
    queue = InboxQueue(
        FORMS[form], "jobs", bytes, **{"lease": LEASE * SECOND} if form == "lease" else {}
    )

    def service(database: Database) -> Service:
        app = Service("jobs", Broker(database))
        app.include(subscriber(queue, transactional=transactional)(handler))
        return app

    return queue, service


@every_cell
async def test_clean_up_of_a_crashed_instance_reaches_nothing(
    inbox_world: Start, inbox_database: Database, form: str
) -> None:
    await create(inbox_database, form)
    handler = Dying()

    async def handle(message: bytes, delivery: Delivery[Any, Any]) -> None:
        await handler(message, delivery)

    queue, service = serving(form, handle)
    world = await inbox_world(service)
    await world.start("a")
    await world.publish(queue, b"x", by="a")
    await world.advance(2 * SECOND)
    before = world.clock.monotonic()
    await world.crash("a")
    await world.settle()
    assert world.clock.monotonic() == before
    counted = form != "row lock"  # which writes nothing at the claim
    left = (["before"], [(2, True) if form == "lease" else (1 + counted,)])
    assert seen(inbox_database, form) == left
    await world.advance(4 * SECOND)
    assert handler.ran == ["except", "finally", "finally of finally"]
    assert seen(inbox_database, form) == left
    assert world.instances["a"].state == "crashed"
    assert isinstance(world.timeline.events[-1], Crashed)  # the dead log nothing
    # What held the row has ended with the process, but for a lease.
    await world.start("b")
    await world.advance(0.5 * SECOND)
    attempt = 1 + counted
    if form == "lease":
        assert handler.attempts == [1]
        await world.advance(LEASE * SECOND)
    assert handler.attempts == [1, attempt]
    await world.drain()
    assert seen(inbox_database, form) == (["before"], [])
    world.history.check_all(left=[])


@every_cell
async def test_what_a_crashed_instance_had_in_a_transaction_is_undone(
    inbox_world: Start, inbox_database: Database, form: str
) -> None:
    await create(inbox_database, form)
    attempts: list[int] = []

    async def handle(message: bytes, delivery: TransactionalDelivery[Any, Any]) -> None:
        attempts.append(delivery.attempt)
        await delivery.tx.execute(
            "INSERT INTO effects (what) VALUES ($1)", f"by run {len(attempts)}"
        )
        try:
            await delivery.clock.sleep(3 if len(attempts) == 1 else 0)
        finally:
            with anyio.CancelScope(shield=True):
                await delivery.tx.execute(
                    "INSERT INTO effects (what) VALUES ($1)", f"end of run {len(attempts)}"
                )

    queue, service = serving(form, handle, transactional=True)
    world = await inbox_world(service)
    await world.start("a")
    await world.publish(queue, b"x", by="a")
    await world.advance(2 * SECOND)
    await world.crash("a")
    counted = form != "row lock"
    left = [(2, True) if form == "lease" else (1 + counted,)]
    assert seen(inbox_database, form) == ([], left)
    await world.start("b")
    await world.drain()
    assert attempts == [1, 1 + counted]
    assert seen(inbox_database, form) == (["by run 2", "end of run 2"], [])
    assert [event.instance for event in world.timeline.of(events.Finished)] == ["b"]
    world.history.check_all(left=[])
