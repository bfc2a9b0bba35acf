"""Writes to dead letters in bounded batches, beside the services that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from inboxkit._advisory import advisory_keys
from inboxkit._core.group_shape import GroupShape
from inboxkit._core.spec import Role
from inboxkit._sql.dead import find, live, lock, move_back, purge, requeue
from inboxkit._sql.scope import Scope, asked
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.database import Database
from inboxkit.errors import ConstraintError, DatabaseBusyError

from .places import DeadLetter

__all__ = [
    "IN_WORK",
    "Choice",
    "Write",
    "Writer",
    "count_chosen",
    "purging",
    "requeuing",
]

BATCH: Final = 500
"""Rows of one transaction."""
PAGE: Final = 10_000
"""Ids that are read at once."""
_TRIES: Final = 3
IN_WORK: Final = "in work, or locked by somebody: left alone"
_GONE: Final = "no such dead letter"

Rows: TypeAlias = Sequence[tuple[Any, str | None]]
"""Driver ids, each with its group."""
Write: TypeAlias = Callable[[Rows, Any], Steps[dict[Any, str]]]
"""Writes locked rows, given the clock's reading; returns those that it left, and why."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters; all of them where nothing is said."""

    ids: tuple[Any, ...] = ()
    """Driver values."""
    older_than: timedelta | None = None
    """Only those whose due time is so long ago."""
    limit: int | None = None
    """Most rows."""


async def count_chosen(
    database: Database, table: Table, letter: DeadLetter, choice: Choice, *, most: int
) -> int:
    """How many dead letters are chosen; no more than `most` are counted."""
    limit = min(most, choice.limit or most)
    due = await _due_before(database, choice)
    wanted = find(table, letter.scope, limit=limit, ids=choice.ids, due_before=due)

    def steps(_reading: Reading) -> Steps[int]:
        answer = yield from asked(table, wanted)
        return len(answer.rows)

    return await database.run(Script("dead count", steps, "read"))


class Writer:
    """Writes chosen dead letters, a transaction for each batch; rows in work are left alone.

    Args:
        database: Open.
        table: The dead letter's.
        letter: What they are.
        write: What is done to them.
    """

    def __init__(self, database: Database, table: Table, letter: DeadLetter, write: Write) -> None:
        self._database = database
        self._table = table
        self._scope = letter.scope
        self._write = write
        self.count = 0
        """Rows written."""
        self.left: dict[Any, str] = {}
        """Others, by driver id, with the reason."""

    async def run(self, choice: Choice) -> None:
        """Write those that are chosen.

        Raises:
            DialectError: Another process keeps the keys of the rows in work (advisory lock form, SQLite).
            DatabaseError: The database did not answer; `count` and `left` say what was done until then,
                and for OutcomeUnknownError perhaps one batch more.
        """
        with ExitStack() as resources:
            if self._table.spec.form == "advisory lock":
                keys = await advisory_keys(self._database, self._table.spec)
                if keys is not None:
                    resources.callback(keys.close)
            async for ids in _batches(self._database, self._table, self._scope, choice):
                await self._write_batch(ids)

    async def _write_batch(self, ids: Sequence[Any]) -> None:
        script = Script("dead write", partial(self._steps, ids), "write")
        try:
            left = await _run_again(self._database, script)
        except ConstraintError as error:
            if len(ids) == 1:
                self.left[ids[0]] = str(error)
                return
            # One of them is refused: each by itself, so that the others are not.
            for id in ids:
                await self._write_batch([id])
            return
        self.left |= left
        self.count += len(ids) - len(left)

    def _steps(self, ids: Sequence[Any], reading: Reading) -> Steps[dict[Any, str]]:
        now = self._table.instant(reading.now)
        rows = yield from _locked(self._table, self._scope, ids, now)
        had = {id for id, _group in rows}
        missing = [id for id in ids if id not in had]
        left = {}
        if missing:
            answer = yield find(self._table, self._scope, limit=len(missing), ids=missing)
            there = {row[0] for row in answer.rows}
            left = {id: IN_WORK if id in there else _GONE for id in missing}
        if rows:
            left |= yield from self._write(rows, now)
        return left


async def _batches(
    database: Database, table: Table, scope: Scope, choice: Choice
) -> AsyncIterator[list[Any]]:
    """Driver ids; each is answered once, so that rows that are left alone are not met again."""
    if choice.ids:
        given = islice(dict.fromkeys(choice.ids), choice.limit)
        while batch := list(islice(given, BATCH)):
            yield batch
        return
    due = await _due_before(database, choice)
    after, rest = None, choice.limit
    while rest is None or rest > 0:
        size = PAGE if rest is None else min(PAGE, rest)
        wanted = find(table, scope, limit=size, after=after, due_before=due)

        def steps(_reading: Reading, wanted: Any = wanted) -> Steps[list[Any]]:
            answer = yield from asked(table, wanted)
            return [row[0] for row in answer.rows]

        ids = await database.run(Script("dead list", steps, "read"))
        for start in range(0, len(ids), BATCH):
            yield ids[start : start + BATCH]
        if len(ids) < size:
            return
        after, rest = ids[-1], None if rest is None else rest - len(ids)


async def _due_before(database: Database, choice: Choice) -> Any:
    if choice.older_than is None:
        return None
    return (await database.read_clock()).now - choice.older_than


async def _run_again(database: Database, script: Script[dict[Any, str]]) -> dict[Any, str]:
    """A deadlock or a busy file changed nothing."""
    for _ in range(_TRIES - 1):
        try:
            return await database.run(script)
        except DatabaseBusyError:
            pass
    return await database.run(script)


def _locked(table: Table, scope: Scope, ids: Sequence[Any], now: Any) -> Steps[Rows]:
    answer = yield lock(table, scope, ids, now=now)
    group = table.find(Role.GROUP)
    rows = [(row[0], row[1] if group is None else group.decode(row[1])) for row in answer.rows]
    # The database may take other texts for the same.
    asked = set(ids)
    rows = [(id, name) for id, name in rows if id in asked and scope.holds(name)]
    if rows and table.spec.form == "advisory lock":
        made = table.dialect.advisory(table, group=None, cap=None)
        if made.kept_by == "session":
            answer = yield made.nobodys([id for id, _group in rows])
            nobodys = {row[0] for row in answer.rows}
            rows = [(id, name) for id, name in rows if id in nobodys]
    return rows


def purging(table: Table) -> Write:
    """Delete them."""

    def write(rows: Rows, _now: Any) -> Steps[dict[Any, str]]:
        yield from purge(table, [id for id, _group in rows])
        return {}

    return write


def requeuing(table: Table, letter: DeadLetter, *, target: Table, group: str | None) -> Write:
    """Give them back to a queue, as rows that were never tried.

    Args:
        table: The dead letter's.
        letter: What they are.
        target: The queue's table.
        group: The queue's group; None: each to the group whose dead letter it is, or the table has no
            groups.
    """
    if letter.is_table:
        return _moving(table, target)
    shape = letter.scope.shape

    def write(rows: Rows, now: Any) -> Steps[dict[Any, str]]:
        by_group: dict[str, list[Any]] = {}
        for id, name in rows:
            to = group if group is not None else _own_group(shape, name)
            by_group.setdefault(to, []).append(id)
        for to, ids in by_group.items():
            yield requeue(table, ids, to, now=now)
        return {}

    return write


def _own_group(shape: GroupShape | None, name: str | None) -> str:
    assert shape is not None, "a group is given where there is no shape"
    assert name is not None, "a row of a shape has a group"
    return name[len(shape.prefix) : len(name) - len(shape.suffix)]


def _moving(table: Table, target: Table) -> Write:
    def write(rows: Rows, now: Any) -> Steps[dict[Any, str]]:
        answer = yield live(target, [id for id, _group in rows])
        taken = {row[0] for row in answer.rows}
        ids = [id for id, _group in rows if id not in taken]
        if ids:
            yield from move_back(table, target, ids, now=now)
        why = f"table {target.spec.name!r} has a row of this id: nothing was changed"
        return {id: why for id, _group in rows if id in taken}

    return write
