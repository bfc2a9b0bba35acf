"""Wakes: who hears of new rows at once, and who waits for a poll."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_kit import (
    DEAD,
    HOUR,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    another,
    count,
    create,
    observed,
    put,
    serve,
)

from inboxkit import (
    Broker,
    Database,
    NoRouteError,
    OutcomeUnknownError,
    Service,
    insert_rows,
    subscriber,
)
from inboxkit_testing import TestApp, VirtualClock


async def test_a_published_row_is_handled_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.publish(JOBS, Work(1))
        assert handler.numbers == [1]


@pytest.mark.parametrize("way", ["insert_rows", "publish"])
async def test_rows_of_a_transaction_are_handled_after_its_commit(
    inbox_database: Database, frozen_clock: VirtualClock, way: str
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        claims = len(observed(inbox_database).recording.transactions("claim"))
        async with inbox_database.transaction() as tx:
            if way == "publish":
                await app.broker.publish(JOBS, Work(1), within=tx)
            else:
                await insert_rows(tx, Job.of(Work(1), name="jobs"))
            await tx.fetch("SELECT 1")
            assert len(observed(inbox_database).recording.transactions("claim")) == claims
            assert handler.runs == []
        await app.settle()
        assert handler.numbers == [1]


@pytest.mark.parametrize("way", ["insert_rows", "publish"])
async def test_a_rollback_wakes_nobody_and_leaves_nothing(
    inbox_database: Database, frozen_clock: VirtualClock, way: str
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        claims = len(observed(inbox_database).recording.transactions("claim"))

        async def fail() -> None:
            async with inbox_database.transaction() as tx:
                if way == "publish":
                    await app.broker.publish(JOBS, Work(1), within=tx)
                else:
                    await insert_rows(tx, *(Job.of(Work(n), name="jobs") for n in range(3)))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        await app.settle()
        assert len(observed(inbox_database).recording.transactions("claim")) == claims
        assert await count(inbox_database, Job) == 0
        assert handler.runs == []


async def test_a_commit_whose_answer_was_lost_loses_no_row(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        observed(inbox_database).faults.lose_reply("commit")

        async def place() -> None:
            async with inbox_database.transaction() as tx:
                await app.broker.publish(JOBS, Work(1), within=tx)

        with pytest.raises(OutcomeUnknownError):
            await place()
        await app.advance(2 * SECOND)
        assert handler.numbers == [1]


async def test_a_wake_during_a_claim_is_kept(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """The row is committed while an empty claim is under way."""
    await create(inbox_database, Job)
    handler = Handler()
    async with TestApp(serve(inbox_database, JOBS, handler, poll_interval=30 * SECOND)) as app:
        observed(inbox_database).faults.delay("claim", 2)
        app.broker.wake(JOBS)
        await app.advance(SECOND)
        # As if its claim had looked already: the row is put behind a due time that comes later.
        await app.broker.publish(
            JOBS, Work(1), retry_after=virtual_clock.now() + SECOND + SECOND / 2
        )
        await app.advance(5 * SECOND)
        assert handler.times == [2.5]


async def test_a_row_published_while_a_claim_is_answered_is_claimed_right_after(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inboxkit._forms.lease import LeaseForm

    await create(inbox_database, Job)
    handler = Handler()
    plain = LeaseForm.claim
    app = serve(inbox_database, JOBS, handler, poll_interval=30 * SECOND)
    left = [1]

    async def claim(self: LeaseForm, *, limit: int) -> Any:
        found = await plain(self, limit=limit)
        if left[0]:
            left[0] -= 1
            assert not found.rows
            await app.broker.publish(JOBS, Work(1))
        return found

    monkeypatch.setattr(LeaseForm, "claim", claim)
    async with TestApp(app) as running:
        await running.settle()
        assert handler.times == [0]


async def test_each_group_is_woken_for_its_own_rows(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    app = Service("service", Broker(inbox_database))
    one, two = Handler(), Handler()
    app.include(subscriber(JOBS)(one))  # type: ignore[arg-type]
    app.include(subscriber(DEAD)(two))  # type: ignore[arg-type]
    async with TestApp(app) as running:
        observed(inbox_database).recording.clear()
        await running.publish(DEAD, Work(1))
        assert (one.numbers, two.numbers) == ([], [1])
        claims = observed(inbox_database).recording.transactions("claim")
        assert len(claims) <= 2


async def test_rows_of_raw_sql_wait_for_the_poll_or_for_wake(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    handler = Handler()
    insert = "INSERT INTO plain_jobs (payload) VALUES ($1)"
    async with TestApp(serve(inbox_database, PLAIN, handler)) as app:
        await inbox_database.execute(insert, b'{"n": 1}')
        await app.settle()
        assert handler.numbers == []
        await app.advance(SECOND)
        assert handler.numbers == [1]
        await inbox_database.execute(insert, b'{"n": 2}')
        app.broker.wake(PLAIN)
        await app.settle()
        assert handler.numbers == [1, 2]
        app.broker.wake("plain")
        with pytest.raises(NoRouteError, match="nowhere"):
            app.broker.wake("nowhere")


async def test_two_services_on_one_database_wake_each_other_and_share_the_rows(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    one, two = Handler(), Handler()
    first = serve(inbox_database, JOBS, one, name="one")
    second = serve(inbox_database, DEAD, two, name="two")
    async with TestApp(first) as app, second.running():
        await app.broker.publish("jobs", Work(1))
        await second.broker.publish("jobs.dead", Work(2))
        async with inbox_database.transaction() as tx:
            await insert_rows(tx, Job.of(Work(3), name="jobs"), Job.of(Work(4), name="jobs.dead"))
        await app.settle()
        assert (one.numbers, two.numbers) == ([1, 3], [2, 4])


async def test_two_processes_share_a_queue_and_no_row_is_handled_twice(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(40))
    one, two = Handler(1), Handler(1)
    async with (
        another(inbox_database) as other,
        TestApp(serve(inbox_database, JOBS, one, workers=3, name="one")) as app,
        serve(other, JOBS, two, workers=3, name="two").running(),
    ):
        await app.advance(20 * SECOND)
        assert sorted(one.numbers + two.numbers) == list(range(40))
        assert one.runs
        assert two.runs
        assert await count(inbox_database, Job) == 0


async def test_an_immediate_retry_goes_to_an_idle_worker_at_once(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    from inboxkit import retry

    await create(inbox_database, Job)
    handler = Handler(retry(), None)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=5, poll_interval=HOUR)) as app:
        await app.publish(JOBS, Work(1))
        assert handler.attempts == [1, 2]
