"""Retry now, retry later, give up, dead letters: the guide's cases and what it says."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import mailer
import pytest
from mailer import (
    DEAD,
    EMAILS,
    Busy,
    Delivered,
    Mail,
    Rejected,
    SendMail,
    Unavailable,
    create_schema,
    review,
    send,
    service,
)

from inboxkit import (
    Broker,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    drop,
    retry_after,
    role,
    subscriber,
)
from inboxkit_testing import TestApp, VirtualClock

SECOND = timedelta(seconds=1)
MAIL = Mail("ann@example.com", "hello")

Answers = Callable[..., list[timedelta]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock) -> Answers:
    """Lets the provider answer so, the last answer for ever; returns when it was asked."""

    def script(*kinds: type[Any]) -> list[timedelta]:
        asked: list[timedelta] = []
        left = list(kinds)
        start = virtual_clock.now()

        async def deliver(mail: Mail) -> Any:
            asked.append(virtual_clock.now() - start)
            return (left.pop(0) if len(left) > 1 else left[0])()

        monkeypatch.setattr(mailer, "deliver", deliver)
        return asked

    return script


async def test_a_rejected_mail_is_dropped_at_once(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    answers: Answers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers(Rejected)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        assert await app.rows(SendMail) == []
        assert app.outcomes == [drop("address rejected")]
    assert "address rejected" in caplog.text


async def test_an_unavailable_provider_is_tried_again_at_once(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    asked = answers(Unavailable, Delivered)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        assert [run.attempt for run in app.subscriber(send).runs] == [1, 2]
        assert asked == [timedelta(0), timedelta(0)]
        assert await app.rows(SendMail) == []


async def test_a_busy_provider_gets_its_pause(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    asked = answers(Busy, Busy, Busy, Delivered)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        await app.advance(timedelta(minutes=1))
        assert [run.attempt for run in app.subscriber(send).runs] == [1, 2, 3, 4]
        # 1 s, then 2 s, then 3 s after the attempt before: on time, not at the next poll.
        assert asked == [n * SECOND for n in (0, 1, 3, 6)]


async def test_a_mail_that_always_fails_is_parked_and_reviewed(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    answers: Answers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers(Unavailable)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        assert [run.attempt for run in app.subscriber(send).runs] == [1, 2, 3, 4, 5]
        app.subscriber(review).assert_called_with(MAIL)
        assert [run.attempt for run in app.subscriber(review).runs] == [6]
        assert await app.rows(SendMail) == []
    assert "it arrived here as attempt 6" in caplog.text


async def test_a_dead_letter_keeps_its_payload_and_its_count(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    answers(Unavailable)
    app = Service("mailer", Broker(inbox_database))  # nobody reviews here
    app.on_startup(create_schema)
    app.include(send, max_attempts=5, dead_letter="emails.dead")
    async with TestApp(app) as running:
        await running.publish(EMAILS, MAIL)
        (row,) = await running.dead(SendMail)
        assert (row.name, row.attempt, row.locked_until) == ("emails.dead", 6, None)
        assert json.loads(row.payload) == {"to": MAIL.to, "text": MAIL.text}
        assert await running.pending(SendMail) == []


async def test_delayed_retries_count_to_the_cap_alike(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    asked = answers(Busy)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        await app.advance(timedelta(minutes=1))
        assert asked == [n * SECOND for n in (0, 1, 3, 6, 10)]
        app.subscriber(review).assert_called_once()


async def test_an_exception_counts_and_backs_off(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[datetime] = []

    async def deliver(mail: Mail) -> Any:
        asked.append(virtual_clock.now())
        raise ConnectionError("no route to host")

    monkeypatch.setattr(mailer, "deliver", deliver)
    async with TestApp(service(inbox_database)) as app:
        await app.publish(EMAILS, MAIL)
        await app.advance(timedelta(minutes=2))
        assert [run.attempt for run in app.subscriber(send).runs] == [1, 2, 3, 4, 5]
        app.subscriber(review).assert_called_once()
    waits = [(later - before) / SECOND for before, later in itertools.pairwise(asked)]
    for wait, exact in zip(waits, (1, 2, 4, 8), strict=True):
        assert 0.9 * exact <= wait <= 1.1 * exact


async def test_a_payload_that_cannot_be_read_is_never_lost(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create_schema(inbox_database)
    await inbox_database.execute(
        "INSERT INTO mail_jobs (name, payload) VALUES ('emails', $1)", b'{"to": 7}'
    )
    app = Service("mailer", Broker(inbox_database))
    app.include(send, max_attempts=2, dead_letter="emails.dead")
    async with TestApp(app) as running:
        await running.advance(timedelta(minutes=1))
        running.subscriber(send).assert_not_called()
        (row,) = await running.dead(SendMail)
        assert (row.attempt, row.payload) == (3, b'{"to": 7}')


@pytest.mark.parametrize(
    "half", [{"max_attempts": 5}, {"dead_letter": "emails.dead"}], ids=["cap", "dead letter"]
)
async def test_half_a_pair_is_refused_at_include(
    inbox_database: Database, virtual_clock: VirtualClock, half: dict[str, Any]
) -> None:
    missing = "dead_letter" if "max_attempts" in half else "max_attempts"
    with pytest.raises(DeclarationError, match=f"come together; {missing} is missing"):
        Service("mailer", Broker(inbox_database)).include(send, **half)


async def test_delayed_rows_survive_a_restart(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    asked = answers(Busy, Delivered)
    async with TestApp(service(inbox_database)) as first:
        await first.publish(EMAILS, MAIL)
        await first.publish(
            EMAILS, Mail("bob@example.com", "later"), retry_after=in_a_minute(first)
        )
    async with TestApp(service(inbox_database)) as second:
        # The new process does not know the due times: its poll finds them, within a second.
        await second.advance(2 * SECOND)
        assert asked[0] == timedelta(0)
        assert SECOND <= asked[1] <= 2 * SECOND
        await second.advance(timedelta(minutes=1))
        assert timedelta(minutes=1) <= asked[2] <= timedelta(minutes=1) + SECOND
        assert await second.rows(SendMail) == []


def in_a_minute(app: TestApp) -> datetime:
    return app.database.clock.now() + timedelta(minutes=1)


async def test_the_operators_update_brings_dead_rows_back(
    inbox_database: Database, virtual_clock: VirtualClock, answers: Answers
) -> None:
    answers(*[Unavailable] * 5, Delivered)
    app = Service("mailer", Broker(inbox_database))
    app.on_startup(create_schema)
    app.include(send, max_attempts=5, dead_letter="emails.dead")
    async with TestApp(app) as running:
        await running.publish(EMAILS, MAIL)
        await inbox_database.execute(
            "UPDATE mail_jobs SET name = 'emails', attempt = 1, locked_until = NULL "
            "WHERE name = 'emails.dead'"
        )
        await running.advance(2 * SECOND)
        assert [run.attempt for run in running.subscriber(send).runs] == [1, 2, 3, 4, 5, 1]
        assert await running.rows(SendMail) == []


class SendPlain(Inbox, table="plain_jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


PLAIN = InboxQueue(SendPlain, "plain", Mail)


@subscriber(PLAIN)
async def later(mail: Mail, delivery: Delivery) -> Outcome | None:
    return retry_after(timedelta(hours=1)) if delivery.attempt < 4 else None


async def test_without_the_column_a_delayed_retry_comes_back_at_once(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    columns = mailer.SCHEMA[inbox_database.dialect][0].replace("mail_jobs", "plain_jobs")
    lines = [line for line in columns.splitlines() if " name " not in line and "retry" not in line]
    app = Service("mailer", Broker(inbox_database))

    async def create(db: Database) -> None:
        await db.execute(re.sub(r",(\s*\))$", r"\1", "\n".join(lines)))

    app.on_startup(create)
    app.include(later)
    async with TestApp(app) as running:
        await running.publish(PLAIN, MAIL)
        assert [run.attempt for run in running.subscriber(later).runs] == [1, 2, 3, 4]
    warnings = [r for r in caplog.records if "needs a retry_after column" in r.getMessage()]
    assert len(warnings) == 1


async def test_the_dead_letter_group_is_an_ordinary_queue(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        await app.publish(DEAD, MAIL)
        app.subscriber(review).assert_called_with(MAIL)
