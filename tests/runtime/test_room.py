"""The places of a pool: who is admitted, in which order, and that none is lost."""

from __future__ import annotations

import anyio
import pytest

from inboxkit._runtime.room import Room


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.anyio
async def test_subscriptions_are_admitted_in_turn_and_no_place_is_lost() -> None:
    room = Room(1)
    admitted: list[str] = []

    async def wait(who: str, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            admitted.append(who if await room.enter(who) else f"{who} gave up")

    async def settle() -> None:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()

    assert room.enter_nowait()
    assert not room.enter_nowait()
    room.leave()

    assert await room.enter("a")
    async with anyio.create_task_group() as tasks:
        scopes = [await tasks.start(wait, who) for who in "aaabbc"]
        await settle()
        assert admitted == []
        for _ in range(3):
            room.leave()
            await settle()
        assert admitted == ["a", "b", "c"]
        # A place that is given to a task on its way out: the next gets it.
        scopes[1].cancel()
        room.leave()
        await settle()
        assert admitted == ["a", "b", "c", "b"]
        room.give_up("a")
        await settle()
        assert admitted[4:] == ["a gave up"]
        room.leave()
        assert await room.enter("d")
        room.leave()
