"""Publishing: routes, columns, transactions, and the pool."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import anyio
import pytest
from runtime_kit import (
    HOUR,
    JOBS,
    PLAIN,
    SECOND,
    Handler,
    Job,
    Plain,
    Work,
    count,
    create,
    observed,
    serve,
    table,
)

from inboxkit import (
    Broker,
    ClosedError,
    Database,
    DatabaseError,
    DeclarationError,
    Delivery,
    EncodeError,
    Inbox,
    InboxQueue,
    NoRouteError,
    events,
    insert_rows,
    role,
)
from inboxkit_testing import ObservedDatabase, TestApp, Timeline, VirtualClock
from inboxkit_testing.observed import ObservedDriver


class Other(Job, table="other_jobs"):
    """A second table with groups."""


class Headed(Inbox, table="headed_jobs"):
    """All that a row can carry."""

    id: int = role.id(generated=True)
    name: str = role.group()
    priority: int = role.priority(default=5)
    account: str = role.partition_key(default="none")
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    note: str = role.column(default="")
    payload: bytes = role.payload()


async def test_an_exact_name_goes_before_a_prefix_and_a_long_prefix_before_a_short_one(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job, Other)
    broker = Broker(inbox_database)
    broker.route("*", Other)
    broker.route("mail.*", Job)
    broker.route("mail.bulk.*", Other)
    broker.route("mail.bulk.news", Job)
    for name in ("mail.a", "mail.bulk.x", "mail.bulk.news", "anything"):
        await broker.publish(name, Work(1))
    assert [n for (n,) in await table(inbox_database, Job, "name")] == ["mail.a", "mail.bulk.news"]
    others = [n for (n,) in await table(inbox_database, Other, "name")]
    assert others == ["mail.bulk.x", "anything"]


async def test_the_last_registered_route_wins(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job, Other)
    broker = Broker(inbox_database)
    for kind in (Job, Other):
        broker.route("a", kind)
        broker.route("b.*", kind)
    await broker.publish("a", Work(1))
    await broker.publish("b.c", Work(1))
    assert await count(inbox_database, Other) == 2
    broker.add_queue(InboxQueue(Job, "a", Work))
    await broker.publish("a", Work(1))
    assert await count(inbox_database, Job) == 1


async def test_an_unknown_name_has_no_route(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    broker = Broker(inbox_database)
    broker.add_queue(JOBS)
    with pytest.raises(NoRouteError, match=r"'nowhere'.*'jobs'") as raised:
        await broker.publish("nowhere", Work(1))
    assert isinstance(raised.value, LookupError)
    assert observed(inbox_database).recording.statements("insert") == []


@pytest.mark.parametrize("pattern", ["", "*x", "a*b", "a**", None, 7])
async def test_a_pattern_has_its_star_at_the_end(
    inbox_database: Database, virtual_clock: VirtualClock, pattern: Any
) -> None:
    with pytest.raises(DeclarationError):
        Broker(inbox_database).route(pattern, Job)


async def test_publishing_needs_an_open_broker(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    from runtime_kit import another

    database = another(inbox_database)
    broker = Broker(database)
    with pytest.raises(ClosedError, match="not open"):
        await broker.publish(JOBS, Work(1))
    async with broker:
        await create(database, Job)
        await broker.publish(JOBS, Work(1))
    assert not database.is_open
    with pytest.raises(ClosedError):
        await broker.publish(JOBS, Work(1))
    assert await count(inbox_database, Job) == 1


async def test_a_column_beside_the_message(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Headed)
    queue = InboxQueue(Headed, "heads", Work)
    broker = Broker(inbox_database)
    due = virtual_clock.now() + HOUR
    id = await broker.publish(
        queue, Work(1), priority=1, account="a", retry_after=due, headers={"k": "v"}, note="n"
    )
    async with inbox_database.transaction() as tx:
        columns: dict[str, Any] = {"priority": 1, "account": "a", "retry_after": due}
        row = Headed.of(Work(1), name="heads", headers={"k": "v"}, note="n", **columns)
        await insert_rows(tx, row, row)
    rows = await table(
        inbox_database, Headed, "name", "priority", "account", "retry_after", "note", "attempt"
    )
    assert rows[0] == rows[1] == rows[2]
    assert rows[0][:3] == ("heads", 1, "a")
    (published,) = timeline.of(events.Published)
    assert (published.id, published.queue) == (id, "heads")  # type: ignore[attr-defined]


async def test_a_row_is_told_of_when_it_is_there_for_all(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """With its commit; what is rolled back, alone or with what is around it, is not told of."""
    await create(inbox_database, Job)
    broker = Broker(inbox_database)

    def told() -> list[Any]:
        return [event.id for event in timeline.of(events.Published)]  # type: ignore[attr-defined]

    async with inbox_database.transaction() as tx:
        first = await broker.publish(JOBS, Work(1), within=tx)
        async with tx.transaction() as nested:
            second = await broker.publish(JOBS, Work(2), within=nested)
        with suppress(ZeroDivisionError):
            async with tx.transaction() as nested:
                await broker.publish(JOBS, Work(3), within=nested)
                raise ZeroDivisionError
        assert told() == []
    assert told() == [first, second]
    with suppress(ZeroDivisionError):
        async with inbox_database.transaction() as tx:
            await broker.publish(JOBS, Work(4), within=tx)
            raise ZeroDivisionError
    async with inbox_database.connection() as connection:
        third = await broker.publish(JOBS, Work(5), within=connection)
    assert told() == [first, second, third]
    assert await table(inbox_database, Job, "id") == [(first,), (second,), (third,)]


async def test_the_group_is_the_queues_name_and_nothing_else(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    broker = Broker(inbox_database)
    with pytest.raises(TypeError, match="name"):
        await broker.publish(JOBS, Work(1), name="elsewhere")
    with pytest.raises(TypeError, match="nonsense"):
        await broker.publish(JOBS, Work(1), nonsense=1)
    assert await count(inbox_database, Job) == 0


async def test_a_message_that_cannot_be_written_leaves_the_transaction_usable(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    broker = Broker(inbox_database)
    async with inbox_database.transaction() as tx:
        with pytest.raises(EncodeError):
            await broker.publish(JOBS, object(), within=tx)  # type: ignore[arg-type]
        await broker.publish(JOBS, Work(1), within=tx)
    assert await count(inbox_database, Job) == 1


async def test_a_due_time_that_is_left_out_is_now(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await virtual_clock.advance(5 * SECOND)
    async with TestApp(serve(inbox_database, JOBS, Handler(HOUR.total_seconds()))) as app:
        await app.publish(JOBS, Work(1))
        (row,) = await app.rows(Job)
        assert row.retry_after == virtual_clock.start + 5 * SECOND


async def test_a_handler_publishes_through_its_delivery(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Job, Plain)

    async def forward(delivery: Delivery) -> None:
        if delivery.message.n < 3:
            await delivery.publish(JOBS, Work(delivery.message.n + 1))
        await delivery.publish("jobs.later", Work(0), priority=1)

    handler = Handler(forward)
    app = serve(inbox_database, JOBS, handler)
    app.broker.route("jobs.*", Job)
    async with TestApp(app) as running:
        await running.publish(JOBS, Work(1))
        assert handler.numbers == [1, 2, 3]
        rows = await table(inbox_database, Job, "name", "priority")
        assert rows == [("jobs.later", 1)] * 3


def narrow(database: Database, pool_size: int) -> ObservedDatabase:
    """The same database through a smaller pool."""
    first = observed(database)
    driver = ObservedDriver(
        first.observed._make,
        dialect=first.dialect,
        clock=first.observed.clock,  # type: ignore[arg-type]
        server_url=first.observed.server_url,
    )
    other = ObservedDatabase.over(driver, pool_size=pool_size, clock=first.clock)
    assert isinstance(other, ObservedDatabase)
    other.observed = driver
    return other


async def test_a_handler_publishes_and_reads_with_a_pool_of_one(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    broken: list[BaseException] = []

    async def use(delivery: Delivery) -> None:
        if delivery.message.n == 1:
            await delivery.publish(PLAIN, Work(2))
            assert await delivery.database.fetch_value("SELECT 1") == 1
            async with delivery.database.transaction() as tx:
                await delivery.publish(PLAIN, Work(3), within=tx)
                try:
                    await delivery.publish(PLAIN, Work(4))  # would wait for itself
                except DatabaseError as error:
                    broken.append(error)

    handler = Handler(use)
    async with (
        narrow(inbox_database, 1) as database,
        TestApp(serve(database, PLAIN, handler)) as app,
    ):
        await app.publish(PLAIN, Work(1))
        await app.advance(3 * SECOND)
        assert handler.numbers == [1, 2, 3]
        assert "pool" in str(broken[0])
        assert await count(database, Plain) == 0


async def test_publishes_that_are_cancelled_leak_no_connection(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    async with narrow(inbox_database, 3) as database:
        broker = Broker(database)
        async with broker:

            async def publish(patience: float) -> None:
                with anyio.move_on_after(patience):
                    await broker.publish(PLAIN, Work(1))

            observed(database).faults.delay("insert", 0.01, times=1000)
            async with anyio.create_task_group() as tasks:
                for n in range(60):
                    tasks.start_soon(publish, (n % 21) / 1000)
            observed(database).faults.clear()
            with anyio.fail_after(2):
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(publish, 2)


async def test_a_row_of_another_table_is_refused_in_row_mode(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    class Rows(Inbox, table="row_jobs"):
        id: int = role.id(generated=True)
        locked_until: datetime | None = role.locked_until()
        text: str

    await create(inbox_database, Rows, Plain)
    broker = Broker(inbox_database)
    queue: InboxQueue[Any, Any] = InboxQueue(Rows, "rows")
    with pytest.raises(TypeError, match="row_jobs"):
        await broker.publish(queue, Plain.of(Work(1)))
    with pytest.raises(TypeError, match="columns"):
        await broker.publish(queue, Rows(text="x"), text="y")
    await broker.publish(queue, Rows(text="x"))
    assert await table(inbox_database, Rows, "text") == [("x",)]
