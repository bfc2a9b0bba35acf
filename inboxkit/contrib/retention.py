"""Deletes finished rows that are old enough, in small batches, beside the services that run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from inboxkit._core.spec import InboxSpec, Role
from inboxkit._runtime.records import describe_error, log
from inboxkit._runtime.timing import sleep_for
from inboxkit._sql import retention as sql
from inboxkit._sql.dead import purge
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table, bind
from inboxkit.abc import DialectName
from inboxkit.database import Database
from inboxkit.errors import DatabaseBusyError, DatabaseError, DeclarationError
from inboxkit.service import Service
from inboxkit.table import Inbox

__all__ = ["delete_finished", "keep_finished", "retention_index"]

Beside: TypeAlias = Callable[[Service], Awaitable[None]]

_BATCH: Final = 500
_MOST: Final = 5000
"""Placeholders of one statement: PostgreSQL takes 65,535, SQLite 32,766."""
_PAUSE: Final = timedelta(milliseconds=100)
_HOUR: Final = timedelta(hours=1)
_TRIES: Final = 3


async def delete_finished(
    database: Database,
    row: type[Inbox] | InboxSpec,
    *,
    older_than: timedelta,
    batch: int = _BATCH,
    pause: timedelta = _PAUSE,
) -> int:
    """Delete the rows of a table that were finished long ago, the oldest first.

    Each batch is a short transaction of its own, of statements by ids, so claims and other instances
    that delete go on beside it. It ends at the first batch that is not full. A row that somebody has
    locked, or whose `processed_at` cannot be read, is passed over; one without `processed_at` is never
    met. By the index of `retention_index`; without it each batch reads the table, and the log warns.

    Args:
        database: Open; its clock says what is old.
        row: The table's class or description.
        older_than: Finished so long ago, or longer; zero: all that are finished.
        batch: Most rows of a transaction; 1 to 5000.
        pause: Between two batches, by the database's clock.

    Returns:
        How many rows were deleted.

    Raises:
        DeclarationError: The table has no `processed_at`, or an argument is out of its range.
        SchemaError: The table or a column is missing.
        ConstraintError: A foreign key refers to a row of the batch; earlier batches are deleted.
        DatabaseError: The database did not answer; likewise.

    Cancellation:
        Between two batches, or the one in flight is rolled back.
    """
    spec = _checked(row, older_than, batch, pause)
    dialect = get_dialect(database.dialect)
    # Anew each time: an index may have come, or gone.
    table = bind(dialect, spec, await database.describe(spec, fresh=True))
    if sql.index_of(table) is None:
        log(
            logging.WARNING,
            "table %r has no index for retention, so each batch reads all of it: %s",
            spec.name,
            dialect.finished_index(spec).text,
        )
    deleting = _Deleting(table, older_than, batch)
    while not await _run_again(database, deleting):
        await sleep_for(database.clock, pause.total_seconds())
    return deleting.count


def keep_finished(
    row: type[Inbox] | InboxSpec,
    keep: timedelta,
    *,
    every: timedelta = _HOUR,
    batch: int = _BATCH,
    pause: timedelta = _PAUSE,
) -> Beside:
    """What `Service.beside` runs so that finished rows are kept so long and no longer.

        app.beside(keep_finished(SendEmail, timedelta(days=30)))

    It deletes at the service's start and then once an interval, as `delete_finished` does, and says in
    the log how many. An outage, or a row that a constraint keeps, is a warning there, and the next
    interval tries again. It is cancelled at a stop, when all handlers have ended.

    Args:
        row: The table's class or description.
        keep: How long finished rows stay.
        every: Between two rounds; jitter shortens it by a tenth at most, so that instances do not meet.
        batch: Most rows of a transaction; 1 to 5000.
        pause: Between two batches.

    Raises:
        DeclarationError: The table has no `processed_at`, or an argument is out of its range.
    """
    spec = _checked(row, keep, batch, pause)
    if not isinstance(every, timedelta) or every <= timedelta(0):
        raise DeclarationError(f"every must be a positive timedelta, not {every!r}")

    async def delete_old_rows(service: Service) -> None:
        database = service.broker.database
        while True:
            try:
                count = await delete_finished(
                    database, spec, older_than=keep, batch=batch, pause=pause
                )
            except DatabaseError as error:
                text = "old rows of table %r are left for the next round: %s"
                log(logging.WARNING, text, spec.name, describe_error(error))
            else:
                level = logging.INFO if count else logging.DEBUG
                log(level, "deleted %d old rows of table %r", count, spec.name)
            await sleep_for(
                database.clock, every.total_seconds() * database.random.uniform(0.9, 1.0)
            )

    return delete_old_rows


def retention_index(dialect: DialectName, row: type[Inbox] | InboxSpec) -> str:
    """The statement that makes the index which `delete_finished` walks.

    Raises:
        DeclarationError: The table has no `processed_at`.
    """
    return get_dialect(dialect).finished_index(_spec(row)).text


def _spec(row: type[Inbox] | InboxSpec) -> InboxSpec:
    spec = row if isinstance(row, InboxSpec) else row.spec
    if spec.processed_at is None:
        raise DeclarationError(
            f"table {spec.name!r} keeps no finished rows: retention needs a processed_at column, given "
            "role.processed_at()"
        )
    return spec


def _checked(
    row: type[Inbox] | InboxSpec, age: timedelta, batch: int, pause: timedelta
) -> InboxSpec:
    for what, value in (("the age of rows to delete", age), ("pause", pause)):
        if not isinstance(value, timedelta) or value < timedelta(0):
            raise DeclarationError(f"{what} must be a timedelta of zero or more, not {value!r}")
    if type(batch) is not int or not 1 <= batch <= _MOST:
        raise DeclarationError(f"batch must be an int of 1 to {_MOST}, not {batch!r}")
    return _spec(row)


@dataclass(slots=True)
class _Deleting:
    """How far it has come."""

    table: Table
    age: timedelta
    batch: int
    before: datetime | None = None
    """What is old; one instant for all batches."""
    after: tuple[Any, Any] | None = None
    """Time and id of the last row that was met, as the driver gave them."""
    count: int = 0

    def steps(self, reading: Reading) -> Steps[tuple[datetime, list[tuple[Any, Any]], int]]:
        """Lock the next rows and delete those that are old; says what is old, which rows were met, and
        how many of them were deleted."""
        before = self.before if self.before is not None else _earlier(reading.now, self.age)
        answer = yield sql.finished(
            self.table, before=self.table.instant(before), after=self.after, limit=self.batch
        )
        met = [(time, id) for id, time in answer.rows]
        ids = [id for time, id in met if self._is_old(time, before)]
        if ids:
            yield from purge(self.table, ids)
        return before, met, len(ids)

    def _is_old(self, time: Any, before: datetime) -> bool:
        """Text of SQLite that is no canonical time compares as it likes."""
        at = self.table.get(Role.PROCESSED_AT).decode(time)
        return isinstance(at, datetime) and at <= before


def _earlier(now: datetime, age: timedelta) -> datetime:
    try:
        return now - age
    except OverflowError:
        return datetime.min.replace(tzinfo=now.tzinfo)


async def _run_again(database: Database, deleting: _Deleting) -> bool:
    """Delete one batch; whether it was the last. A deadlock or a busy file changed nothing."""
    script = Script("retention", deleting.steps, "write")
    for _ in range(_TRIES - 1):
        try:
            done = await database.run(script)
            break
        except DatabaseBusyError:
            continue
    else:
        done = await database.run(script)
    deleting.before, met, count = done
    deleting.count += count
    if met:
        deleting.after = met[-1]
    return len(met) < deleting.batch
