"""Enqueue in the order's transaction, later, by priority: the guide's cases and what it says."""

from __future__ import annotations

import json
from datetime import timedelta

import anyio
import pytest
import shop
from shop import (
    CHECKOUTS,
    EMAILS,
    ROUTINE,
    URGENT,
    Email,
    Order,
    PlaceOrder,
    SendEmail,
    checkout,
    confirmation,
    place_order,
    review,
    send,
    service,
)

from inboxkit import Broker, ConstraintError, Database, Service, insert_rows
from inboxkit_testing import TestApp, VirtualClock

ORDER = Order(1001, "ann@example.com")
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


# Tests that pass days look at their tables each ten minutes: due times that this process knows are
# met to the second all the same.
TEN_MINUTES = timedelta(minutes=10)


async def test_an_order_is_confirmed_at_once_and_its_reminder_waits(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    async with TestApp(service(inbox_database, TEN_MINUTES)) as app:
        await app.publish(CHECKOUTS, ORDER)
        await app.advance(2 * SECOND)
        orders = await inbox_database.fetch("SELECT id, email FROM orders")
        assert [tuple(row) for row in orders] == [(ORDER.id, ORDER.email)]
        assert await app.rows(PlaceOrder) == []
        confirmed, reminder = await app.rows(SendEmail)
        assert confirmed.processed_at == start
        assert reminder.processed_at is None
        assert reminder.retry_after == start + 3 * DAY
        app.subscriber(send).assert_called_with(confirmation(ORDER))

        await app.advance(3 * DAY - 3 * SECOND)
        assert len(app.subscriber(send).calls) == 1
        await app.advance(2 * SECOND)
        app.subscriber(send).assert_called_with(confirmation(ORDER), review(ORDER))
        assert (await app.rows(SendEmail))[1].processed_at == start + 3 * DAY


async def test_an_order_checked_out_twice_is_placed_once(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.publish(CHECKOUTS, ORDER)
        await app.publish(CHECKOUTS, ORDER)
        assert len(app.subscriber(checkout).calls) == 2
        assert len(await app.rows(SendEmail)) == 2
        assert await app.rows(PlaceOrder) == []
    (warning,) = [r.getMessage() for r in caplog.records if "placed before" in r.getMessage()]
    assert "'checkout'" in warning


async def test_an_outage_is_not_taken_for_a_doubled_order(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await inbox_database.execute("ALTER TABLE orders RENAME TO orders_away")
        await app.publish(CHECKOUTS, ORDER)
        assert app.outcomes == []
        await inbox_database.execute("ALTER TABLE orders_away RENAME TO orders")
        await app.advance(5 * SECOND)
        assert await inbox_database.fetch_value("SELECT count(*) FROM orders") == 1
        assert len(await app.rows(SendEmail)) == 2


async def test_the_urgent_mail_goes_first(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await shop.create_schema(inbox_database)
    routine, urgent = Email("a@example.com", "routine"), Email("b@example.com", "urgent")
    async with inbox_database.transaction() as tx:
        await insert_rows(
            tx, SendEmail.of(routine, priority=ROUTINE), SendEmail.of(urgent, priority=URGENT)
        )
    app = Service("shop", Broker(inbox_database))
    app.include(send)  # one worker
    async with TestApp(app) as running:
        running.subscriber(send).assert_called_with(urgent, routine)


async def test_mails_of_an_order_are_sent_at_its_commit(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await place_order(inbox_database, ORDER)
        await app.settle()  # no poll has come since
        app.subscriber(send).assert_called_with(confirmation(ORDER))


async def test_rows_of_raw_sql_wait_for_the_poll(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        payload = SendEmail.of(confirmation(ORDER)).payload
        await inbox_database.execute(
            "INSERT INTO email_jobs (priority, payload) VALUES ($1, $2)", ROUTINE, payload
        )
        await app.settle()
        app.subscriber(send).assert_not_called()
        await app.advance(SECOND)
        app.subscriber(send).assert_called_with(confirmation(ORDER))


async def test_a_published_checkout_is_handled_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.publish(CHECKOUTS, ORDER)
        app.subscriber(checkout).assert_called_once()


async def test_a_failed_insert_leaves_neither_order_nor_mail(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await shop.create_schema(inbox_database)
    broken = SendEmail.of(review(ORDER), priority=None)  # type: ignore[arg-type]

    async def order_with_broken_mail() -> None:
        async with inbox_database.transaction() as tx:
            await tx.execute("INSERT INTO orders (id, email) VALUES ($1, $2)", 1, "a@example.com")
            await insert_rows(tx, SendEmail.of(confirmation(ORDER)), broken)

    with pytest.raises(ConstraintError):
        await order_with_broken_mail()
    assert await inbox_database.fetch_value("SELECT count(*) FROM orders") == 0
    assert await inbox_database.fetch_value("SELECT count(*) FROM email_jobs") == 0
    await place_order(inbox_database, ORDER)
    with pytest.raises(ConstraintError):
        await place_order(inbox_database, ORDER)
    assert await inbox_database.fetch_value("SELECT count(*) FROM orders") == 1
    assert await inbox_database.fetch_value("SELECT count(*) FROM email_jobs") == 2


async def test_a_later_mail_is_sent_when_it_is_due_whatever_the_poll(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    start = virtual_clock.now()
    async with TestApp(service(inbox_database, TEN_MINUTES)) as app:
        mail = Email("a@example.com", "later")
        await app.publish(EMAILS, mail, retry_after=start + timedelta(minutes=3))
        await app.advance(timedelta(minutes=4))
        (row,) = await app.rows(SendEmail)
        assert row.processed_at == start + timedelta(minutes=3)


async def test_finished_rows_stay_for_audit(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, Email("a@example.com", "hello"))
        (row,) = await app.rows(SendEmail)
        assert json.loads(row.payload) == {"to": "a@example.com", "subject": "hello"}
        assert row.locked_until is None
        assert await app.pending(SendEmail) == []
        await app.advance(timedelta(minutes=1))
        app.subscriber(send).assert_called_once()


async def test_four_mails_are_sent_at_a_time(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = 0
    most: list[int] = []

    async def deliver(email: Email) -> None:
        nonlocal at_once
        at_once += 1
        most.append(at_once)
        await anyio.sleep(1)
        at_once -= 1

    monkeypatch.setattr(shop, "deliver", deliver)
    async with TestApp(service(inbox_database)) as app:
        for number in range(12):
            await app.broker.publish(EMAILS, Email("a@example.com", str(number)))
        await app.advance(timedelta(minutes=1))
        assert len(app.subscriber(send).calls) == 12
    assert max(most) == 4
