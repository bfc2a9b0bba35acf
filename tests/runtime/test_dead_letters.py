"""Caps and dead letters: moved at the settlement or at the claim, to a group or to a table."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from database_cells import everywhere
from runtime_kit import (
    DEAD,
    HOUR,
    JOBS,
    MINUTE,
    PLAIN,
    SECOND,
    DeadPlain,
    Handler,
    Job,
    Plain,
    Work,
    another,
    count,
    create,
    killed,
    observed,
    put,
    serve,
    table,
    warnings,
)

from inboxkit import Backoff, Broker, Database, InboxQueue, Service, drop, events, retry, subscriber
from inboxkit import retry_after as later
from inboxkit_testing import TestApp, Timeline, VirtualClock

DEAD_PLAIN = InboxQueue(DeadPlain, "dead-plain", Work)
TO_GROUP: dict[str, Any] = {"max_attempts": 2, "dead_letter": "jobs.dead"}
TO_TABLE: dict[str, Any] = {"max_attempts": 2, "dead_letter": "dead_plain_jobs"}
FAST = Backoff.fixed(SECOND)


@everywhere
@pytest.mark.parametrize(
    "answer", [retry(), later(SECOND), ValueError("no")], ids=["retry", "later", "error"]
)
@pytest.mark.parametrize("where", ["group", "table"])
async def test_the_last_attempt_goes_to_the_dead_letter(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
    where: str,
    answer: Any,
) -> None:
    await create(inbox_database, Job, Plain, DeadPlain)
    queue: InboxQueue[Any, Any] = JOBS if where == "group" else PLAIN
    settings = TO_GROUP if where == "group" else TO_TABLE
    dead_kind = Job if where == "group" else DeadPlain
    await put(inbox_database, queue, 1)
    handler = Handler(answer)
    async with TestApp(serve(inbox_database, queue, handler, on_error=FAST, **settings)) as app:
        await app.advance(5 * SECOND)
        assert handler.attempts == [1, 2]
        (dead,) = await app.dead(dead_kind)
        assert (dead.attempt, dead.locked_until) == (3, None)
        assert dead.payload == b'{"n":1}'
        if where == "table":
            assert await count(inbox_database, Plain) == 0
    (event,) = timeline.of(events.DeadLettered)
    assert (event.attempt, event.destination) == (2, settings["dead_letter"])  # type: ignore[attr-defined]
    (warning,) = warnings(caplog, "dead letter")
    assert "row 1" in warning
    assert "attempt 2" in warning
    assert settings["dead_letter"] in warning


@pytest.mark.parametrize("answer", [None, drop("no")], ids=["ack", "drop"])
async def test_what_is_finished_never_moves(
    inbox_database: Database, virtual_clock: VirtualClock, answer: Any
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    async with TestApp(serve(inbox_database, JOBS, Handler(retry(), answer), **TO_GROUP)) as app:
        await app.advance(5 * SECOND)
        assert await app.rows(Job) == []


async def test_with_a_cap_of_one_every_failure_moves(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)
    handler = Handler(by={1: retry(), 2: ValueError("no"), 3: later(HOUR)})
    app = serve(inbox_database, JOBS, handler, max_attempts=1, dead_letter=DEAD)
    async with TestApp(app) as running:
        assert [row.attempt for row in await running.dead(Job)] == [2, 2, 2]


@pytest.mark.parametrize("where", ["group", "table"])
async def test_the_reader_of_the_dead_letters_is_woken(
    inbox_database: Database, frozen_clock: VirtualClock, where: str
) -> None:
    await create(inbox_database, Job, Plain, DeadPlain)
    review = Handler()
    app = Service("service", Broker(inbox_database))
    queue: InboxQueue[Any, Any] = JOBS if where == "group" else PLAIN
    settings = TO_GROUP if where == "group" else TO_TABLE
    app.include(subscriber(queue)(Handler(retry())), **settings)  # type: ignore[arg-type]
    app.include(subscriber(DEAD if where == "group" else DEAD_PLAIN)(review))  # type: ignore[arg-type]
    async with TestApp(app) as running:
        await running.publish(queue, Work(1))
        assert review.attempts == [3]
        assert await count(inbox_database, DeadPlain if where == "table" else Job) == 0


@everywhere
async def test_the_row_that_a_crash_spent_moves_without_its_handler(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """A handler that always kills its process: 1, 2, 3, and then the claim moves the row."""
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 0, 1)
    handler = Handler(by={0: 1000})
    settings: dict[str, Any] = {"max_attempts": 3, "dead_letter": "jobs.dead", "workers": 2}
    for number in range(5):
        database = another(inbox_database, str(number))
        async with database:
            with suppress(Exception):
                async with killed(serve(database, JOBS, handler, lease=5 * SECOND, **settings)):
                    await virtual_clock.advance(SECOND)
        await virtual_clock.advance(10 * SECOND)
    assert [run.attempt for run in handler.runs if run.n == 0] == [1, 2, 3]
    assert [run.attempt for run in handler.runs if run.n == 1] == [1]
    assert await table(inbox_database, Job, "name", "attempt") == [("jobs.dead", 4)]
    (event,) = timeline.of(events.DeadLettered)
    assert event.attempt == 4  # type: ignore[attr-defined]


async def test_spent_rows_need_no_worker_and_no_middleware(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(6))
    await inbox_database.execute("UPDATE jobs SET attempt = 9 WHERE id <= 5")
    handler = Handler()
    seen: list[Any] = []

    async def watch(delivery: Any, call_next: Any) -> Any:
        seen.append(delivery.id)
        return await call_next(delivery)

    app = serve(inbox_database, JOBS, handler, **TO_GROUP)
    app.use(watch)
    async with TestApp(app) as running:
        assert handler.numbers == [5]
        assert seen == [6]
        assert [row.attempt for row in await running.dead(Job)] == [9] * 5


async def test_a_row_at_the_columns_end_is_served_and_does_not_stop_the_others(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(3))
    await inbox_database.execute("UPDATE jobs SET attempt = 2147483647 WHERE id = 1")
    handler = Handler(retry(), None)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=3)):
        assert sorted(set(handler.numbers)) == [0, 1, 2]


async def unique(database: Database, kind: Any, *columns: str) -> None:
    """No two rows of one payload, and of these columns."""
    payload = "payload(99)" if database.dialect == "mysql" else "payload"
    keys = ", ".join((*columns, payload))
    await database.execute(f"CREATE UNIQUE INDEX once ON {kind.spec.table} ({keys})")


@pytest.mark.parametrize("spent", [False, True], ids=["at the settlement", "at the claim"])
async def test_a_move_that_the_dead_letter_table_refuses_leaves_only_that_row(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    spent: bool,
) -> None:
    await create(inbox_database, Plain, DeadPlain)
    await unique(inbox_database, DeadPlain)
    await inbox_database.execute("INSERT INTO dead_plain_jobs (payload) VALUES ($1)", b'{"n":1}')
    await put(inbox_database, PLAIN, *range(6))
    if spent:
        await inbox_database.execute("UPDATE plain_jobs SET attempt = 7 WHERE id = 2")
    handler = Handler(by={1: retry()})
    settings: dict[str, Any] = {"max_attempts": 1, "dead_letter": "dead_plain_jobs"}
    async with TestApp(serve(inbox_database, PLAIN, handler, **settings)) as app:
        await app.advance(5 * SECOND)
        assert sorted(handler.numbers) == ([0, 2, 3, 4, 5] if spent else [0, 1, 2, 3, 4, 5])
        assert [row[0] for row in await table(inbox_database, Plain)] == [2]
        before = len(observed(inbox_database).recording.transactions("settle"))
        await app.advance(5 * MINUTE)
        # At a bounded pace: once in each lease.
        moves = len(observed(inbox_database).recording.transactions("settle")) - before
        assert 5 <= moves <= 25
        assert handler.numbers.count(1) == (0 if spent else 1)
        await inbox_database.execute("DELETE FROM dead_plain_jobs")
        await app.advance(MINUTE)
        assert await count(inbox_database, Plain) == 0
        assert await count(inbox_database, DeadPlain) == 1
    assert len(warnings(caplog, "row 2 could not be settled")) >= 1


async def test_a_move_that_the_dead_group_refuses_leaves_only_that_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await unique(inbox_database, Job, "name")
    await put(inbox_database, DEAD, 3)
    await put(inbox_database, JOBS, *range(1, 6))
    handler = Handler(retry())
    settings: dict[str, Any] = {"max_attempts": 1, "dead_letter": "jobs.dead"}
    async with TestApp(serve(inbox_database, JOBS, handler, workers=5, **settings)) as app:
        await app.advance(2 * SECOND)
        assert len(await app.dead(Job)) == 5
        assert [row.payload for row in await app.pending(Job)] == [b'{"n":3}']


@everywhere
@pytest.mark.parametrize("where", ["group", "table"])
async def test_a_move_whose_answer_was_lost_happens_once(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, where: str
) -> None:
    await create(inbox_database, Job, Plain, DeadPlain)
    queue: InboxQueue[Any, Any] = JOBS if where == "group" else PLAIN
    settings = TO_GROUP if where == "group" else TO_TABLE
    await put(inbox_database, queue, 1)
    await inbox_database.execute(f"UPDATE {queue.spec.table} SET attempt = 2")
    observed(inbox_database).faults.lose_reply("settle")
    handler = Handler(retry())
    async with TestApp(serve(inbox_database, queue, handler, **settings)) as app:
        await app.advance(10 * SECOND)
        assert len(handler.runs) == 1
        assert len(await app.dead(Job if where == "group" else DeadPlain)) == 1
        assert await count(inbox_database, Plain) == 0
    assert timeline.of(events.Lost) == []


async def test_the_operators_requeue_brings_a_dead_row_back(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(retry(), retry(), None)
    async with TestApp(serve(inbox_database, JOBS, handler, **TO_GROUP)) as app:
        await inbox_database.execute(
            "UPDATE jobs SET name = 'jobs', attempt = 1, locked_until = NULL"
        )
        app.broker.wake(JOBS)
        await app.settle()
        assert handler.attempts == [1, 2, 1]
        assert await app.rows(Job) == []
