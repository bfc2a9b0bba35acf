"""Order: priorities, due times, partition keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    KEYED,
    MINUTE,
    SECOND,
    Handler,
    Job,
    Keyed,
    Work,
    another,
    create,
    observed,
    put,
    serve,
    table,
)

from inboxkit import Database, insert_rows
from inboxkit_testing import TestApp, VirtualClock


async def test_smaller_priorities_go_first_then_earlier_due_times_then_ids(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    early = virtual_clock.start - HOUR
    await put(inbox_database, JOBS, 1, priority=9)
    await put(inbox_database, JOBS, 2, 3, priority=5)
    await put(inbox_database, JOBS, 4, priority=5, retry_after=early)
    await put(inbox_database, JOBS, 5, priority=-1)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)):
        assert handler.numbers == [5, 4, 2, 3, 1]


async def test_an_urgent_row_overtakes_those_that_wait(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)
    handler = Handler(2)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.publish(JOBS, Work(9), priority=0)
        await app.advance(10 * SECOND)
        assert handler.numbers == [1, 9, 2, 3]


@pytest.mark.parametrize("way", ["publish", "insert"])
async def test_a_later_row_is_woken_at_its_very_instant(
    inbox_database: Database, virtual_clock: VirtualClock, way: str
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler, poll_interval=HOUR)) as app:
        due = virtual_clock.now() + timedelta(seconds=90.5)
        if way == "publish":
            await app.publish(JOBS, Work(1), retry_after=due)
        else:
            async with inbox_database.transaction() as tx:
                await insert_rows(tx, Job.of(Work(1), name="jobs", retry_after=due))
        await app.advance(2 * MINUTE)
        assert handler.times == [90.5]


async def test_a_later_row_of_another_process_is_found_by_the_poll(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    app = serve(inbox_database, JOBS, handler, poll_interval=10 * SECOND)
    async with another(inbox_database) as other, TestApp(app) as running:
        await put(other, JOBS, 1, retry_after=virtual_clock.now() + 15 * SECOND)
        await running.advance(MINUTE)
        assert 15 <= handler.times[0] <= 25


async def test_a_row_that_is_due_now_is_due(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """Equality counts, for due times and for leases."""
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, retry_after=frozen_clock.now())
    await inbox_database.execute(
        "UPDATE jobs SET locked_until = $1 WHERE id = 2", frozen_clock.now()
    )
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)):
        assert handler.numbers == [1, 2]


async def test_more_due_times_than_are_remembered_are_still_met(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inboxkit._runtime import waking

    monkeypatch.setattr(waking, "_MOST_DUE_TIMES", 3)
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler, poll_interval=HOUR)) as app:
        now = virtual_clock.now()
        for seconds in (50, 40, 30, 20, 10):
            await app.publish(JOBS, Work(seconds), retry_after=now + seconds * SECOND)
        await app.advance(15 * SECOND)
        assert handler.numbers == [10]
        await app.advance(2 * HOUR)
        assert sorted(handler.numbers) == [10, 20, 30, 40, 50]


async def test_one_key_is_handled_in_order_and_keys_side_by_side(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    async with inbox_database.transaction() as tx:
        rows = [Keyed.of(Work(n), account=f"account {n % 5}") for n in range(40)]
        await insert_rows(tx, *rows)
    handler = Handler(1)
    async with TestApp(serve(inbox_database, KEYED, handler, workers_by_key=4)) as app:
        await app.advance(60 * SECOND)
        assert sorted(handler.numbers) == list(range(40))
        assert 2 <= handler.most <= 4
        for key in range(5):
            mine = [n for n in handler.numbers if n % 5 == key]
            assert mine == sorted(mine)
    by_time: dict[float, set[int]] = {}
    for run in handler.runs:
        keys = by_time.setdefault(run.at, set())
        assert run.n % 5 not in keys
        keys.add(run.n % 5)


async def test_at_most_four_rows_a_keyed_worker_are_in_work(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    async with inbox_database.transaction() as tx:
        await insert_rows(tx, *(Keyed.of(Work(n), account="one") for n in range(30)))
    handler = Handler(10)
    async with TestApp(serve(inbox_database, KEYED, handler, workers_by_key=2)) as app:
        leased = "SELECT count(*) FROM keyed_jobs WHERE locked_until IS NOT NULL"
        assert await inbox_database.fetch_value(leased) == 8
        await app.advance(25 * SECOND)
        assert await inbox_database.fetch_value(leased) == 8
        assert handler.numbers == [0, 1, 2]
        assert handler.most == 1


async def test_rows_queued_at_a_keyed_worker_are_renewed(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    async with inbox_database.transaction() as tx:
        await insert_rows(tx, *(Keyed.of(Work(n), account="one") for n in range(4)))
    handler = Handler(50)
    async with TestApp(serve(inbox_database, KEYED, handler, workers_by_key=1)) as app:
        await app.advance(210 * SECOND)
        assert handler.numbers == [0, 1, 2, 3]
        assert handler.attempts == [1, 1, 1, 1]


async def test_rows_queued_at_a_keyed_worker_go_back_at_a_stop(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Keyed)
    async with inbox_database.transaction() as tx:
        await insert_rows(tx, *(Keyed.of(Work(n), account="one") for n in range(4)))
    handler = Handler(20)
    app = serve(inbox_database, KEYED, handler, workers_by_key=1, lease=10 * MINUTE)
    async with app.running() as handle:
        await virtual_clock.advance(SECOND)
        handle.stop()
        await virtual_clock.settle()
        rows = await table(inbox_database, Keyed, "attempt", "locked_until")
        assert rows[1:] == [(1, None)] * 3
        assert rows[0][0] == 2
    assert handler.ended == [0]
    assert len(await table(inbox_database, Keyed)) == 3
    assert observed(inbox_database)
    assert virtual_clock.monotonic() == 20


async def test_a_key_is_always_at_the_same_worker_whatever_its_type(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    from inboxkit._runtime.workers import _lane

    keys: list[Any] = ["a", "", None, b"x", 7, "\ud800"]
    assert [_lane(key, 7) for key in keys] == [_lane(key, 7) for key in keys]
    assert all(0 <= _lane(key, 7) < 7 for key in keys)
