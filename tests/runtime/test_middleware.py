"""Middleware and the lifespan's state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    SECOND,
    Handler,
    Job,
    count,
    create,
    observed,
    put,
    serve,
    table,
)

from inboxkit import (
    ClosedError,
    Database,
    LeaseLostError,
    Service,
    ack,
    drop,
    events,
    retry_after,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock


def noting(order: list[str], name: str) -> Any:
    async def middleware(delivery: Any, call_next: Any) -> Any:
        order.append(f"{name} in")
        outcome = await call_next(delivery)
        order.append(f"{name} out {outcome}")
        return outcome

    return middleware


async def test_the_first_used_is_outermost(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    order: list[str] = []
    app = serve(inbox_database, JOBS, Handler())
    app.use(noting(order, "one"))
    app.use(noting(order, "two"))
    async with app.running():
        await virtual_clock.settle()
    assert order == ["one in", "two in", "two out Ack()", "one out Ack()"]


async def test_it_may_change_the_outcome(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)
    app = serve(inbox_database, JOBS, Handler(by={3: ValueError("no")}))

    @app.use
    async def change(delivery: Any, call_next: Any) -> Any:
        if delivery.message.n == 1:
            return retry_after(HOUR)  # without its handler
        try:
            outcome = await call_next(delivery)
        except ValueError:
            return drop("swallowed")
        return retry_after(2 * HOUR) if outcome == ack() else outcome

    async with TestApp(app) as running:
        due = [row.retry_after - virtual_clock.start for row in await running.rows(Job)]
        assert due == [HOUR, 2 * HOUR]


async def test_what_it_raises_or_wrongly_returns_is_a_failure(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2, 3)
    app = serve(inbox_database, JOBS, Handler(), on_error="drop")

    @app.use
    async def odd(delivery: Any, call_next: Any) -> Any:
        await call_next(delivery)
        if delivery.message.n == 1:
            raise ValueError("mine")
        return "ack" if delivery.message.n == 2 else None

    async with TestApp(app):
        assert await count(inbox_database, Job) == 0
    errors = [e.error for e in timeline.of(events.Failed)]  # type: ignore[attr-defined]
    assert len(errors) == 2
    assert errors[0] == "ValueError: mine"
    assert errors[1].startswith("TypeError")


async def test_it_sees_a_lost_lease_and_cannot_bring_it_back(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    observed(inbox_database).faults.refuse("renew", times=15)
    handler = Handler(100, 1)
    app = serve(inbox_database, JOBS, handler)
    seen: list[Any] = []

    @app.use
    async def resurrect(delivery: Any, call_next: Any) -> Any:
        try:
            return await call_next(delivery)
        except LeaseLostError as error:
            seen.append(error)
            return ack()

    async with TestApp(app) as running:
        await running.advance(28 * SECOND)
        (error,) = seen
        assert (error.queue, error.id) == ("jobs", 1)
        assert await count(inbox_database, Job) == 1
        await running.advance(5 * SECOND)
        assert await count(inbox_database, Job) == 0
        assert handler.attempts == [1, 2]
    assert [e.attempt for e in timeline.of(events.Finished)] == [2]  # type: ignore[attr-defined]
    # The handler itself saw a cancellation, not an error.
    assert handler.cancelled == [(1, 27)]


async def test_it_sees_a_handler_that_the_service_cancelled(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    app = serve(inbox_database, JOBS, Handler(100), drain_timeout=SECOND)
    seen: list[BaseException] = []

    @app.use
    async def watch(delivery: Any, call_next: Any) -> Any:
        try:
            return await call_next(delivery)
        except ClosedError as error:
            seen.append(error)
            raise

    async with app.running():
        await virtual_clock.advance(SECOND)
    assert len(seen) == 1
    assert await table(inbox_database, Job) == [(1, 1)]


async def test_it_sees_a_timeout_as_an_error(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    app = serve(inbox_database, JOBS, Handler(100), timeout=SECOND)

    @app.use
    async def watch(delivery: Any, call_next: Any) -> Any:
        try:
            return await call_next(delivery)
        except TimeoutError:
            await anyio.sleep(1)  # it may still wait: only the handler was cancelled
            return drop("too slow")

    async with TestApp(app) as running:
        await running.advance(3 * SECOND)
        assert await count(inbox_database, Job) == 0


async def test_the_state_is_what_the_lifespan_of_this_service_yielded(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    handlers = [Handler(), Handler()]
    left: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def made(service: Service) -> AsyncIterator[dict[str, str]]:
            async with anyio.create_task_group() as tasks:  # it may hold scopes open
                tasks.start_soon(anyio.sleep_forever)
                yield {"name": name, "service": service.name}
                left.append(name)
                tasks.cancel_scope.cancel()

        return made

    apps = [
        serve(inbox_database, JOBS, handler, lifespan=lifespan(name), name=name)
        for handler, name in zip(handlers, ("one", "two"), strict=True)
    ]
    for app, name in zip(apps, ("one", "two"), strict=True):
        await put(inbox_database, JOBS, 1)
        async with app.running():
            await virtual_clock.advance(SECOND)
        assert left[-1] == name
    for handler, name in zip(handlers, ("one", "two"), strict=True):
        assert handler.deliveries[0].state == {"name": name, "service": name}


@pytest.mark.parametrize("way", ["stop", "cancel", "error"])
async def test_the_lifespan_outlives_all_handlers(
    inbox_database: Database, virtual_clock: VirtualClock, way: str
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(service: Service) -> AsyncIterator[None]:
        try:
            yield
        finally:
            order.append("lifespan left")

    async def handle(delivery: Any) -> None:
        try:
            await anyio.sleep(5)
        finally:
            order.append("handler ended")

    app = serve(inbox_database, JOBS, Handler(handle), lifespan=lifespan)

    async def body() -> None:
        async with app.running() as handle:
            await virtual_clock.advance(SECOND)
            if way == "cancel":
                handle.cancel()
            if way == "error":
                raise LookupError

    if way == "error":
        with pytest.raises(LookupError):
            await body()
    else:
        await body()
    assert order == ["handler ended", "lifespan left"]
