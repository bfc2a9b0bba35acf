"""One subscription for all groups of a table: fair, each FIFO group in order, others left alone."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from runtime_kit import (
    BARE,
    HOUR,
    MINUTE,
    SECOND,
    Bare,
    Fifo,
    Handler,
    Job,
    Watch,
    Work,
    another,
    create,
    fill,
    put,
    serve,
    table,
)
from server_kit import refuse

import inboxkit._sql.postgres.every_group as postgres_every_group
import inboxkit._sql.sqlite.every_group as sqlite_every_group
from inboxkit import (
    Backoff,
    Broker,
    Column,
    Database,
    DeclarationError,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    Service,
    ack,
    drop,
    insert_rows,
    retry,
    role,
    subscriber,
)
from inboxkit.every_group import EveryGroup
from inboxkit_testing import TestApp, VirtualClock, delivery

JOBS = InboxQueue.every_group(Job, Work)
FIFO = InboxQueue.every_group(Fifo, Work)


class KeyedGroup(Inbox, table="keyed_group_jobs"):
    """Groups and partition keys."""

    id: int = role.id(generated=True)
    name: str = role.group()
    account: str = role.partition_key()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@pytest.mark.parametrize(
    ("queue", "workers"), [(JOBS, 1), (JOBS, 3), (FIFO, 3)], ids=["plain-1", "plain-3", "fifo-3"]
)
async def test_groups_take_turns(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    queue: EveryGroup[Any, Any],
    workers: int,
) -> None:
    await fill(inbox_database, queue, "abc", 6)
    handler = Watch(1)
    app = serve(inbox_database, queue, handler, workers=workers, poll_interval=HOUR)
    async with TestApp(app) as running:
        await running.advance(timedelta(seconds=18 / workers + 0.5))
        # Rows of one claim start in any order.
        turns = (sorted(handler.groups[n : n + workers]) for n in range(0, 18, workers))
        assert "".join(group for turn in turns for group in turn) == "abc" * 6
        assert handler.most == workers
        assert handler.most_of_a_group == 1
        assert [handler.numbers_of(group) for group in "abc"] == [list(range(6))] * 3
        assert await running.rows(queue.row) == []


async def test_two_services_share_fifo_groups(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """And a third, which serves one of the groups by itself."""
    await fill(inbox_database, FIFO, "abcd", 4)
    handler = Watch(0.5)
    second, third = another(inbox_database, "second"), another(inbox_database, "third")
    async with (
        second,
        third,
        serve(inbox_database, FIFO, handler, workers=3).running(),
        serve(second, FIFO, handler, workers=3, name="second").running(),
        serve(third, FIFO.group("a"), handler, name="third").running(),
    ):
        await virtual_clock.advance(12 * SECOND)
        assert [handler.numbers_of(group) for group in "abcd"] == [list(range(4))] * 4
        assert handler.most_of_a_group == 1
        assert handler.most == 4


async def test_a_group_that_cannot_go_on_stops_no_other(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """One whose head always fails, until its cap; one whose head another service has."""
    await fill(inbox_database, FIFO, "abc", 3)
    later = virtual_clock.now() + 5 * SECOND
    leased = await inbox_database.fetch_value("SELECT min(id) FROM fifo_jobs WHERE name = 'b'")
    is_text = inbox_database.dialect == "sqlite"
    cast = later.isoformat(timespec="microseconds") if is_text else later
    await inbox_database.execute(
        "UPDATE fifo_jobs SET locked_until = $1 WHERE id = $2", cast, leased
    )

    async def poison(delivery: Any) -> Any:
        if delivery.group == "a":
            raise ValueError("no")

    handler = Watch(by={0: poison})
    app = serve(
        inbox_database,
        FIFO,
        handler,
        max_attempts=2,
        dead_letter="{group}.dead",
        on_error=Backoff.fixed(2 * SECOND),
    )
    async with TestApp(app) as running:
        await running.settle()
        assert "".join(handler.groups) == "accc"
        assert [row.name for row in await running.pending(Fifo)] == ["a"] * 3 + ["b"] * 3
        await running.advance(3 * SECOND)
        assert handler.numbers_of("a") == [0, 0, 1, 2]
        assert [(row.name, row.attempt) for row in await running.dead(Fifo)] == [("a.dead", 3)]
        await running.advance(3 * SECOND)
        assert handler.numbers_of("b") == [0, 1, 2]
        assert await running.pending(Fifo) == []
        await running.advance(MINUTE)
        assert len(handler.runs) == 10


async def test_the_log_and_the_events_name_the_group_of_the_row(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what happens to a row, and of what its settlement met; once where the queue is called alike."""
    await fill(inbox_database, JOBS, "abc", 1)

    async def fail(delivery: Any) -> Any:
        if delivery.group == "b":
            return drop("no such account")
        if delivery.group == "c":
            await refuse(inbox_database, Job, delivery.id)
            return ack()
        raise ValueError("no")

    app = serve(
        inbox_database, JOBS, Watch(by={0: fail}), max_attempts=1, dead_letter="{group}.dead"
    )
    app.include(subscriber(JOBS.group("own"))(Watch(retry(), ack())))  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "inboxkit"):
        async with TestApp(app) as running:
            await running.advance(2 * SECOND)
            await running.publish(JOBS.group("own"), Work(1))
            await running.settle()
    told = [record for record in caplog.records if "row " in record.getMessage()]
    texts = [record.getMessage() for record in told]
    for start in (
        "queue 'jobs.*', group 'a': row 1 failed: ValueError: no, attempt 1",
        "queue 'jobs.*', group 'a': row 1 went to the dead letter 'a.dead', attempt 1",
        "queue 'jobs.*', group 'b': dropped row 2 (no such account), attempt 1",
        "queue 'jobs.*', group 'c', attempt 1: row 3 could not be settled",
        "queue 'own': row 4 will be handed out again after 0:00:00, attempt 1",
    ):
        assert any(text.startswith(start) for text in texts), (start, texts)
    events = [record.event for record in told if hasattr(record, "event")]
    named = {(event.queue, event.group, event.id, event.attempt) for event in events}
    assert {("jobs.*", "a", 1, 1), ("jobs.*", "b", 2, 1), ("own", "own", 4, 1)} <= named


@pytest.mark.parametrize("queue", [JOBS, FIFO], ids=["plain", "fifo"])
async def test_a_row_past_its_cap_goes_to_the_dead_letter_of_its_own_group(
    inbox_database: Database, virtual_clock: VirtualClock, queue: EveryGroup[Any, Any]
) -> None:
    await fill(inbox_database, queue, "abc", 1)
    await inbox_database.execute(f"UPDATE {queue.spec.table} SET attempt = 4 WHERE name <> 'b'")
    handler = Watch(retry())
    async with TestApp(
        serve(inbox_database, queue, handler, max_attempts=3, dead_letter="dead.{group}")
    ) as running:
        await running.advance(5 * SECOND)
        assert handler.attempts == [1, 2, 3]
        dead = [("dead.a", 4), ("dead.b", 4), ("dead.c", 4)]
        assert sorted((row.name, row.attempt) for row in await running.dead(queue.row)) == dead


async def test_groups_of_others_are_left_to_them(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    names = ["own", "parked", "dead.x", "x", "y"]
    # Without NOT NULL on the group, as a service's own table may be.
    spec = Job.spec
    key, text, kind, blob = {
        "sqlite": ("INTEGER", "text", "TEXT", "BLOB"),
        "postgres": ("bigint GENERATED BY DEFAULT AS IDENTITY", "text", "timestamptz", "bytea"),
        "mysql": (
            "bigint AUTO_INCREMENT",
            "varchar(40) COLLATE utf8mb4_bin",
            "datetime(6)",
            "blob",
        ),
    }[inbox_database.dialect]
    await inbox_database.execute(
        f"CREATE TABLE {spec.table} (id {key} PRIMARY KEY, name {text}, priority integer NOT NULL, "
        f"retry_after {kind}, attempt integer NOT NULL DEFAULT 1, locked_until {kind}, "
        f"payload {blob} NOT NULL)"
    )
    for name in names:
        await put(inbox_database, InboxQueue(Job, name, Work), 1)
    insert = f"INSERT INTO {spec.table} (name, priority, payload) VALUES (NULL, 0, $1)"
    await inbox_database.execute(insert, b'{"n": 1}')
    handler, own = Watch(), Watch(retry())
    app = serve(inbox_database, JOBS, handler, max_attempts=2, dead_letter="dead.{group}")
    app.include(
        subscriber(JOBS.group("own"))(own),  # type: ignore[arg-type]
        max_attempts=1,
        dead_letter="parked",
    )
    async with TestApp(app) as running:
        await running.advance(10 * SECOND)
        assert (handler.groups, own.groups) == (["x", "y"], ["own"])
        left = await table(inbox_database, Job, "name", "attempt")
        assert left == [("parked", 2), ("parked", 1), ("dead.x", 1), (None, 1)]
        assert len(await running.dead(Job)) == 3


async def test_a_publish_to_any_group_wakes_it(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    await create(inbox_database, Fifo)
    handler = Watch(retry(), None)
    async with TestApp(serve(inbox_database, FIFO, handler, poll_interval=HOUR)) as app:
        await app.publish(FIFO.group("new"), Work(1))
        async with inbox_database.transaction() as tx:
            await insert_rows(tx, Fifo.of(Work(2), name="other"))
        await app.settle()
        assert handler.groups == ["new", "new", "other"]
        assert handler.deliveries[0].queue is FIFO
        for queue in (FIFO, FIFO.name):
            with pytest.raises(TypeError, match=r"name one.*group\('acme'\)"):
                await app.publish(queue, Work(1))
        app.broker.wake(FIFO)
        assert app.subscriber(FIFO.name).calls == [Work(1), Work(1), Work(2)]


async def test_more_groups_than_a_claim_looks_at_need_no_poll(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a wake get lost that comes while the later ones are looked at."""
    for module in (postgres_every_group, sqlite_every_group):
        monkeypatch.setattr(module, "STEPS", 2)
    await fill(inbox_database, FIFO, "abcdefg", 1)
    later = virtual_clock.now() + HOUR
    for group in "hijk":
        await put(inbox_database, FIFO.group(group), 9, retry_after=later)

    async def tell(delivery: Delivery) -> None:
        await delivery.publish(FIFO.group("b"), Work(2))
        await delivery.publish(FIFO.group("z"), Work(2))

    handler = Watch(by={0: 1, 1: tell})
    async with TestApp(serve(inbox_database, FIFO, handler, workers=3, poll_interval=HOUR)) as app:
        await app.advance(4 * SECOND)
        assert sorted(handler.groups) == list("abcdefg")
        await app.publish(FIFO.group("m"), Work(1))
        assert handler.groups[7] == "m"
        assert sorted(handler.groups[8:]) == ["b", "z"]


async def test_keys_keep_their_order_over_the_groups(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    queue = InboxQueue.every_group(KeyedGroup, Work, name="keyed")
    await create(inbox_database, KeyedGroup)
    for group in "ab":
        for n in range(4):
            await put(inbox_database, queue.group(group), n, account=f"account {n % 2}")
    keys: Counter[Any] = Counter()
    seen: list[tuple[Any, Any, int]] = []

    async def handle(work: Work, delivery: Delivery) -> None:
        keys[delivery.key] += 1
        assert keys[delivery.key] == 1
        seen.append((delivery.key, delivery.group, work.n))
        await anyio.sleep(1)
        keys[delivery.key] -= 1

    async with TestApp(serve(inbox_database, queue, handle, workers_by_key=2)) as app:
        await app.advance(10 * SECOND)
        for account in (0, 1):
            done = [(group, n) for key, group, n in seen if key == f"account {account}"]
            assert done == [("a", account), ("b", account), ("a", account + 2), ("b", account + 2)]


def service(*included: tuple[InboxQueue[Any, Any], dict[str, Any]]) -> Service:
    app = Service("service", Broker("sqlite:///never-opened.db"))
    for queue, settings in included:
        app.include(subscriber(queue)(Handler()), **settings)  # type: ignore[arg-type]
    return app


CAP = {"max_attempts": 5, "dead_letter": "{group}.dead"}


class Unsorted(Inbox, table="jobs"):
    """The table of `Job`, as one queue."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


OTHER_COLUMN = InboxSpec("jobs", id=Column("id"), group=Column("tenant"), payload=Column("payload"))


@pytest.mark.parametrize(
    ("included", "says"),
    [
        ([(JOBS, {**CAP, "dead_letter": name})], r"\{group\} in it once.*acme\.dead")
        for name in ("dead", "{group}", "{group}{group}", JOBS.group("dead"), FIFO, "{grp}.dead")
    ]
    + [
        ([(JOBS.group("a"), {**CAP, "dead_letter": JOBS})], "one group or table"),
        ([(JOBS, {}), (InboxQueue.every_group(Job), {})], "two subscriptions serve"),
        ([(JOBS, {}), (InboxQueue(Unsorted, "all", Work), {})], "two subscriptions serve"),
        ([(InboxQueue(OTHER_COLUMN, "a", Work), {}), (JOBS, {})], "by column 'tenant'.*once"),
        (
            [(JOBS, CAP), (JOBS.group("a.dead"), {"max_attempts": 5, "dead_letter": "x"})],
            "must be greater than 5",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_contradicts_itself_is_refused(
    included: list[tuple[InboxQueue[Any, Any], dict[str, Any]]], says: str
) -> None:
    with pytest.raises(DeclarationError, match=says):
        service(*included)


def test_what_can_be_is_taken() -> None:
    dead = {"max_attempts": 6, "dead_letter": "end"}
    app = service((JOBS, CAP), (JOBS.group("a"), {}), (JOBS.group("a.dead"), dead), (FIFO, CAP))
    assert app.is_dead_letter("jobs", "b.dead")
    assert app.is_dead_letter("jobs", "end")
    assert not app.is_dead_letter("jobs", "a")


def test_the_queue_of_every_group() -> None:
    lease = timedelta(minutes=1)
    queue = InboxQueue.every_group(Job, Work, lease=lease, poll_interval=SECOND)
    one = queue.group("acme")
    assert (one.name, one.group, one.lease, one.poll_interval) == ("acme", "acme", lease, SECOND)
    assert (one.row, one.message, queue.only_group, queue.name) == (Job, Work, None, "jobs.*")
    assert repr(queue) == "InboxQueue.every_group('jobs', Work)"
    by_hand = InboxQueue.every_group(Job.spec, name="mine")
    assert (by_hand.row, by_hand.name, by_hand.group("a").spec) == (None, "mine", Job.spec)
    made = delivery(queue, Work(1), row=Job.stored(name="acme"))
    assert (made.group, made.queue) == ("acme", queue)
    with pytest.raises(DeclarationError, match=r"'bare_jobs' has none; .*role\.group"):
        InboxQueue.every_group(Bare)
    with pytest.raises(DeclarationError, match="non-empty name"):
        queue.group("")
    assert BARE.only_group is None
