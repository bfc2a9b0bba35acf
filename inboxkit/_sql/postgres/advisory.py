"""The advisory lock form's statements on PostgreSQL.

A claim tries for the keys of due rows in claim order until it has got one, all in one statement: claims
side by side each go past what the others have, where after a list of candidates they would all try
for the same one. The keys are tried above the ordered subselect, which its LIMIT keeps as it is: in one
condition with the others it would lock the key of every due row. UNION ALL answers part after part.

Keys are hashed under the collation "C": a column's own may be nondeterministic and then hash
otherwise than the same text in a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from inboxkit._core.lock_key import parse_key
from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, together
from inboxkit._sql.lease import RELEASE, Held, Row, Write, claim_threshold
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table

from . import names
from .claim import in_group, unfinished, walked
from .values import LARGEST

__all__ = ["PostgresAdvisory"]

_HASH: Final = 'hashtextextended({} COLLATE "C", 0)'
_FAST_START: Final = "LIMIT (SELECT NULL::bigint)"
"""No limit, and none that the planner knows: it plans for the first tenth of the rows, so it reads them in
order rather than all of them to sort them; and it moves no condition past it.
"""
_UNLOCK: Final = f"SELECT pg_advisory_unlock({_HASH.format('$1::text')})"
_BY_JSON: Final = frozenset({"timestamp without time zone", "date"})


class PostgresAdvisory:
    """Statements for one queue; texts are made once."""

    kept_by: Literal["session"] = "session"
    may_miss = False

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._attempt = table.find(Role.ATTEMPT)
        largest = "bigint" if self._attempt is None else self._attempt.info.family
        self._threshold = claim_threshold(cap, LARGEST[largest])
        self._key = _key(table)
        self._lock = self._lock_text()
        self._take = self._take_text()
        self._writes: dict[Write, str] = {}

    def lock(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Statement:  # noqa: ARG002
        """It stops at the first key that it gets, however far that is."""
        text, places = self._lock
        given = places.values(now=now, group=self._group, aside=list(aside))
        return Statement("claim lock", text, given)

    def _lock_text(self) -> tuple[str, _Places]:
        table, places = self._table, _Places()
        id_, due = table.id, table.find(Role.RETRY_AFTER)
        others = f"q.{id_.sql} <> ALL({places('aside', f'{id_.info.cast}[]')})"
        conditions = [*self._waiting(places), others]
        now = "" if due is None else places("now", due)
        parts = [
            f"SELECT q.{id_.sql}, {self._key} FROM {table.sql} AS q"
            f"{_all(*conditions, part.condition)} "
            f"ORDER BY {', '.join(walked(table, 'q.', part))} {_FAST_START}"
            for part in branches(table, now, "")
        ]
        ready = parts[0] if len(parts) == 1 else " UNION ALL ".join(f"({part})" for part in parts)
        return (
            f"SELECT ready.id, ready.key FROM ({ready}) AS ready(id, key) "
            f"WHERE pg_try_advisory_lock({_HASH.format('ready.key')}) LIMIT 1"
        ), places

    def nobodys(self, ids: Sequence[Any]) -> Statement:
        """A shared lock until the transaction ends keeps claims away."""
        id_ = self._table.id
        text = (
            f"SELECT ready.id FROM (SELECT q.{id_.sql}, {self._key} FROM {self._table.sql} AS q "
            f"WHERE q.{id_.sql} = ANY($1::{id_.info.cast}[]) OFFSET 0) AS ready(id, key) "
            f"WHERE pg_try_advisory_xact_lock_shared({_HASH.format('ready.key')})"
        )
        return Statement("dead probe", text, (list(ids),))

    def unlock(self, key: Any) -> Statement:
        """Answers false where the session did not hold it."""
        return Statement("unlock", _UNLOCK, (key,))

    def take(self, id: Any, key: Any, *, now: Any) -> Steps[Sequence[Row]]:
        """One statement, with a snapshot from after the lock was got."""
        text, places = self._take
        given = places.values(id=id, key=key, now=now, group=self._group)
        answer = yield Statement("claim", text, given)
        return answer.rows

    def _take_text(self) -> tuple[str, _Places]:
        table, places = self._table, _Places()
        due = table.find(Role.RETRY_AFTER)
        where = _all(
            f"q.{table.id.sql} = {places('id', table.id)}",
            *self._waiting(places),
            "" if due is None else together(table, places("now", due), ""),
            # The row may have got another key since it was a candidate.
            f"{self._key} = {places('key', 'text')}",
        )
        columns = ", ".join(f"q.{column.sql}" for column in table.columns)
        select = f"SELECT {columns} FROM {table.sql} AS q{where}"
        if self._attempt is None:
            return select, places
        attempt = self._attempt.sql
        return (
            f"WITH due AS ({select} FOR NO KEY UPDATE OF q SKIP LOCKED), "
            f"taken AS (UPDATE {table.sql} AS q SET {attempt} = CASE "
            f"WHEN q.{attempt} > {self._threshold} THEN q.{attempt} "
            f"ELSE COALESCE(q.{attempt}, 1) + 1 END "
            f"WHERE q.{table.id.sql} = ANY(ARRAY(SELECT due.{table.id.sql} FROM due))) "
            f"SELECT {', '.join(f'due.{column.sql}' for column in table.columns)} FROM due"
        ), places

    def _waiting(self, places: _Places) -> Iterator[str]:
        if self._group is not None:
            group = self._table.get(Role.GROUP)
            yield in_group(self._table, "q", places("group", group))
        yield from unfinished(self._table, "q")

    def transaction(self, write: Write) -> Transaction:  # noqa: ARG002
        """Every write is one statement."""
        return "none"

    def write(self, write: Write, row: Held, *, now: Any) -> Steps[bool]:
        """Write one row by its id."""
        text = self._writes.get(write)
        if text is None:
            text = self._writes[write] = self._write_text(write)
        given: tuple[Any, ...] = (row.id,)
        destination = write.destination
        if write == RELEASE:
            given += (row.value, row.attempt)
        elif write.verb is Verb.POSTPONE:
            given += (row.value,)
        elif write.verb is Verb.FINISH and self._table.spec.processed_at is not None:
            given += (now,)
        elif destination is not None and destination.group is not None:
            given += (self._table.get(Role.GROUP).encode(destination.group),)
        answer = yield Statement(write.name, text, given)
        return len(answer.rows) > 0

    def _write_text(self, write: Write) -> str:
        table = self._table
        if write.destination is not None and write.destination.group is None:
            return self._move_text(write.destination)
        if write.verb is Verb.FINISH and table.spec.processed_at is None:
            return f"DELETE FROM {table.sql} AS q{self._where()} RETURNING q.{table.id.sql}"
        column, value, still = self._written(write), "$2", ""
        if write == RELEASE:
            value = f"q.{column.sql} - $2"
            still = f"($3::{column.info.cast} IS NULL OR q.{column.sql} = $3::{column.info.cast})"
        return (
            f"UPDATE {table.sql} AS q SET {column.sql} = {value}::{column.info.cast}"
            f"{self._where(still)} RETURNING q.{table.id.sql}"
        )

    def _written(self, write: Write) -> BoundColumn:
        """The column that a write changes."""
        match write.verb:
            case Verb.FINISH:
                return self._table.get(Role.PROCESSED_AT)
            case Verb.POSTPONE:
                return self._table.get(Role.RETRY_AFTER)
            case Verb.MOVE:
                return self._table.get(Role.GROUP)
            case _:
                return self._table.get(Role.ATTEMPT)

    def _where(self, *conditions: str) -> str:
        id_ = self._table.id
        held = f"q.{id_.sql} = $1::{id_.info.cast}"
        return _all(held, *unfinished(self._table, "q"), *conditions)

    def _move_text(self, destination: Destination) -> str:
        """Delete here and insert there in one statement, every column as it stands."""
        assert destination.table is not None
        table = self._table
        stored = [names.quote(info.name) for info in table.stored()]
        # OVERRIDING SYSTEM VALUE: the id goes along even where the table would make its own.
        return (
            f"WITH moved AS (DELETE FROM {table.sql} AS q{self._where()} "
            f"RETURNING {', '.join(f'q.{name}' for name in stored)}) "
            f"INSERT INTO {names.table(destination.table, destination.schema)} "
            f"({', '.join(stored)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {', '.join(stored)} FROM moved RETURNING {table.id.sql}"
        )


class _Places:
    """The parameters that a text has come to use, numbered in that order."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def __call__(self, name: str, column: BoundColumn | str) -> str:
        if name not in self._names:
            self._names.append(name)
        cast = column if isinstance(column, str) else column.info.cast
        return f"${self._names.index(name) + 1}::{cast}"

    def values(self, **given: Any) -> tuple[Any, ...]:
        return tuple(given[name] for name in self._names)


def _all(*conditions: str) -> str:
    kept = [condition for condition in conditions if condition]
    return f" WHERE {' AND '.join(kept)}" if kept else ""


def _key(table: Table) -> str:
    """The key of row `q`; concat takes NULL for empty text."""
    assert table.spec.advisory_lock is not None
    parts = []
    for part in parse_key(table.spec.advisory_lock):
        if isinstance(part, str):
            parts.append(_literal(part))
            continue
        found = table.spec.column_of(part.name)
        assert found is not None
        column = next(column for column in table.columns if column.name == found[1].name)
        parts.append(_rendered(column))
    return f"concat({', '.join(parts)})"


def _rendered(column: BoundColumn) -> str:
    """A column as text that does not hang on the session's settings, or two services whose sessions
    differ would lock two keys for one row."""
    name, family = f"q.{column.sql}", column.info.family
    if family == "timestamp with time zone":
        return f"to_json({name} AT TIME ZONE 'UTC') #>> '{{}}'"
    if family in _BY_JSON:
        return f"to_json({name}) #>> '{{}}'"
    return f"encode({name}, 'hex')" if family == "bytea" else name


def _literal(text: str) -> str:
    quoted = text.replace("'", "''")
    # Read alike whatever standard_conforming_strings says.
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"
