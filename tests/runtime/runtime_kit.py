"""Tables, handlers and services that the tests of the runtime share."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import anyio
import pytest

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    ack,
    insert_rows,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit.database import Record
from inboxkit.every_group import EveryGroup
from inboxkit_testing import ObservedDatabase
from inboxkit_testing.observed import ObservedDriver

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@dataclass
class Work:
    """A message."""

    n: int


class Job(Inbox, table="jobs"):
    """Everything but FIFO and keys."""

    id: int = role.id(generated=True)
    name: str = role.group()
    priority: int = role.priority(default=5)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Plain(Inbox, table="plain_jobs"):
    """No groups and no due times."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class DeadPlain(Plain, table="dead_plain_jobs"):
    """Where the dead letters of `Plain` go."""


class Bare(Inbox, table="bare_jobs"):
    """The least that a lease needs."""

    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Kept(Inbox, table="kept_jobs"):
    """Finished rows stay."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    processed_at: datetime | None = role.processed_at()
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Fifo(Inbox, table="fifo_jobs"):
    """FIFO groups with due times."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class FifoPlain(Inbox, table="fifo_plain_jobs"):
    """FIFO groups without due times."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Keyed(Inbox, table="keyed_jobs"):
    """Order by partition key."""

    id: int = role.id(generated=True)
    account: str = role.partition_key()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "jobs", Work)
DEAD = InboxQueue(Job, "jobs.dead", Work)
PLAIN = InboxQueue(Plain, "plain", Work)
BARE = InboxQueue(Bare, "bare", Work)
KEPT = InboxQueue(Kept, "kept", Work)
FIFO = InboxQueue(Fifo, "fifo", Work)
FIFO_PLAIN = InboxQueue(FifoPlain, "fifo-plain", Work)
KEYED = InboxQueue(Keyed, "keyed", Work)


@dataclass(frozen=True)
class Run:
    """One call of a handler."""

    n: int
    attempt: int | None
    at: float
    """Virtual seconds since the test began."""


Answer = Any
"""An outcome or None; seconds to sleep before an ack; an error to raise; or an async function of the
delivery."""


class Handler:
    """Notes its runs and does what it is told: an answer for each run, the last one for ever.

    Args:
        answers: See `Answer`.
        by: Answers by the message's number, in place of those by run.
    """

    def __init__(self, *answers: Answer, by: dict[int, Answer] | None = None) -> None:
        self._answers = list(answers)
        self._by = by or {}
        self.runs: list[Run] = []
        self.started: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[tuple[int, float]] = []
        self.deliveries: list[Delivery] = []
        self.now = 0
        """Runs at this moment."""
        self.most = 0

    @property
    def numbers(self) -> list[int]:
        """The messages, in order of the runs' starts."""
        return [run.n for run in self.runs]

    @property
    def attempts(self) -> list[int | None]:
        return [run.attempt for run in self.runs]

    @property
    def times(self) -> list[float]:
        return [run.at for run in self.runs]

    async def __call__(self, work: Work, delivery: Delivery) -> Outcome | None:
        has_attempt = delivery.queue.spec.attempt is not None
        at = delivery.clock.monotonic()
        self.runs.append(Run(work.n, delivery.attempt if has_attempt else None, round(at, 3)))
        self.deliveries.append(delivery)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            outcome: Outcome | None = await self._answer(work, delivery)
        except anyio.get_cancelled_exc_class():
            self.cancelled.append((work.n, round(delivery.clock.monotonic(), 3)))
            raise
        finally:
            self.now -= 1
        self.ended.append(work.n)
        return outcome

    async def _answer(self, work: Work, delivery: Delivery) -> Any:
        answer: Any = None
        if work.n in self._by:
            answer = self._by[work.n]
        elif self._answers:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException) or (
            isinstance(answer, type) and issubclass(answer, BaseException)
        ):
            raise answer
        if isinstance(answer, int | float):
            await delivery.clock.sleep(answer)
            return ack()
        if callable(answer):
            return await answer(delivery)
        return answer


class Watch(Handler):
    """Notes the groups, too, and that no group has two rows in work."""

    def __init__(self, *answers: Any, **settings: Any) -> None:
        super().__init__(*answers, **settings)
        self.groups: list[str] = []
        self.in_work: Counter[str] = Counter()
        self.most_of_a_group = 0

    async def __call__(self, work: Work, delivery: Delivery) -> Any:
        assert delivery.group is not None
        self.groups.append(delivery.group)
        self.in_work[delivery.group] += 1
        self.most_of_a_group = max(self.most_of_a_group, self.in_work[delivery.group])
        try:
            return await super().__call__(work, delivery)
        finally:
            self.in_work[delivery.group] -= 1

    def numbers_of(self, group: str) -> list[int]:
        return [run.n for run, at in zip(self.runs, self.groups, strict=True) if at == group]


def serve(
    database: Database,
    queue: InboxQueue[Any, Any],
    handler: Callable[..., Awaitable[Any]],
    *,
    poll_interval: timedelta = SECOND,
    lease: timedelta = timedelta(seconds=30),
    drain_timeout: timedelta = timedelta(seconds=30),
    name: str = "service",
    lifespan: Any = None,
    **settings: Any,
) -> Service:
    """A service of one subscription."""
    broker = Broker(database, lease=lease, poll_interval=poll_interval)
    app = Service(name, broker, drain_timeout=drain_timeout, lifespan=lifespan)
    app.include(subscriber(queue)(handler), **settings)  # type: ignore[arg-type]
    return app


async def create(database: Database, *tables: Any) -> None:
    """Make the tables of these classes or descriptions."""
    for table in tables:
        spec = getattr(table, "spec", table)
        for statement in create_table(get_dialect(database.dialect), spec):
            await database.execute(statement)


async def put(
    database: Database, queue: InboxQueue[Any, Any], *numbers: int, **columns: Any
) -> list[Any]:
    """Insert messages, in one transaction; returns the ids."""
    made = queue.spec if queue.row is None else queue.row
    if queue.spec.group is not None:
        columns[queue.spec.field_of(queue.spec.group)] = queue.name
    async with database.transaction() as tx:
        return await insert_rows(tx, *(made.of(Work(n), **columns) for n in numbers))


async def fill(database: Database, queue: EveryGroup[Any, Any], groups: str, rows: int) -> None:
    """Rows of one group after those of another; the groups are single letters."""
    await create(database, queue.row)
    for group in groups:
        await put(database, queue.group(group), *range(rows))


async def table(database: Database, kind: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of all rows, as the driver gives them, by id."""
    quote = get_dialect(database.dialect).quote
    names = ", ".join(quote(column) for column in columns or ("id", "attempt"))
    found: list[Record] = await database.fetch(
        f"SELECT {names} FROM {quote(kind.spec.table)} ORDER BY {quote('id')}"
    )
    return [tuple(row) for row in found]


async def count(database: Database, kind: Any) -> int:
    """How many rows there are."""
    name = get_dialect(database.dialect).quote(kind.spec.table)
    return int(await database.fetch_value(f"SELECT count(*) FROM {name}"))


def observed(database: Database) -> ObservedDatabase:
    """The same, as what it is in virtual time."""
    assert isinstance(database, ObservedDatabase)
    return database


def another(
    database: Database, instance: str = "other", *, pool_size: int = 10
) -> ObservedDatabase:
    """Another process's database, over the same tables; to be opened."""
    first = observed(database)
    driver = ObservedDriver(
        first.observed._make,
        dialect=first.dialect,
        clock=first.observed.clock,  # type: ignore[arg-type]
        instance=instance,
        server_url=first.observed.server_url,
    )
    other = ObservedDatabase.over(driver, pool_size=pool_size, clock=first.clock, random=Random(7))
    assert isinstance(other, ObservedDatabase)
    other.observed = driver
    return other


@asynccontextmanager
async def killed(app: Service) -> AsyncIterator[None]:
    """Run a service for a block, and then kill its process as far as the database can tell."""
    database = observed(app.broker.database)

    async with anyio.create_task_group() as process:

        async def run() -> None:
            try:
                async with app.running():
                    await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException:
                if not database.is_crashed:
                    raise

        process.start_soon(run)
        yield
        await database.crash()
        process.cancel_scope.cancel()


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Log messages with a text in them."""
    return [r.getMessage() for r in caplog.records if text in r.getMessage()]


def settlements(database: Database) -> list[Any]:
    """Transactions that settle or release, and reads that explain them."""
    return [
        transaction
        for transaction in observed(database).recording.transactions()
        if transaction.name.startswith("settle")
    ]


def approximately(times: Iterable[float]) -> list[float]:
    """To a tenth of a second."""
    return [round(time, 1) for time in times]
