"""Publishes numbered jobs while the chaos runs, through outages too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from chaos_jobs import ONCE, PLAIN, SINGLE, Job, jobs_table, ordered_table
from chaos_sql import LOST, Outside

from inboxkit import InboxSpec, NewRow, insert_statements
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

__all__ = ["Publisher", "make_tables", "publish_plain"]

GROUPS = 8
_NUMBERED = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgres": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "bigint AUTO_INCREMENT PRIMARY KEY",
}
_NOW = {
    "sqlite": "double DEFAULT ((julianday('now') - 2440587.5) * 86400.0)",
    "postgres": "double precision DEFAULT extract(epoch FROM clock_timestamp())",
    "mysql": "double DEFAULT (unix_timestamp(current_timestamp(6)))",
}
_JOB = "queue varchar(20) NOT NULL, number bigint NOT NULL, target varchar(20) NOT NULL, sequence bigint NOT NULL"


def make_tables(url: str, form: str) -> None:
    """The queues' tables as ``inboxkit ddl`` prints them, and what is published, begun and done."""
    with Outside(url) as outside:
        if outside.dialect == "sqlite":
            outside.run("PRAGMA journal_mode = WAL")
        dialect = get_dialect(outside.dialect)
        for spec in _tables(form):
            for text in create_table(dialect, spec):
                outside.run_native(text)
        id, at = f"id {_NUMBERED[outside.dialect]}", f"at {_NOW[outside.dialect]}"
        run = "attempt int NOT NULL, worker bigint NOT NULL"
        outside.run(f"CREATE TABLE published ({_JOB}, {at}, PRIMARY KEY (number))")
        outside.run(f"CREATE TABLE begun ({id}, number bigint NOT NULL, {run}, {at})")
        outside.run(f"CREATE TABLE effects ({id}, {_JOB}, {run}, {at})")
        outside.run("CREATE INDEX effects_number ON effects (number)")
        outside.run("CREATE INDEX begun_worker ON begun (worker)")


def publish_plain(
    outside: Outside, form: str, count: int, *, first: int = 1, seconds: float = 0.0
) -> None:
    """Insert so many jobs for the plain handler, numbered from `first`, each taking so many seconds."""
    numbers = range(first, first + count)
    rows = [jobs_table(form).of(Job(n, PLAIN, n, seconds), queue=PLAIN) for n in numbers]
    values = [value for n in numbers for value in (PLAIN, n, PLAIN, n)]
    places = ", ".join("(?, ?, ?, ?)" for _ in rows)
    with outside.transaction():
        outside.run(
            f"INSERT INTO published (queue, number, target, sequence) VALUES {places}", *values
        )
        for statement in insert_statements(cast(Any, outside.dialect), *rows):
            outside.run_native(statement.text, statement.parameters)


def _tables(form: str) -> list[InboxSpec]:
    ordered = ordered_table(form)
    return [jobs_table(form), *([] if ordered is None else [ordered])]


@dataclass
class Publisher(threading.Thread):
    """Inserts jobs 1 to `total`, in transactions of 1 to 20 of them, by a driver of its own.

    A transaction whose answer was lost is looked up and, if it did not happen, repeated: each job is
    published exactly once, whatever becomes of the server.

    Args:
        url: The database, asked anew for each connection: a fail-over may change it.
        form: The claim form.
        total: How many.
        seed: Chooses queues, groups and durations.
        seconds: The longest that a handler takes.
    """

    url: Callable[[], str]
    form: str
    total: int
    seed: int
    seconds: float = 0.02
    allowed: int = 0
    """Jobs up to this number may be published now; `allow` raises it."""
    published: int = 0
    failure: BaseException | None = None
    _outside: Outside | None = None
    _sequences: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._random = Random(self.seed)
        self._more = threading.Condition()
        self._is_over = False
        self._specs = (jobs_table(self.form), ordered_table(self.form))

    __hash__ = threading.Thread.__hash__

    def allow(self, number: int) -> None:
        """Let it publish the jobs up to this one."""
        with self._more:
            self.allowed = min(number, self.total)
            self._more.notify()

    def finish(self, seconds: float) -> None:
        """Publish what is left, and wait until it is done."""
        self.allow(self.total)
        self.join(seconds)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.published} of {self.total} jobs were published"

    def give_up(self) -> None:
        """The test has failed: end soon."""
        with self._more:
            self._is_over = True
            self._more.notify()
        self.join(10)

    def run(self) -> None:
        """Publish."""
        try:
            while self.published < self.total and not self._is_over:
                with self._more:
                    self._more.wait_for(lambda: self._is_over or self.allowed > self.published)
                    room = self.allowed - self.published
                count = min(room, self._random.randint(1, 20))
                batch = [self._job(self.published + 1 + place) for place in range(count)]
                self._publish(batch)
                self.published += len(batch)
        except BaseException as error:  # noqa: BLE001 - raised again by `finish`
            self.failure = error
        finally:
            self._drop()

    def _job(self, number: int) -> tuple[str, Job]:
        queue = self._random.choices((ONCE, PLAIN, "ordered", SINGLE), (45, 35, 18, 2))[0]
        if queue in ("ordered", SINGLE) and self._specs[1] is None:
            queue = ONCE
        target = f"group {self._random.randrange(GROUPS)}" if queue == "ordered" else queue
        self._sequences[target] = self._sequences.get(target, 0) + 1
        seconds = round(self._random.random() * self.seconds, 4)
        return queue, Job(number, target, self._sequences[target], seconds)

    def _publish(self, batch: list[tuple[str, Job]]) -> None:
        while not self._is_over:
            try:
                outside = self._connect()
                known = outside.value(
                    "SELECT count(*) FROM published WHERE number = ?", batch[0][1].number
                )
                if not known:
                    with outside.transaction():
                        self._insert(outside, batch)
                return
            except LOST:
                if self.url().startswith("sqlite"):
                    raise
                self._drop()
                time.sleep(0.02)

    def _insert(self, outside: Outside, batch: list[tuple[str, Job]]) -> None:
        values = ", ".join("(?, ?, ?, ?)" for _ in batch)
        given = [
            value for queue, job in batch for value in (queue, job.number, job.target, job.sequence)
        ]
        outside.run(
            f"INSERT INTO published (queue, number, target, sequence) VALUES {values}", *given
        )
        rows = [self._row(queue, job) for queue, job in batch]
        for statement in insert_statements(cast(Any, outside.dialect), *rows):
            outside.run_native(statement.text, statement.parameters)

    def _row(self, queue: str, job: Job) -> NewRow:
        jobs, ordered = self._specs
        if queue in (ONCE, PLAIN):
            return jobs.of(job, queue=queue)
        assert ordered is not None
        return ordered.of(job, target=job.target)

    def _connect(self) -> Outside:
        if self._outside is None:
            self._outside = Outside(self.url())
        return self._outside

    def _drop(self) -> None:
        outside, self._outside = self._outside, None
        if outside is not None:
            try:
                outside.close()
            except LOST:
                return
