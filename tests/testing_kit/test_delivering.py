"""A delivery made by hand, and the app's view of its handlers by any of their names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from inboxkit import (
    Broker,
    ClosedError,
    Column,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    Service,
    TransactionalDelivery,
    role,
    subscriber,
)
from inboxkit_testing import TestApp, VirtualClock, delivery


class Jobs(Inbox, table="jobs"):
    id: int = role.id("key", generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Uncounted(Inbox, table="uncounted"):
    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


def test_a_delivery_needs_no_more_than_what_the_handler_reads() -> None:
    row = Jobs.stored(id=7, payload=b"x")
    made: Delivery[Any, Any] = delivery(attempt=2, row=row)
    assert (made.attempt, made.row, made.id) == (2, row, 7)
    assert made.queue.spec is Jobs.spec
    assert delivery().attempt == 1
    assert (delivery(row={"id": 3}).id, delivery(id=4, row=row).id) == (3, 4)


async def test_a_transactional_handler_is_given_the_tests_own_transaction(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    @subscriber(InboxQueue(Jobs, "q", bytes), transactional=True)
    async def handler(message: bytes, delivery: TransactionalDelivery[Jobs, bytes]) -> None:
        await delivery.tx.execute("INSERT INTO effects (n) VALUES ($1)", delivery.attempt)

    await inbox_database.execute("CREATE TABLE effects (n int)")
    async with inbox_database.transaction() as tx:
        made = delivery(handler.queue, b"x", attempt=3, tx=tx)
        await handler(b"x", made)
    assert await inbox_database.fetch_value("SELECT n FROM effects") == 3
    assert repr(made) == "<TransactionalDelivery 1 of 'q', attempt=3>"


def test_a_delivery_is_of_the_queue_that_is_given() -> None:
    made = delivery(InboxQueue(Jobs, "q", bytes), b"x", attempt=3)
    assert (made.message, made.attempt, made.queue.name) == (b"x", 3, "q")
    uncounted = delivery(InboxQueue(Uncounted, "q", bytes), b"x")
    with pytest.raises(DeclarationError, match="no attempt column"):
        _ = uncounted.attempt


async def test_a_delivery_made_by_hand_publishes_nothing(virtual_clock: VirtualClock) -> None:
    with pytest.raises(ClosedError, match="made by hand"):
        await delivery().publish("q", b"x")


async def test_a_handler_is_found_by_function_name_and_queue(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    time, data = {
        "sqlite": ("TEXT", "BLOB"),
        "postgres": ("timestamptz", "bytea"),
        "mysql": ("datetime(6)", "longblob"),
    }[inbox_database.dialect]
    await inbox_database.execute(
        f"CREATE TABLE jobs (id integer PRIMARY KEY, name text, lease {time}, body {data})"
    )
    spec = InboxSpec(
        "jobs",
        id=Column("id", type=int),
        group=Column("name"),
        locked_until=Column("lease"),
        payload=Column("body", type=bytes),
    )

    @subscriber(InboxQueue(spec, "first", bytes))
    async def render(message: bytes) -> None: ...

    def twin(name: str) -> Any:
        @subscriber(InboxQueue(spec, name, bytes))
        async def same(message: bytes) -> None: ...

        return same

    app = Service("service", Broker(inbox_database))
    for handler in (render, twin("second"), twin("third")):
        app.include(handler)
    async with TestApp(app) as kit:
        await kit.publish("first", b"x", id=1)
        for which in (render, "render", "first"):
            kit.subscriber(which).assert_called_with(b"x")
        with pytest.raises(LookupError, match="2 subscribers are called 'same'"):
            kit.subscriber("same")
        with pytest.raises(LookupError, match=r"no subscribers are called 'rendr'; .*'render' of"):
            kit.subscriber("rendr")
