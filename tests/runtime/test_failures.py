"""Failures: exceptions and undecodable payloads, their back-off and the other policies."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest
from database_cells import everywhere
from runtime_kit import (
    BARE,
    FIFO,
    FIFO_PLAIN,
    HOUR,
    JOBS,
    MINUTE,
    PLAIN,
    SECOND,
    Bare,
    Fifo,
    FifoPlain,
    Handler,
    Job,
    Plain,
    Work,
    approximately,
    count,
    create,
    observed,
    put,
    serve,
    table,
    warnings,
)

from inboxkit import (
    Backoff,
    Broker,
    Database,
    DecodeError,
    Inbox,
    InboxQueue,
    Service,
    events,
    role,
    subscriber,
)
from inboxkit_testing import TestApp, Timeline, VirtualClock


async def test_the_default_back_off_doubles_from_a_second(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    handler = Handler(ValueError("no"))
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(70 * SECOND)
    waits = [b - a for a, b in itertools.pairwise(handler.times)]
    assert handler.attempts == [1, 2, 3, 4, 5, 6, 7][: len(handler.attempts)]
    for wait, exact in zip(waits, (1, 2, 4, 8, 16, 32), strict=False):
        assert 0.89 * exact <= wait <= 1.11 * exact
    assert any(abs(wait - round(wait)) > 0.001 for wait in waits)  # there is a jitter


@pytest.mark.parametrize(
    ("backoff", "times"),
    [
        (Backoff.fixed(3 * SECOND), [0, 3, 6, 9]),
        (Backoff.linear(2 * SECOND), [0, 2, 6, 12]),
        (Backoff.exponential(SECOND, factor=3, jitter=0), [0, 1, 4, 13]),
        (Backoff.exponential(SECOND, maximum=2 * SECOND, jitter=0), [0, 1, 3, 5]),
    ],
    ids=["fixed", "linear", "exponential", "maximum"],
)
@pytest.mark.parametrize("queue", [JOBS, PLAIN, FIFO, FIFO_PLAIN], ids=lambda queue: queue.name)
async def test_each_back_off_is_kept_to_the_instant(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    backoff: Backoff,
    times: list[float],
    queue: InboxQueue[Any, Any],
) -> None:
    """On every table, whatever the poll: by its due time, or by a lease of nobody's."""
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1)
    handler = Handler(ValueError("no"))
    app = serve(inbox_database, queue, handler, on_error=backoff, poll_interval=HOUR)
    async with TestApp(app) as running:
        await running.advance(13.5 * SECOND)
        assert approximately(handler.times)[:4] == times
        assert handler.attempts[:4] == [1, 2, 3, 4]


@everywhere
async def test_without_attempts_the_back_off_is_always_its_first_delay(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Bare)
    await put(inbox_database, BARE, 1)
    handler = Handler(ValueError("no"))
    backoff = Backoff.exponential(2 * SECOND, jitter=0)
    async with TestApp(serve(inbox_database, BARE, handler, on_error=backoff)) as app:
        await app.advance(7 * SECOND)
        assert approximately(handler.times) == [0, 2, 4, 6]


async def test_a_failing_row_never_spins_and_others_go_on(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Bare)
    await put(inbox_database, BARE, *range(6))
    handler = Handler(by={0: ValueError("no")})
    async with TestApp(serve(inbox_database, BARE, handler)) as app:
        assert handler.numbers == [0, 1, 2, 3, 4, 5]
        await app.advance(30 * SECOND)
        assert 28 <= handler.numbers.count(0) <= 36


async def test_attempts_of_thousands_do_not_overflow_the_back_off(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, *range(4))
    for id, attempt in enumerate((46, 310, 1999, 32766), 1):
        await inbox_database.execute("UPDATE jobs SET attempt = $1 WHERE id = $2", attempt, id)
    handler = Handler(ValueError("no"))
    backoff = Backoff.exponential(SECOND, factor=5, maximum=HOUR, jitter=0)
    async with TestApp(serve(inbox_database, JOBS, handler, workers=4, on_error=backoff)) as app:
        rows = await app.rows(Job)
        assert {row.retry_after for row in rows} == {virtual_clock.start + HOUR}
        assert [row.attempt for row in rows] == [47, 311, 2000, 32767]


async def test_an_exception_is_logged_with_its_traceback(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    timeline: Timeline,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)
    async with TestApp(serve(inbox_database, JOBS, Handler(KeyError("%s"), None))) as app:
        await app.advance(2 * SECOND)
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert "'jobs'" in record.getMessage()
    assert "KeyError" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    (failed,) = timeline.of(events.Failed)
    (retried,) = timeline.of(events.Retried)
    assert (failed.id, failed.attempt) == (1, 1)  # type: ignore[attr-defined]
    assert retried.due - retried.at == retried.delay  # type: ignore[attr-defined]


@pytest.mark.parametrize("queue", [JOBS, PLAIN], ids=lambda queue: queue.name)
async def test_the_policy_drop_finishes_the_row(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    queue: InboxQueue[Any, Any],
) -> None:
    await create(inbox_database, queue.row)
    await put(inbox_database, queue, 1)
    handler = Handler(ValueError("no"))
    async with TestApp(serve(inbox_database, queue, handler, on_error="drop")):
        assert await count(inbox_database, queue.row) == 0
        assert len(handler.runs) == 1
    assert len(warnings(caplog, "its failure policy is 'drop'")) == 1


async def test_the_policy_stop_ends_the_service_with_the_error(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    """The row goes back, counted; the other handler ends in peace."""
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1, 2)
    error = ValueError("no")
    handler = Handler(by={1: error, 2: 5})
    app = serve(inbox_database, JOBS, handler, workers=2, on_error="stop")
    with pytest.raises(ValueError, match="no") as raised:
        await app.run()
    assert raised.value is error
    assert await table(inbox_database, Job, "attempt", "locked_until") == [(2, None)]
    assert handler.ended == [2]
    (released,) = timeline.of(events.Released)
    assert released.given_back is False  # type: ignore[attr-defined]
    assert len(timeline.of(events.Failed)) == 1


BROKEN = [b"[" * 5000 + b"]" * 5000, b"no json", b"", b'{"n": "x"}', b"\xff", b"null"]


@everywhere
async def test_payloads_that_cannot_be_read_are_counted_failures(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    timeline: Timeline,
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 0)
    for payload in BROKEN:
        await inbox_database.execute(
            "INSERT INTO jobs (name, priority, payload) VALUES ('jobs', 5, $1)", payload
        )
    await put(inbox_database, JOBS, 99)
    handler = Handler()
    app = serve(inbox_database, JOBS, handler, workers=20, max_attempts=2, dead_letter="jobs.dead")
    async with TestApp(app) as running:
        assert sorted(handler.numbers) == [0, 99]
        await running.advance(5 * SECOND)
        dead = await running.dead(Job)
        assert [row.payload for row in dead] == BROKEN
        assert {row.attempt for row in dead} == {3}
    assert len(timeline.of(events.Failed)) == 2 * len(BROKEN)
    assert "no json" not in caplog.text
    message = warnings(caplog, "row 2 failed")[0]
    assert "'jobs'" in message


@pytest.mark.parametrize("policy", ["drop", "stop"])
async def test_an_undecodable_payload_has_a_policy_of_its_own(
    inbox_database: Database, virtual_clock: VirtualClock, policy: Any
) -> None:
    await create(inbox_database, Job)
    await inbox_database.execute(
        "INSERT INTO jobs (name, priority, payload) VALUES ('jobs', 5, $1)", b"no json"
    )
    app = serve(inbox_database, JOBS, Handler(), on_decode_error=policy)
    if policy == "stop":
        with pytest.raises(DecodeError, match="row 1"):
            await app.run()
        assert await table(inbox_database, Job, "attempt", "locked_until") == [(2, None)]
    else:
        async with TestApp(app):
            assert await count(inbox_database, Job) == 0


class Rude:
    """A codec of the service's own that raises what it likes."""

    def encode(self, message: Any) -> bytes:
        return b"x"

    def decode(self, payload: bytes, type: Any) -> Any:
        raise LookupError("secret " + payload.decode())


class RudeJob(Inbox, table="rude_jobs", codec=Rude()):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


async def test_whatever_a_codec_raises_is_a_decode_failure(
    inbox_database: Database, virtual_clock: VirtualClock, timeline: Timeline
) -> None:
    queue = InboxQueue(RudeJob, "rude", Work)
    await create(inbox_database, RudeJob)
    await put(inbox_database, queue, 1)
    handler = Handler()
    async with TestApp(serve(inbox_database, queue, handler)) as app:
        await app.advance(2 * SECOND)
        assert handler.runs == []
    failed = timeline.of(events.Failed)[0]
    assert "LookupError" in failed.error  # type: ignore[attr-defined]
    assert "secret" not in failed.error  # type: ignore[attr-defined]


async def test_failures_of_the_database_inside_a_handler_are_failures_like_others(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    await put(inbox_database, JOBS, 1)

    async def write(delivery: Any) -> None:
        await delivery.database.execute("INSERT INTO no_such_table VALUES (1)")

    handler = Handler(write, None)
    async with TestApp(serve(inbox_database, JOBS, handler)) as app:
        await app.advance(2 * SECOND)
        assert handler.attempts == [1, 2]
        assert await count(inbox_database, Job) == 0


async def test_an_attempt_that_is_null_reads_one_with_one_warning(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Loose(Inbox, table="loose_jobs"):
        id: int = role.id(generated=True)
        attempt: int = role.attempt(generated=True)
        locked_until: datetime | None = role.locked_until()
        payload: bytes = role.payload()

    blob, identity, time = {
        "sqlite": ("BLOB", "INTEGER", "TEXT"),
        "postgres": ("bytea", "bigint GENERATED ALWAYS AS IDENTITY", "timestamptz"),
        "mysql": ("longblob", "bigint AUTO_INCREMENT", "datetime(6)"),
    }[inbox_database.dialect]
    await inbox_database.execute(
        f"CREATE TABLE loose_jobs (id {identity} PRIMARY KEY, attempt integer, locked_until {time}, payload {blob})"
    )
    for _ in range(3):
        await inbox_database.execute("INSERT INTO loose_jobs (payload) VALUES ($1)", b'{"n": 1}')
    handler = Handler(by={1: None})
    async with TestApp(serve(inbox_database, InboxQueue(Loose, "loose", Work), handler, workers=3)):
        assert handler.attempts == [1, 1, 1]
        assert await count(inbox_database, Loose) == 0
    assert len(warnings(caplog, "reads 1")) == 1


async def test_two_subscriptions_of_one_service_fail_apart(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job, Plain, Fifo, FifoPlain)
    good, bad = Handler(), Handler(ValueError("no"))
    app = Service("service", Broker(inbox_database))
    app.include(subscriber(JOBS)(good))  # type: ignore[arg-type]
    app.include(subscriber(PLAIN)(bad))  # type: ignore[arg-type]
    async with TestApp(app) as running:
        for n in range(5):
            await running.publish(JOBS, Work(n))
            await running.publish(PLAIN, Work(n))
        await running.advance(MINUTE)
        assert good.numbers == [0, 1, 2, 3, 4]
        assert len(bad.runs) > 10
    assert observed(inbox_database).recording.transactions("claim")
    assert timedelta(0) == virtual_clock.now() - virtual_clock.now()
