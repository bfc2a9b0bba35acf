"""Waiting by the injected clock."""

from __future__ import annotations

import anyio
import pytest

from inboxkit import Database
from inboxkit._runtime.timing import Notice, wait_for
from inboxkit_testing import VirtualClock


@pytest.mark.parametrize("seconds", [1e-15, 1e-9, 1e-7, 0.5])
async def test_a_wait_moves_the_time_however_short_it_is(
    inbox_backend: str, virtual_clock: VirtualClock, seconds: float
) -> None:
    """Loops wait for an instant until it has come: else they would spin."""
    start = virtual_clock.monotonic()
    assert not await wait_for(anyio.Event(), virtual_clock, seconds)
    assert virtual_clock.monotonic() >= start + seconds
    assert virtual_clock.monotonic() <= start + seconds + 2e-6


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_wait_for_the_past_is_a_checkpoint(
    inbox_backend: str, virtual_clock: VirtualClock, seconds: float
) -> None:
    assert not await wait_for(anyio.Event(), virtual_clock, seconds)
    assert virtual_clock.monotonic() == 0


async def test_the_event_ends_the_wait(inbox_backend: str, virtual_clock: VirtualClock) -> None:
    event = anyio.Event()

    async def ring() -> None:
        await virtual_clock.sleep(2)
        event.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ring)
        assert await wait_for(event, virtual_clock, 10)
        assert virtual_clock.monotonic() == 2
        assert await wait_for(event, virtual_clock, None)


@pytest.mark.parametrize("seconds", [10, None])
async def test_a_notice_ends_a_wait_with_or_without_an_end(
    inbox_backend: str, virtual_clock: VirtualClock, seconds: float | None
) -> None:
    notice = Notice()

    async def ring() -> None:
        await virtual_clock.sleep(2)
        notice.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ring)
        await notice.wait(virtual_clock, seconds)
        assert virtual_clock.monotonic() == 2
        await notice.wait(virtual_clock, seconds)
        assert virtual_clock.monotonic() == 2, "it is still set"


async def test_a_notice_that_was_cleared_is_waited_for_again(
    inbox_backend: str, virtual_clock: VirtualClock
) -> None:
    notice = Notice()
    notice.set()
    notice.clear()
    await notice.wait(virtual_clock, 3)
    assert virtual_clock.monotonic() == pytest.approx(3)


async def test_a_notice_wakes_all_that_wait(
    inbox_backend: str, virtual_clock: VirtualClock
) -> None:
    notice = Notice()
    async with anyio.create_task_group() as tasks:
        for seconds in (5, None, 7):
            tasks.start_soon(notice.wait, virtual_clock, seconds)
        await virtual_clock.sleep(1)
        notice.set()
    assert virtual_clock.monotonic() == 1


async def test_a_host_whose_clock_runs_fast_waits_by_its_own(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    host = virtual_clock.at("fast", drift=1.0)
    assert not await wait_for(anyio.Event(), host, 10)
    assert virtual_clock.monotonic() == pytest.approx(5)
