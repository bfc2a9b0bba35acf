"""Unique while pending and unique for ever: what a duplicate gets, and when the next may come."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import anyio
import pytest
from unique import (
    REFRESHES,
    WELCOMES,
    Customer,
    RefreshProfile,
    Welcome,
    ask_for_refresh,
    create_schema,
    refresh,
    service,
    welcome,
    welcome_once,
)

from inboxkit import Broker, ConstraintError, Database, Service, subscriber
from inboxkit_testing import TestApp, VirtualClock

ANN, BOB = Customer(1), Customer(2)
SECOND = timedelta(seconds=1)


async def ask(db: Database, customer: Customer) -> bool:
    async with db.transaction() as tx:
        return await ask_for_refresh(tx, customer)


async def test_a_job_that_waits_is_not_added_again(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await create_schema(db)
    assert [await ask(db, one) for one in (ANN, ANN, BOB)] == [True, False, True]
    async with TestApp(service(db)) as app:
        await app.advance(SECOND)
        assert [row.processed_at is not None for row in await app.rows(RefreshProfile)] == [
            True
        ] * 2
        # Both are finished, and stay; the next may come.
        assert [await ask(db, one) for one in (ANN, BOB)] == [True, True]
        assert len(await app.rows(RefreshProfile)) == 4
        await app.settle()
        app.subscriber(refresh).assert_called_with(ANN, BOB, ANN, BOB)


async def test_a_row_in_work_counts_as_pending(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await create_schema(db)
    answers: list[bool] = []

    async def asked_meanwhile(customer: Customer) -> None:
        answers.append(await ask(db, customer))

    app = Service("unique", Broker(db))
    app.include(subscriber(REFRESHES)(asked_meanwhile))
    await ask(db, ANN)
    async with TestApp(app) as kit:
        await kit.advance(SECOND)
    assert answers == [False]
    assert await ask(db, ANN)


async def test_a_customer_is_welcomed_once_for_ever(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    async with TestApp(service(db)) as app:
        for expected in ([ANN, BOB], []):
            async with db.transaction() as tx:
                assert await welcome_once(tx, ANN, BOB, ANN) == expected
            await app.advance(SECOND)
        app.subscriber(welcome).assert_called_with(ANN, BOB)
        assert all(row.processed_at is not None for row in await app.rows(Welcome))


async def test_of_many_who_ask_at_once_one_is_heard(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await create_schema(db)
    answers: list[bool] = []

    async def one() -> None:
        answers.append(await ask(db, ANN))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(one)
    assert sorted(answers) == [False] * 5 + [True]


async def test_what_is_rolled_back_was_never_there(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    await create_schema(db)
    with suppress(LookupError):
        async with db.transaction() as tx:
            assert await ask_for_refresh(tx, ANN)
            raise LookupError
    assert await ask(db, ANN)
    async with db.transaction() as tx:
        with suppress(LookupError):
            async with tx.transaction() as nested:
                assert await ask_for_refresh(nested, BOB)
                raise LookupError
        assert await ask_for_refresh(tx, BOB)


async def test_publish_raises_where_a_row_is_refused(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    db = inbox_database
    async with TestApp(service(db)) as app:
        await app.publish(WELCOMES, ANN, customer=ANN.number)
        with pytest.raises(ConstraintError):
            await app.publish(WELCOMES, ANN, customer=ANN.number)
        assert len(await app.rows(Welcome)) == 1
