"""What goes wrong on purpose: each fault as the driver tells of it, and a service that outlives them all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    events,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit.errors import DatabaseBusyError, DatabaseError, OutcomeUnknownError
from inboxkit_testing import ObservedDatabase, VirtualClock, World, open_test_database, run
from inboxkit_testing.backends import BackendName
from inboxkit_testing.faults import Fault, Faults
from inboxkit_testing.marks import Ended

Cell = tuple[str, BackendName]
SECOND = timedelta(seconds=1)
WRITE = "INSERT INTO t VALUES ($1)"


def with_table(cell: Cell, main: Callable[[ObservedDatabase], Awaitable[None]]) -> VirtualClock:
    """Run a main on a database with an empty table ``t (n)``; returns the clock."""
    url, backend = cell
    clock = VirtualClock(stall=5)

    async def opened() -> None:
        async with open_test_database(url, clock=clock) as database:
            await database.execute("CREATE TABLE t (n integer primary key)")
            await main(database)

    run(opened, backend=backend, clock=clock)
    return clock


async def numbers_in(database: ObservedDatabase) -> list[int]:
    return [row[0] for row in await database.fetch("SELECT n FROM t ORDER BY n")]


async def write_in_transaction(database: ObservedDatabase, *numbers: int) -> None:
    async with database.transaction() as tx:
        for number in numbers:
            await tx.execute(WRITE, number)


def test_what_hangs_is_given_up_and_was_not_done(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        database.faults.hang("execute", 20)
        with pytest.raises(OutcomeUnknownError, match="no answer within 20 s"):
            await database.execute(WRITE, 1)
        assert database.clock.monotonic() == 20
        database.faults.hang("commit", 5)
        with pytest.raises(OutcomeUnknownError):
            await write_in_transaction(database, 2)
        assert database.clock.monotonic() == 25
        database.faults.hang("commit")
        with anyio.move_on_after(2) as scope:
            await write_in_transaction(database, 3)
        assert (scope.cancelled_caught, database.clock.monotonic()) == (True, 27)
        assert await numbers_in(database) == []

    with_table(cell, main)


def test_a_connection_that_was_closed_is_found_out_and_replaced(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        lone = database.faults.close_connection("execute")
        with pytest.raises((DatabaseBusyError, OutcomeUnknownError)) as caught:
            await database.execute(WRITE, 1)
        assert "test" not in str(caught.value)  # it is the driver that says so
        seen = iter((False, True))
        inside = database.faults.close_connection(
            lambda operation: operation.name == "execute" and next(seen)
        )
        with pytest.raises(DatabaseBusyError):
            await write_in_transaction(database, 1, 2)
        assert await numbers_in(database) == []
        assert (lone.hits, inside.hits, database.clock.monotonic()) == (1, 1, 0)
        await write_in_transaction(database, 1, 2)
        assert await numbers_in(database) == [1, 2]

    with_table(cell, main)


ERRORS: dict[str, Callable[[Faults, Any], Fault]] = {
    "busy": Faults.busy,
    "deadlock": Faults.deadlock,
    "serialization failure": Faults.serialization_failure,
}
SQLSTATES = {"busy": "55P03", "deadlock": "40P01", "serialization failure": "40001"}
NUMBERS = {"busy": 1205, "deadlock": 1213}


def known_to(error: str, dialect: str) -> bool:
    return {"sqlite": error == "busy", "mysql": error in NUMBERS}.get(dialect, True)


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_the_databases_own(cell: Cell, error: str) -> None:
    async def main(database: ObservedDatabase) -> None:
        arm = ERRORS[error]
        if not known_to(error, database.dialect):
            with pytest.raises(ValueError, match=r"use .*faults\.busy\(\)"):
                arm(database.faults, "execute")
            return
        for work in (lambda: database.execute(WRITE, 1), lambda: write_in_transaction(database, 1)):
            fault = arm(database.faults, "execute")
            with pytest.raises(DatabaseBusyError) as caught:
                await work()
            assert fault.hits == 1
            cause: Any = caught.value.__cause__
            if database.dialect == "postgres":
                assert cause.sqlstate == SQLSTATES[error]
            elif database.dialect == "mysql":
                assert cause.args[0] == NUMBERS[error]
            assert await numbers_in(database) == []
        await write_in_transaction(database, 1)
        assert await numbers_in(database) == [1]

    with_table(cell, main)


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


FORMS: dict[str, type[Inbox]] = {"lease": Leased, "row lock": Locked, "advisory lock": Keyed}
EVERY: dict[str, Callable[[Faults, Any], Fault]] = {
    "refuse": Faults.refuse,
    "delay": lambda faults, name: faults.delay(name, 4),
    "hang": Faults.hang,
    "lose reply": Faults.lose_reply,
    "close connection": Faults.close_connection,
    **ERRORS,
}


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "form"),
    [
        ("sqlite", "trio", "lease"),
        ("sqlite-inloop", "asyncio", "advisory lock"),
        ("postgres", "asyncio", "lease"),
        ("postgres", "trio", "row lock"),
        ("postgres", "asyncio", "advisory lock"),
        ("mariadb", "trio", "lease"),
        ("mariadb", "asyncio", "row lock"),
        ("mysql", "trio", "advisory lock"),
    ],
)
async def test_a_service_outlives_every_fault_at_every_statement(
    inbox_database: Database,
    inbox_world: Callable[[Callable[[Database], Service]], Awaitable[World]],
    form: str,
) -> None:
    """Each kind of fault at each kind of statement and script that a row's way through a service has."""
    for statement in create_table(get_dialect(inbox_database.dialect), FORMS[form].spec):
        await inbox_database.execute(statement)
    queue: InboxQueue[Any, Any] = InboxQueue(FORMS[form], "jobs", bytes)

    async def handle(message: bytes, delivery: Delivery[Any, Any]) -> None:
        await delivery.clock.sleep(20 if message == b"long" else 0)  # a lease is renewed meanwhile

    def service(database: Database) -> Service:
        app = Service("jobs", Broker(database))
        app.include(subscriber(queue)(handle))
        return app

    world = await inbox_world(service)
    instance = await world.start("a")
    instance.database.recording.clear()
    await world.publish(queue, b"long", by="a")
    await world.advance(25 * SECOND)
    sent = list(instance.database.recording)
    names = dict.fromkeys(name for each in sent for name in (each.script, each.name) if name)
    if inbox_database.dialect == "sqlite":
        del names["begin"]  # each is of a script that runs in one go
    assert len(names) >= 4
    struck: set[tuple[str, str]] = set()
    for kind, arm in EVERY.items():
        if kind in ERRORS and not known_to(kind, inbox_database.dialect):
            continue
        for name in names:
            fault = arm(instance.database.faults, name)
            is_long = name.startswith("renew")
            with suppress(DatabaseError):
                await world.publish(queue, b"long" if is_long else b"short", by="a")
            await world.advance((25 if is_long else 5) * SECOND)
            if fault.hits:
                struck.add((kind, name))
            instance.database.faults.clear()
        await world.drain()
        assert instance.state == "running"
    assert {kind for kind, _ in struck} >= {"refuse", "delay", "hang", "lose reply", "busy"}
    assert {name for _, name in struck} == set(names)
    assert await world.rows(FORMS[form]) == []
    handled = {each.id for each in world.timeline.of(Ended) if isinstance(each, Ended)}
    published = world.timeline.of(events.Published)
    assert {each.id for each in published if isinstance(each, events.Published)} <= handled
    history = world.history
    history.none_settled_twice().one_in_work_per_row().lease_exclusiveness()
    if form != "row lock":  # where a settlement that failed is not counted
        history.attempts(may_skip=True)  # an answer to a claim was lost
