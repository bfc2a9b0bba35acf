"""The lease form's statements on SQLite.

One writer at a time holds the whole file, so nothing here guards against another claim: a claim
reads and then writes under the write lock that its transaction took first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import RELEASE, Held, Row, Write, claim_threshold
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table
from inboxkit.errors import DatabaseError

from . import names, values

__all__ = ["SqliteLease"]


class SqliteLease:
    """Statements for one queue."""

    claim_transaction: Transaction = "write"
    locks_rows = False
    alone: tuple[Statement, ...] = ()

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._lease = table.get(Role.LOCKED_UNTIL).sql
        self._attempt = table.find(Role.ATTEMPT)
        self._processed = table.find(Role.PROCESSED_AT)
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._threshold = claim_threshold(cap, values.LARGEST)
        self._select = _claim_select(table, has_group=group is not None)

    def claim(self, *, now: Any, expiry: Any, limit: int) -> Steps[Sequence[Row]]:
        """Read due rows in claim order, then lease them by id.

        Not one UPDATE … RETURNING: that answers in no order, and only what stands in a row after
        the count, which does not tell a row at its cap from one past it.
        """
        given = (now,) if self._group is None else (now, self._group)
        answer = yield Statement("claim due", f"{self._select} LIMIT {int(limit)}", given)
        if answer.rows:
            ids = tuple(row[0] for row in answer.rows)
            yield Statement(
                "claim", self._claim_update(len(ids)), (expiry, *ids), returns_rows=False
            )
        return answer.rows

    def _claim_update(self, count: int) -> str:
        sets = [f"{self._lease} = $1"]
        if self._attempt is not None:
            sets.append(f"{self._attempt.sql} = {_counted(self._attempt.sql, self._threshold)}")
        ids = ", ".join(f"${n + 2}" for n in range(count))
        return (
            f"UPDATE {self._table.sql} SET {', '.join(sets)} WHERE {self._table.id.sql} IN ({ids})"
        )

    def renew(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Prolong, where the fence holds."""
        held, parameters = _held(rows)
        text = (
            f"{held} UPDATE {self._table.sql} AS q SET {self._lease} = held.value FROM held "
            f"WHERE {self._fence()}"
        )
        if self._table.spec.fifo:
            parameters = (*parameters, now)
            text += f" AND {self._alone_in_group(len(parameters))}"
        return Statement("renew", f"{text} RETURNING {self._table.id.sql}", parameters)

    def still_held(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Not asked for: nobody else's lock hides a row here, so what was not renewed is lost."""
        held, parameters = _held(rows)
        text = f"{held} SELECT q.{self._table.id.sql} FROM held CROSS JOIN {self._table.sql} AS q"
        text += f" WHERE {self._fence()}"
        if self._table.spec.fifo:
            parameters = (*parameters, now)
            text += f" AND {self._alone_in_group(len(parameters))}"
        return Statement("renew check", text, parameters)

    def _alone_in_group(self, now: int) -> str:
        group, id_ = self._table.get(Role.GROUP).sql, self._table.id.sql
        unfinished = f" AND w.{self._processed.sql} IS NULL" if self._processed else ""
        return (
            f"NOT EXISTS (SELECT 1 FROM {self._table.sql} AS w WHERE w.{group} = q.{group} "
            f"AND w.{id_} <> q.{id_} AND w.{self._lease} > ${now}{unfinished})"
        )

    def is_single(self, write: Write) -> bool:
        """A move between tables is two statements."""
        return write.destination is None or write.destination.group is not None

    def write(self, write: Write, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Write where the fence holds."""
        if write.destination is not None and write.destination.group is None:
            return (yield from self._move(write.destination, rows))
        answer = yield self._statement(write, rows, now)
        return [row[0] for row in answer.rows]

    def _statement(self, write: Write, rows: Sequence[Held], now: Any) -> Statement:
        if write.verb is Verb.FINISH and self._processed is None:
            return self._delete(rows)
        held, parameters = _held(rows)
        sets = [f"{self._lease} = {'held.value' if write.verb is Verb.HOLD else 'NULL'}"]
        match write.verb:
            case Verb.FINISH:
                assert self._processed is not None
                sets.append(f"{self._processed.sql} = ${len(parameters) + 1}")
                parameters = (*parameters, now)
            case Verb.POSTPONE:
                sets.append(f"{self._table.get(Role.RETRY_AFTER).sql} = held.value")
            case Verb.MOVE:
                assert write.destination is not None
                group = self._table.get(Role.GROUP)
                sets.append(f"{group.sql} = ${len(parameters) + 1}")
                parameters = (*parameters, group.encode(write.destination.group))
            case _ if write == RELEASE and self._attempt is not None:
                sets.append(f"{self._attempt.sql} = q.{self._attempt.sql} - held.value")
            case _:
                pass
        # Row values in IN (VALUES …) would scan the table; the join finds each row by its id.
        text = (
            f"{held} UPDATE {self._table.sql} AS q SET {', '.join(sets)} FROM held "
            f"WHERE {self._fence()} RETURNING {self._table.id.sql}"
        )
        return Statement(write.name, text, parameters)

    def _delete(self, rows: Sequence[Held]) -> Statement:
        held, parameters = _held(rows)
        text = (
            f"{held} DELETE FROM {self._table.sql} WHERE {self._table.id.sql} IN "
            f"({self._found(self._table.id.sql)}) RETURNING {self._table.id.sql}"
        )
        return Statement(Verb.FINISH.value, text, parameters)

    def _found(self, column: str) -> str:
        # CROSS JOIN keeps the order: the few held rows first, each then found by its id.
        return (
            f"SELECT q.{column} FROM held CROSS JOIN {self._table.sql} AS q WHERE {self._fence()}"
        )

    def _move(self, destination: Destination, rows: Sequence[Held]) -> Steps[list[Any]]:
        """Copy and delete in the script's transaction; SQLite has no DELETE inside a WITH."""
        assert destination.table is not None
        held, parameters = _held(rows)
        stored = [names.quote(info.name) for info in self._table.stored()]
        taken = [f"q.{name}" if name.lower() != self._lease.lower() else "NULL" for name in stored]
        id_ = self._table.id.sql
        copied = yield Statement(
            "dead letter insert",
            f"{held} INSERT INTO {names.table(destination.table, destination.schema)} "
            f"({', '.join(stored)}) SELECT {', '.join(taken)} FROM held "
            f"CROSS JOIN {self._table.sql} AS q WHERE {self._fence()} RETURNING {id_}",
            parameters,
        )
        deleted = yield self._delete(rows)
        moved = {row[0] for row in copied.rows}
        gone = {row[0] for row in deleted.rows}
        if moved != gone:
            raise DatabaseError(
                f"moving {len(gone)} rows of {self._table.spec.name!r} to {destination.name!r} copied "
                f"{len(moved)} (a trigger?); nothing was moved",
                statement="dead letter insert",
            )
        return list(gone)

    def unfinished(self, ids: Sequence[Any]) -> Statement:
        """Read which rows are there."""
        places = ", ".join(f"${n + 1}" for n in range(len(ids)))
        unfinished = f" AND {self._processed.sql} IS NULL" if self._processed else ""
        id_ = self._table.id.sql
        return Statement(
            "settle check",
            f"SELECT {id_} FROM {self._table.sql} WHERE {id_} IN ({places}){unfinished}",
            tuple(ids),
        )

    def _fence(self) -> str:
        fence = f"q.{self._table.id.sql} = held.id AND q.{self._lease} = held.token"
        if self._attempt is not None:
            fence += f" AND (held.attempt IS NULL OR q.{self._attempt.sql} = held.attempt)"
        return fence


def _counted(attempt: str, threshold: int) -> str:
    # Text in the column would count as more than any number and so as past every cap.
    return (
        f"CASE WHEN typeof({attempt}) <> 'integer' THEN 2 WHEN {attempt} > {threshold} "
        f"THEN {attempt} ELSE {attempt} + 1 END"
    )


def _held(rows: Sequence[Held]) -> tuple[str, tuple[Any, ...]]:
    """The rows as a table `held`: one line for each token that may stand in a row."""
    parameters = tuple(
        value
        for row in rows
        for token in row.tokens
        for value in (row.id, token, row.attempt, row.value)
    )
    lines = ", ".join(
        f"(${n + 1}, ${n + 2}, ${n + 3}, ${n + 4})" for n in range(0, len(parameters), 4)
    )
    return f"WITH held(id, token, attempt, value) AS (VALUES {lines})", parameters


def _claim_select(table: Table, *, has_group: bool) -> str:
    columns = ", ".join(f"q.{column.sql}" for column in table.columns)
    conditions = " AND ".join(_fifo(table) if table.spec.fifo else _due(table, has_group=has_group))
    keys = ", ".join(f"q.{column.sql}" for column in _keys(table))
    return f"SELECT {columns} FROM {table.sql} AS q WHERE {conditions} ORDER BY {keys}"


def _keys(table: Table) -> Iterator[BoundColumn]:
    """The claim order; NULL sorts first on SQLite by itself."""
    for role in (Role.PRIORITY, Role.RETRY_AFTER, Role.ID):
        column = table.find(role)
        if column is not None:
            yield column


def _due(table: Table, *, has_group: bool) -> Iterator[str]:
    if has_group:
        yield f"q.{table.get(Role.GROUP).sql} = $2"
    yield from _unfinished(table)
    yield from _free(table)


def _unfinished(table: Table) -> Iterator[str]:
    if (processed := table.find(Role.PROCESSED_AT)) is not None:
        yield f"q.{processed.sql} IS NULL"
    if table.id.info.nullable:
        # No write could find it again by its id, and it would stand first for ever.
        yield f"q.{table.id.sql} IS NOT NULL"


def _free(table: Table) -> Iterator[str]:
    if (due := table.find(Role.RETRY_AFTER)) is not None:
        before = f"q.{due.sql} <= $1"
        yield f"(q.{due.sql} IS NULL OR {before})" if due.info.nullable else before
    lease = table.get(Role.LOCKED_UNTIL).sql
    yield f"(q.{lease} IS NULL OR q.{lease} <= $1)"


def _fifo(table: Table) -> Iterator[str]:
    """The group's head or nothing: also where the head is not due, or any row of it is in work."""
    group, lease = table.get(Role.GROUP).sql, table.get(Role.LOCKED_UNTIL).sql
    unfinished = "".join(f" AND {condition}" for condition in _unfinished(table))
    keys = ", ".join(f"q.{column.sql}" for column in _keys(table))
    yield (
        f"q.{table.id.sql} = (SELECT q.{table.id.sql} FROM {table.sql} AS q "
        f"WHERE q.{group} = $2{unfinished} ORDER BY {keys} LIMIT 1)"
    )
    yield from _free(table)
    yield (
        f"NOT EXISTS (SELECT 1 FROM {table.sql} AS q WHERE q.{group} = $2 "
        f"AND q.{lease} > $1{unfinished})"
    )
