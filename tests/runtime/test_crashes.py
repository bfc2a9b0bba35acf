"""Processes that die: what they held comes back when its lease ends, and no sooner."""

from __future__ import annotations

import pytest
from runtime_kit import (
    PLAIN,
    SECOND,
    Handler,
    Plain,
    another,
    count,
    create,
    killed,
    observed,
    put,
    serve,
    table,
)

from inboxkit import Database, events
from inboxkit_testing import TestApp, Timeline, VirtualClock


async def test_a_new_process_of_the_same_name_waits_for_the_lease(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 9)
    first = Handler(100)
    async with (
        another(inbox_database, "pod-0") as database,
        killed(serve(database, PLAIN, first, name="pod-0")),
    ):
        await virtual_clock.advance(5 * SECOND)
    await virtual_clock.advance(2 * SECOND)
    second = Handler()
    async with TestApp(serve(inbox_database, PLAIN, second, name="pod-0")) as app:
        await app.advance(60 * SECOND)
        assert second.attempts == [2]
        assert 30 <= second.times[0] <= 31
        assert await count(inbox_database, Plain) == 0


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_the_settlement_settles_once_or_not_at_all(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline, when: str
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    first, second = Handler(1), Handler()
    async with another(inbox_database, "one") as database:
        database.faults.crash("settle", when=when)  # type: ignore[arg-type]
        async with killed(serve(database, PLAIN, first)):
            await virtual_clock.advance(2 * SECOND)
    assert await count(inbox_database, Plain) == (1 if when == "before" else 0)
    async with TestApp(serve(inbox_database, PLAIN, second)) as app:
        await app.advance(40 * SECOND)
        assert second.attempts == ([2] if when == "before" else [])
        assert await count(inbox_database, Plain) == 0


async def test_a_crash_at_the_claim_counts_as_an_attempt(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    async with another(inbox_database, "one") as database:
        database.faults.crash("claim", when="after")
        async with killed(serve(database, PLAIN, Handler())):
            await virtual_clock.advance(SECOND)
    assert [row[1] for row in await table(inbox_database, Plain)] == [2]
    second = Handler()
    async with TestApp(serve(inbox_database, PLAIN, second)) as app:
        await app.advance(32 * SECOND)
        assert second.attempts == [2]
    assert len(timeline.of(events.Finished)) == 1


async def test_a_renewed_lease_of_a_dead_process_ends_a_lease_after_its_last_renewal(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    async with (
        another(inbox_database, "one") as database,
        killed(serve(database, PLAIN, Handler(100))),
    ):
        await virtual_clock.advance(20 * SECOND)  # renewed at 15 s
    second = Handler()
    async with TestApp(serve(inbox_database, PLAIN, second)) as app:
        await app.advance(40 * SECOND)
        assert 45 <= second.times[0] <= 46
    assert observed(inbox_database)
