"""The advisory lock form through a service, on every database, in virtual time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import pytest
from database_cells import everywhere
from runtime_kit import (
    HOUR,
    MINUTE,
    SECOND,
    Handler,
    Work,
    another,
    count,
    create,
    killed,
    put,
    serve,
    table,
    warnings,
)
from server_kit import kill, lock_holders, refuse

from inboxkit import (
    Database,
    Inbox,
    InboxQueue,
    LeaseLostError,
    ack,
    drop,
    events,
    retry,
    retry_after,
    role,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock

pytestmark = everywhere


class Mail(Inbox, table="keyed_mails", advisory_lock="keyed_mails-{id}"):
    """Everything but keys of another column."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Plain(Inbox, table="keyed_plain", advisory_lock="keyed_plain-{id}"):
    """No due times."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class DeadPlain(Plain, table="keyed_dead", advisory_lock="keyed_dead-{id}"):
    """Where the dead letters of `Plain` go."""


class Posting(Inbox, table="keyed_postings", advisory_lock="account-{account}"):
    """Rows of one account are in work one at a time."""

    id: int = role.id(generated=True)
    account: str | None = role.column(default=None)
    payload: bytes = role.payload()


MAILS = InboxQueue(Mail, "mails", Work)
DEAD = InboxQueue(Mail, "mails.dead", Work)
PLAIN = InboxQueue(Plain, "plain", Work)
POSTINGS = InboxQueue(Posting, "postings", Work)


async def test_the_outcomes_and_what_they_leave(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Mail)
    handler = Handler(retry(), retry_after(HOUR), ValueError("no"), drop("enough"), None)
    async with TestApp(serve(inbox_database, MAILS, handler, poll_interval=HOUR)) as app:
        await app.publish(MAILS, Work(1))
        assert handler.times == [0, 0], "an immediate retry waits for no poll"
        assert await table(inbox_database, Mail) == [(1, 3)]
        await app.advance(HOUR)
        assert (handler.attempts, handler.times[2]) == ([1, 2, 3], 3600)
        await app.advance(MINUTE)
        assert handler.attempts == [1, 2, 3, 4], "the back-off of an exception"
        assert await count(inbox_database, Mail) == 0
        await app.publish(MAILS, Work(2))
        assert handler.runs[-1].n == 2
        assert await count(inbox_database, Mail) == 0
    assert await lock_holders(inbox_database) == []
    assert [event.attempt for event in timeline.of(events.Claimed)] == [1, 2, 3, 4, 1]  # type: ignore[attr-defined]


async def test_a_row_is_in_work_for_as_long_as_its_handler_takes(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, *range(6))
    handler = Handler(300)
    async with (
        another(inbox_database) as other,
        serve(inbox_database, MAILS, handler, workers=2).running(),
        serve(other, MAILS, handler).running(),
    ):
        await virtual_clock.advance(MINUTE)
        assert sorted(handler.numbers) == [0, 1, 2]
        await virtual_clock.advance(10 * MINUTE)
    assert sorted(handler.numbers) == [0, 1, 2, 3, 4, 5]
    assert (handler.most, handler.attempts) == (3, [1] * 6)
    assert await count(inbox_database, Mail) == 0


async def test_one_row_of_a_key_is_in_work_over_two_services(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Posting)
    for n in range(12):
        await put(inbox_database, POSTINGS, n, account=["a", "b", None][n % 3])
    in_work: list[int] = []

    async def answer(delivery: Any) -> Any:
        account = delivery.message.n % 3
        assert account not in in_work
        in_work.append(account)
        await anyio.sleep(10)
        in_work.remove(account)
        return ack()

    handler = Handler(answer)
    async with (
        another(inbox_database) as other,
        serve(inbox_database, POSTINGS, handler, workers=3).running(),
        serve(other, POSTINGS, handler, workers=3).running(),
    ):
        await virtual_clock.advance(50 * SECOND)
    assert handler.most == 3
    assert [n for n in handler.numbers if n % 3 == 0] == [0, 3, 6, 9]
    assert await count(inbox_database, Posting) == 0


async def test_a_crash_gives_the_row_back_at_once_and_counts(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1)
    for _ in range(3):
        victim = another(inbox_database)
        async with victim, killed(serve(victim, MAILS, Handler(HOUR.total_seconds()))):
            await virtual_clock.advance(SECOND)
    handler, dead = Handler(), Handler(by={1: HOUR.total_seconds()})
    app = serve(inbox_database, MAILS, handler, max_attempts=3, dead_letter="mails.dead")
    async with TestApp(app) as test:
        await test.settle()
        assert handler.runs == [], "past its cap: to the dead letter, without its handler"
        assert await table(inbox_database, Mail, "id", "name", "attempt") == [(1, "mails.dead", 4)]
    async with TestApp(serve(inbox_database, DEAD, dead)) as test:
        await test.settle()
        assert dead.attempts == [4]


async def test_a_killed_session_loses_its_row(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    if inbox_database.dialect == "sqlite":
        pytest.skip("no session holds the row")
    await create(inbox_database, Mail)
    seen: list[Any] = []

    async def watch(delivery: Any, call_next: Any) -> Any:
        try:
            return await call_next(delivery)
        except LeaseLostError as error:
            seen.append((error.id, delivery.lost.is_set()))
            raise

    handler = Handler(300)
    app = serve(inbox_database, MAILS, handler, poll_interval=HOUR)
    app.use(watch)
    async with TestApp(app) as test:
        await test.publish(MAILS, Work(1))
        await test.advance(MINUTE)
        held_by = await lock_holders(inbox_database)
        assert len(held_by) == 1
        await kill(inbox_database, held_by)
        await test.advance(3 * SECOND)
        assert seen == [(1, True)]
        assert handler.cancelled[0][1] <= 62
        assert handler.attempts == [1, 2], "back at once, and counted"
        await test.advance(5 * MINUTE)
        assert await count(inbox_database, Mail) == 0
    assert len(timeline.of(events.Lost)) == 1


@pytest.mark.parametrize("how", ["drain", "cancel", "stop"])
async def test_stops_settle_or_give_the_attempt_back(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, how: str
) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1, 2, 3)
    drain = (5 if how == "stop" else 30) * SECOND
    app = serve(inbox_database, MAILS, Handler(20), workers=2, drain_timeout=drain)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        assert await table(inbox_database, Mail) == [(1, 2), (2, 2), (3, 1)]
        if how == "cancel":
            handle.cancel()
        else:
            handle.stop()
    left = [(3, 1)] if how == "drain" else [(1, 1), (2, 1), (3, 1)]
    assert await table(inbox_database, Mail) == left
    given = [event.given_back for event in timeline.of(events.Released)]  # type: ignore[attr-defined]
    assert given == ([] if how == "drain" else [True, True])
    assert await lock_holders(inbox_database) == []
    assert inbox_database._pool is not None
    assert inbox_database._pool.in_use == 0
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler)) as test:
        await test.settle()
        assert handler.attempts == [1] * len(left)


async def test_a_failing_row_does_not_spin(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain, DeadPlain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler(ValueError("no"))
    app = serve(inbox_database, PLAIN, handler, workers=4, max_attempts=4, dead_letter="keyed_dead")
    async with TestApp(app) as test:
        await test.advance(MINUTE)
    assert handler.attempts == [1, 2, 3, 4]
    waits = [later - one for one, later in zip(handler.times, handler.times[1:], strict=False)]
    assert all(wait >= 0.9 for wait in waits), waits
    assert await table(inbox_database, DeadPlain) == [(1, 5)]


async def test_a_settlement_that_fails_gives_the_row_back_after_a_second(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Mail)
    (id,) = await put(inbox_database, MAILS, 1)
    await refuse(inbox_database, Mail, id)
    handler = Handler()
    async with TestApp(serve(inbox_database, MAILS, handler)) as test:
        await test.advance(3.5 * SECOND)
    assert 3 <= len(handler.runs) <= 4
    assert handler.attempts == [*range(1, len(handler.runs) + 1)]
    assert warnings(caplog, "could not be settled")
