"""`run()` and `running()`: whose errors leave them, and as what."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from runtime_kit import (
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    count,
    create,
    put,
    serve,
    table,
    warnings,
)

from inboxkit import Database, Delivery, events
from inboxkit_testing import TestApp, Timeline, VirtualClock


class Halt(BaseException):
    """No Exception."""


ENDS = [KeyboardInterrupt, SystemExit, GeneratorExit, Halt]


async def test_errors_of_the_body_pass_bare(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    error = LookupError("the body's")
    handler = Handler(100)

    async def body() -> None:
        async with serve(inbox_database, PLAIN, handler).running():
            await virtual_clock.advance(SECOND)
            raise error

    with pytest.raises(LookupError) as raised:
        await body()
    assert raised.value is error
    assert await table(inbox_database, Plain, "attempt", "locked_until") == [(1, None)]


@pytest.mark.parametrize("kind", [*ENDS, LookupError])
async def test_any_error_of_the_body_passes_bare(
    inbox_database: Database, virtual_clock: VirtualClock, kind: type[BaseException]
) -> None:
    await create(inbox_database, Plain)
    seen: BaseException | None = None
    try:
        async with serve(inbox_database, PLAIN, Handler()).running():
            raise kind("the body's")
    except BaseException as error:  # noqa: BLE001
        seen = error
    assert type(seen) is kind


async def test_a_group_of_the_body_passes_as_it_is(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    group = ExceptionGroup("two", [ValueError(1), ValueError(2)])
    with pytest.raises(ExceptionGroup) as raised:
        async with serve(inbox_database, PLAIN, Handler()).running():
            raise group
    assert raised.value is group


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("way", ["run", "running"])
async def test_what_is_no_exception_releases_the_row_counted_and_ends_the_service_bare(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    timeline: Timeline,
    kind: type[BaseException],
    way: str,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)

    async def end(delivery: Delivery) -> None:
        await anyio.sleep(1)
        raise kind("enough")

    handler = Handler(by={1: end, 2: 5, 3: 8})
    app = serve(inbox_database, JOBS, handler, workers=3)
    seen: BaseException | None = None
    try:
        if way == "run":
            await app.run()
        else:
            async with app.running():
                await anyio.sleep_forever()
    except BaseException as error:  # noqa: BLE001
        seen = error
    assert type(seen) is kind
    assert str(seen) == "enough"
    assert sorted(handler.ended) == [2, 3]
    assert await table(inbox_database, Job, "id", "attempt", "locked_until") == [(1, 2, None)]
    (released,) = timeline.of(events.Released)
    assert released.given_back is False  # type: ignore[attr-defined]
    assert virtual_clock.monotonic() == 8


async def test_a_cancellation_of_the_handlers_own_making_is_a_failure(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_backend: str, timeline: Timeline
) -> None:
    if inbox_backend == "trio":
        pytest.skip("trio.Cancelled cannot be raised by hand")
    import asyncio

    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2)

    async def awaits_a_cancelled_task(delivery: Delivery) -> None:
        task = asyncio.ensure_future(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    handler = Handler(by={1: asyncio.CancelledError(), 2: awaits_a_cancelled_task})
    async with TestApp(serve(inbox_database, JOBS, handler, workers=2)) as app:
        await app.advance(0.5 * SECOND)
        assert sorted(handler.numbers) == [1, 2]
        assert [row.attempt for row in await app.rows(Job)] == [2, 2]
        # Its worker goes on.
        await app.publish(JOBS, Work(3))
        await app.publish(JOBS, Work(4))
        assert sorted(handler.ended) == [3, 4]
        await app.advance(3 * SECOND)
        assert len(handler.runs) > 4
    assert len(timeline.of(events.Failed)) >= 2
    assert "cancellation" in timeline.of(events.Failed)[0].error  # type: ignore[attr-defined]


async def test_a_handler_that_cancels_its_own_task_does_not_spoil_the_worker(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_backend: str
) -> None:
    if inbox_backend == "trio":
        pytest.skip("trio's tasks cannot be cancelled by hand")
    import asyncio

    await create(inbox_database, Job)

    async def cancel_itself(delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(100)

    handler = Handler(cancel_itself, 1, 1, 100, 1)
    app = serve(inbox_database, JOBS, handler, timeout=5 * SECOND)
    async with TestApp(app) as running:
        await running.publish(JOBS, Work(1))
        await running.advance(10 * SECOND)
        assert handler.ended == [1]
        await running.publish(JOBS, Work(2))
        await running.advance(2 * SECOND)
        await running.publish(JOBS, Work(3))
        await running.advance(20 * SECOND)
        assert [n for n, _ in handler.cancelled] == [1, 3]
        assert await count(inbox_database, Job) == 0


async def test_the_body_is_cancelled_when_the_service_ends_by_an_error(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    left: list[float] = []
    app = serve(inbox_database, JOBS, Handler(ValueError("stop")), on_error="stop")

    async def body() -> None:
        async with app.running():
            try:
                await app.broker.publish(JOBS, Work(1))
                await anyio.sleep_forever()
            finally:
                left.append(virtual_clock.monotonic())

    with pytest.raises(ValueError, match="stop"):
        await body()
    assert left == [0]


async def test_two_services_fail_apart(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job, Plain)
    await put(inbox_database, JOBS, 1)
    good = Handler()
    bad = serve(inbox_database, JOBS, Handler(ValueError("stop")), on_error="stop", name="bad")
    async with TestApp(serve(inbox_database, PLAIN, good)) as app:
        with pytest.raises(ValueError, match="stop"):
            await bad.run()
        await app.publish(PLAIN, Work(1))
        assert good.numbers == [1]


async def test_the_clock_is_that_of_the_database(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Plain)
    await put(inbox_database, PLAIN, 1)
    handler = Handler()
    async with TestApp(serve(inbox_database, PLAIN, handler)):
        delivery: Any = handler.deliveries[0]
        assert delivery.clock is virtual_clock
        assert delivery.database is inbox_database
    assert warnings(caplog, "trouble") == []
