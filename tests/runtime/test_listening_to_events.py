"""`Service.on_event`, `Service.beside` and `Broker.use`: what telemetry is built on."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from runtime_kit import JOBS, PLAIN, SECOND, Handler, Job, Plain, Work, create, observed, serve

from inboxkit import Broker, ClosedError, Database, DeclarationError, Service, events
from inboxkit.broker import Publication
from inboxkit_testing import VirtualClock


async def test_a_listener_hears_what_a_quiet_log_does_not_have(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Job)
    heard: list[events.Event] = []
    app = serve(inbox_database, JOBS, Handler(), poll_interval=60 * SECOND)
    assert app.on_event(heard.append) == heard.append
    caplog.set_level(logging.WARNING, logger="inboxkit")
    async with app.running():
        await app.broker.publish(JOBS, Work(1))
        await virtual_clock.settle()
    kinds = [type(event).__name__ for event in heard]
    assert kinds[0] == "Started"
    assert kinds[-1] == "Stopped"
    assert {"Published", "Claimed", "Finished"} <= set(kinds)
    claims = [event for event in heard if isinstance(event, events.ClaimEnded)]
    assert {claim.rows for claim in claims} == {0, 1}
    assert all(claim.took == timedelta(0) and claim.error == "" for claim in claims)
    # Its rows are told before it.
    assert kinds.index("Claimed") < kinds.index("ClaimEnded", kinds.index("Claimed"))
    assert caplog.records == []


async def test_a_listener_that_raises_is_told_once(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Job)
    handler = Handler()
    app = serve(inbox_database, JOBS, handler)

    @app.on_event
    def broken(event: events.Event) -> None:
        raise ValueError("no")

    async with app.running():
        for n in range(3):
            await app.broker.publish(JOBS, Work(n))
        await virtual_clock.settle()
    assert sorted(handler.numbers) == [0, 1, 2]
    (told,) = [r for r in caplog.records if "on_event raised" in r.getMessage()]
    assert told.exc_info is not None


async def test_a_claim_that_failed_is_told(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    heard: list[events.Event] = []
    app = serve(inbox_database, PLAIN, Handler())
    app.on_event(heard.append)
    async with app.running():
        await virtual_clock.settle()
        observed(inbox_database).faults.refuse("claim", times=1)
        heard.clear()
        await virtual_clock.advance(2 * SECOND)
    failed = [e for e in heard if isinstance(e, events.ClaimEnded) and e.error]
    assert [event.rows for event in failed] == [0]


async def test_a_function_beside_runs_as_long_as_the_service(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    app = serve(inbox_database, PLAIN, Handler())
    seen: list[Any] = []

    @app.beside
    async def look(service: Service) -> None:
        try:
            while True:
                seen.append((service.name, virtual_clock.monotonic()))
                await virtual_clock.sleep(10)
        finally:
            seen.append("ended")

    async with app.running():
        await virtual_clock.advance(25 * SECOND)
        with pytest.raises(ClosedError):
            app.beside(look)
    assert seen == [("service", 0.0), ("service", 10.0), ("service", 20.0), "ended"]


async def test_what_a_function_beside_raises_ends_the_service(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    app = serve(inbox_database, PLAIN, Handler())

    @app.beside
    async def fail(service: Service) -> None:
        await virtual_clock.sleep(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        async with app.running():
            await anyio.sleep_forever()


async def test_what_goes_around_publishing(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    order: list[Any] = []
    broker = Broker(inbox_database)

    @broker.use
    async def outer(publication: Publication, call_next: Any) -> Any:
        order.append("outer")
        id = await call_next(replace(publication, columns={**publication.columns, "priority": 3}))
        order.append(id)
        return id

    @broker.use
    async def inner(publication: Publication, call_next: Any) -> Any:
        order.append((publication.queue.name, publication.message, dict(publication.columns)))
        return await call_next(publication)

    async with broker:
        id = await broker.publish(JOBS, Work(1))
        assert order == ["outer", ("jobs", Work(1), {"priority": 3}), id]
        async with inbox_database.transaction() as tx:
            await broker.publish(JOBS, Work(2), within=tx)
        found = await inbox_database.fetch("SELECT priority FROM jobs ORDER BY id")
    assert [row[0] for row in found] == [3, 3]


def test_what_they_do_not_take() -> None:
    app = Service("s", Broker("sqlite:///:memory:"))
    with pytest.raises(DeclarationError, match="plain function"):

        @app.on_event
        async def listen(event: events.Event) -> None: ...

    with pytest.raises(DeclarationError, match="async def"):
        app.beside(lambda service: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(DeclarationError, match="async def"):
        app.broker.use(lambda publication, call_next: None)  # type: ignore[arg-type, return-value]
