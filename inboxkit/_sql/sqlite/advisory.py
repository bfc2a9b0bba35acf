"""The advisory lock form's statements on SQLite: the keys are this process's, so that claims are told
which ones are in work, and read the rows of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from inboxkit._core.lock_key import parse_key
from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches
from inboxkit._sql.lease import RELEASE, Held, Write, claim_threshold
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import Table
from inboxkit.errors import DatabaseError

from . import names, values
from .claim import counted, keys, unfinished

__all__ = ["SqliteAdvisory"]


class SqliteAdvisory:
    """Statements for one queue."""

    kept_by: Literal["process"] = "process"

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._attempt = table.find(Role.ATTEMPT)
        self._processed = table.find(Role.PROCESSED_AT)
        self._threshold = claim_threshold(cap, values.LARGEST)
        self._key = _key(table)

    def candidates(
        self, *, now: Any, limit: int, keys: Sequence[str], ids: Sequence[Any]
    ) -> Statement:
        """Due rows of keys that are not in work."""
        given: list[Any] = []

        def place(value: Any) -> str:
            given.append(value)
            return f"${len(given)}"

        table = self._table
        has_due = table.find(Role.RETRY_AFTER) is not None
        due = place(now) if has_due else ""
        conditions: list[str] = []
        if self._group is not None:
            conditions.append(f"q.{table.get(Role.GROUP).sql} = {place(self._group)}")
        conditions += unfinished(table)
        if keys:
            conditions.append(f"{self._key} NOT IN ({', '.join(map(place, keys))})")
        if ids:
            conditions.append(f"q.{table.id.sql} NOT IN ({', '.join(map(place, ids))})")
        text = self._candidates_text(due, conditions, limit)
        return Statement("claim candidates", text, tuple(given))

    def _candidates_text(self, due: str, conditions: Sequence[str], limit: int) -> str:
        table = self._table
        columns = ", ".join(f"q.{column.sql}" for column in table.columns)
        order = f"ORDER BY {', '.join(f'q.{name}' for name in keys(table))} LIMIT {limit}"
        parts = []
        for part in branches(table, due, due):
            where = " AND ".join(filter(None, (*conditions, part.condition)))
            parts.append(
                f"SELECT {columns} FROM {table.sql} AS q{f' WHERE {where}' if where else ''} {order}"
            )
        # Each part in parentheses of its own: SQLite takes no ORDER BY before a UNION.
        union = " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts)
        source = union if len(parts) > 1 else parts[0]
        return f"SELECT {columns}, {self._key} FROM ({source}) AS q {order}"

    def count(self, ids: Sequence[Any]) -> Statement | None:
        """Count rows by id."""
        if self._attempt is None:
            return None
        places = ", ".join(f"${n}" for n in range(1, len(ids) + 1))
        text = (
            f"UPDATE {self._table.sql} SET "
            f"{self._attempt.sql} = {counted(self._attempt.sql, self._threshold)} "
            f"WHERE {self._table.id.sql} IN ({places})"
        )
        return Statement("claim", text, tuple(ids), returns_rows=False)

    def transaction(self, write: Write) -> Transaction:  # noqa: ARG002
        """The clock is to be read when the write lock is had."""
        return "write"

    def write(self, write: Write, row: Held, *, now: Any) -> Steps[bool]:
        """Write one row by its id."""
        if write.destination is not None and write.destination.group is None:
            return (yield from self._move(write.destination, row))
        answer = yield self._statement(write, row, now)
        return len(answer.rows) > 0

    def _statement(self, write: Write, row: Held, now: Any) -> Statement:
        if write.verb is Verb.FINISH and self._processed is None:
            return self._delete(write.name, row)
        still: tuple[str, ...] = ()
        given: tuple[Any, ...]
        if write == RELEASE:
            assert self._attempt is not None
            name, value, given = self._attempt.sql, f"q.{self._attempt.sql} - $2", (row.value,)
            if row.attempt is not None:
                still, given = (f"q.{name} = $3",), (row.value, row.attempt)
        elif write.verb is Verb.FINISH:
            name, value, given = self._table.get(Role.PROCESSED_AT).sql, "$2", (now,)
        elif write.verb is Verb.POSTPONE:
            name, value, given = self._table.get(Role.RETRY_AFTER).sql, "$2", (row.value,)
        else:
            assert write.destination is not None
            group = self._table.get(Role.GROUP)
            name, value, given = group.sql, "$2", (group.encode(write.destination.group),)
        text = (
            f"UPDATE {self._table.sql} AS q SET {name} = {value} WHERE {self._where(*still)} "
            f"RETURNING {self._table.id.sql}"
        )
        return Statement(write.name, text, (row.id, *given))

    def _delete(self, name: str, row: Held) -> Statement:
        id_ = self._table.id.sql
        text = f"DELETE FROM {self._table.sql} AS q WHERE {self._where()} RETURNING {id_}"
        return Statement(name, text, (row.id,))

    def _where(self, *conditions: str) -> str:
        return " AND ".join((f"q.{self._table.id.sql} = $1", *unfinished(self._table), *conditions))

    def _move(self, destination: Destination, row: Held) -> Steps[bool]:
        """Copy and delete in the script's transaction; SQLite has no DELETE inside a WITH."""
        assert destination.table is not None
        stored = ", ".join(names.quote(info.name) for info in self._table.stored())
        copied = yield Statement(
            "move insert",
            f"INSERT INTO {names.table(destination.table, destination.schema)} ({stored}) "
            f"SELECT {stored} FROM {self._table.sql} AS q WHERE {self._where()} "
            f"RETURNING {self._table.id.sql}",
            (row.id,),
        )
        deleted = yield self._delete("move delete", row)
        if len(copied.rows) != len(deleted.rows):
            raise DatabaseError(
                f"moving a row of {self._table.spec.name!r} to {destination.name!r} copied "
                f"{len(copied.rows)} and deleted {len(deleted.rows)} (a trigger?); nothing was moved",
                statement="move insert",
            )
        return len(deleted.rows) > 0


def _key(table: Table) -> str:
    """The key of row `q`, as text; a NULL is empty text."""
    return f"CAST({' || '.join(_parts(table))} AS TEXT)"


def _parts(table: Table) -> Iterator[str]:
    assert table.spec.advisory_lock is not None
    for part in parse_key(table.spec.advisory_lock):
        if isinstance(part, str):
            yield "'" + part.replace("'", "''") + "'"
            continue
        found = table.spec.column_of(part.name)
        assert found is not None
        name = f"q.{names.quote(found[1].name)}"
        # Bytes in whatever column: as text they need not be UTF-8, and could not be read.
        yield f"CASE typeof({name}) WHEN 'blob' THEN hex({name}) ELSE ifnull({name}, '') END"
