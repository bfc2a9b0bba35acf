"""Faults that the property tests found, each as its shortest schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
import pytest

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, events, role, subscriber
from inboxkit._forms import LeaseForm
from inboxkit.abc import Claim
from inboxkit_testing import VirtualClock, recorded

LEASE = timedelta(seconds=4)
SECOND = timedelta(seconds=1)


class Job(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    account: str = role.partition_key()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@dataclass
class Work:
    seconds: float


JOBS = InboxQueue(Job, "jobs", Work, lease=LEASE)

SCHEMA = {
    "sqlite": """CREATE TABLE jobs (id INTEGER PRIMARY KEY, account TEXT NOT NULL,
        locked_until TEXT, payload BLOB NOT NULL)""",
    "postgres": """CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account text NOT NULL, locked_until timestamptz, payload bytea NOT NULL)""",
    "mysql": """CREATE TABLE jobs (id bigint AUTO_INCREMENT PRIMARY KEY,
        account text NOT NULL, locked_until datetime(6), payload longblob NOT NULL)""",
}


class Bench:
    """A service whose handler sleeps as long as its message says, and the log of its handlers."""

    def __init__(self, database: Database) -> None:
        self.log: list[str] = []
        self.service = Service("app", Broker(database))

        @subscriber(JOBS)
        async def work(message: Work) -> None:
            self.log.append(f"start {message.seconds:g}")
            await anyio.sleep(message.seconds)
            self.log.append(f"end {message.seconds:g}")

        async def create(db: Database) -> None:
            await db.execute(SCHEMA[db.dialect])

        self.service.on_startup(create)
        self.service.include(work, workers_by_key=1)

    async def publish(self, *seconds: float) -> None:
        for each in seconds:
            await self.service.broker.publish(JOBS, Work(each), account="x")


async def test_a_row_whose_claim_was_answered_after_its_hold_reaches_no_handler(
    inbox_database: Database, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(inbox_database)
    claim = LeaseForm.claim

    async def answered_late(self: LeaseForm, *, limit: int) -> Claim:
        answer = await claim(self, limit=limit)
        if answer.rows:
            monkeypatch.undo()
            await virtual_clock.sleep(LEASE.total_seconds())
        return answer

    monkeypatch.setattr(LeaseForm, "claim", answered_late)
    with recorded() as timeline:
        async with bench.service.running():
            await bench.publish(0)
            await virtual_clock.advance(LEASE)
            assert bench.log == []
            await virtual_clock.advance(2 * SECOND)
            assert bench.log == ["start 0", "end 0"]
    told = [type(event) for event in timeline if isinstance(event, events.RowEvent)]
    assert told == [events.Claimed, events.Lost, events.Claimed, events.Finished]


async def test_a_stop_that_skips_the_drain_gives_back_rows_that_wait_behind_a_cancelled_handler(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    bench = Bench(inbox_database)
    async with bench.service.running() as handle:
        await bench.publish(10, 0)
        await virtual_clock.settle()
        assert bench.log == ["start 10"]
        handle.cancel()
        await virtual_clock.settle()
    assert bench.log == ["start 10"]
    held = "SELECT count(*) FROM jobs WHERE locked_until IS NOT NULL"
    assert await inbox_database.fetch_value(held) == 0
    assert await inbox_database.fetch_value("SELECT count(*) FROM jobs") == 2
