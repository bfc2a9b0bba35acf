"""The row lock form's statements on PostgreSQL.

Locks last as long as the transaction, so a claim must lock no row that it does not take. Where due
times are looked at in two parts (`branches`), the second part therefore locks no more than what the
first, whose rows come before, has left to be had.

FOR UPDATE rather than FOR NO KEY UPDATE: another transaction can then neither delete the row nor
point a foreign key at it while it is in work, and would have to wait at its settlement otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.branches import Part, branches, together
from inboxkit._sql.lease import Row, Write
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table

from . import names
from .claim import head, in_group, unfinished, walked
from .guard import guard
from .values import LARGEST

__all__ = ["PostgresRowLock"]

_LOCK: Final = "FOR UPDATE OF q SKIP LOCKED"


class PostgresRowLock:
    """Statements for one queue; texts are made once."""

    def __init__(self, table: Table, *, group: str | None) -> None:
        self._table = table
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._claims: dict[int, str] = {}
        self._writes: dict[Write, str] = {}

    def claim(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Steps[Sequence[Row]]:
        """Lock due rows; of a FIFO group its head, where the group has no row in work.

        The guard lasts as long as the transaction, so it is kept while the row is in work.
        """
        if self._table.spec.fifo:
            assert self._group is not None
            answer = yield guard(self._table, self._group)
            if not answer.rows[0][0]:
                return ()
        text = self._claims.get(limit)
        if text is None:
            text = self._claims[limit] = self._claim_text(limit)
        given: tuple[Any, ...] = (list(aside),)
        if self._group is not None:
            given = (*given, self._group)
        if self._table.find(Role.RETRY_AFTER) is not None:
            given = (*given, now)
        answer = yield Statement("claim", text, given)
        return answer.rows

    def of_group(self, group: str) -> PostgresRowLock:
        """Shares the texts. Only groups do: without one, a claim is another text."""
        other = copy(self)
        other._group = self._table.get(Role.GROUP).encode(group)
        return other

    def after(self) -> Statement | None:
        """The guard ends with the transaction."""
        return None

    def _claim_text(self, limit: int) -> str:
        """``$1``: ids set aside; then the group, then now, where the table has them."""
        table = self._table
        columns = ", ".join(f"q.{column.sql}" for column in table.columns)
        select = f"SELECT {columns} FROM {table.sql} AS q WHERE {self._not_aside()}"
        if table.spec.fifo:
            return f"{select}{_and(*self._fifo())} {_LOCK}"
        select += _and(*self._waiting())
        parts = list(branches(table, self._now(), ""))
        if len(parts) == 1:
            return f"{select}{self._due(parts[0], str(limit))}"
        first, second = (
            f"{select}{self._due(parts[0], str(limit))}",
            f"{select}{self._due(parts[1], f'(SELECT {limit} - count(*) FROM part1)')}",
        )
        if limit == 1:
            none_before = "NOT EXISTS (SELECT FROM part1)"
            second = f"{select}{self._due(parts[1], '1', none_before)}"
        return (
            f"WITH part1 AS ({first}), part2 AS ({second}) "
            "SELECT * FROM part1 UNION ALL SELECT * FROM part2"
        )

    def _due(self, part: Part, limit: str, also: str = "") -> str:
        order = ", ".join(walked(self._table, "q.", part))
        return f"{_and(part.condition, also)} ORDER BY {order} LIMIT {limit} {_LOCK}"

    def _fifo(self) -> Iterator[str]:
        yield f"q.{self._table.id.sql} = {head(self._table, self._named())}"
        yield together(self._table, self._now(), "")

    def _waiting(self) -> Iterator[str]:
        if self._group is not None:
            yield in_group(self._table, "q", self._named())
        yield from unfinished(self._table, "q")

    def _not_aside(self) -> str:
        return f"q.{self._table.id.sql} <> ALL($1::{self._table.id.info.cast}[])"

    def _named(self) -> str:
        return f"$2::{self._table.get(Role.GROUP).info.cast}"

    def _now(self) -> str:
        due = self._table.find(Role.RETRY_AFTER)
        if due is None:
            return ""
        return f"${2 if self._group is None else 3}::{due.info.cast}"

    def writes(self, write: Write) -> bool:
        """All do but a count without a column for it."""
        return write.verb is not Verb.GIVE_BACK or self._table.find(Role.ATTEMPT) is not None

    def write(self, write: Write, id: Any, *, value: Any, now: Any) -> Steps[bool]:
        """One statement, by id: the row is locked."""
        text = self._writes.get(write)
        if text is None:
            text = self._writes[write] = self._write_text(write)
        given: tuple[Any, ...] = (id,)
        if write.verb is Verb.POSTPONE:
            given = (id, value)
        elif write.verb is Verb.FINISH and self._table.find(Role.PROCESSED_AT) is not None:
            given = (id, now)
        elif write.destination is not None and write.destination.group is not None:
            given = (id, self._table.get(Role.GROUP).encode(write.destination.group))
        answer = yield Statement(write.name, text, given)
        return bool(answer.rows)

    def _write_text(self, write: Write) -> str:
        table = self._table
        if write.destination is not None and write.destination.group is None:
            return self._move_text(write.destination)
        end = f"WHERE {self._by_id()} RETURNING q.{table.id.sql}"
        if write.verb is Verb.FINISH and table.find(Role.PROCESSED_AT) is None:
            return f"DELETE FROM {table.sql} AS q {end}"
        return f"UPDATE {table.sql} AS q SET {', '.join(self._sets(write))} {end}"

    def _sets(self, write: Write) -> Iterator[str]:
        table = self._table
        role = {
            Verb.FINISH: Role.PROCESSED_AT,
            Verb.POSTPONE: Role.RETRY_AFTER,
            Verb.MOVE: Role.GROUP,
        }.get(write.verb if isinstance(write.verb, Verb) else Verb.GIVE_BACK)
        if role is not None:
            column = table.get(role)
            yield f"{column.sql} = $2::{column.info.cast}"
        attempt = table.find(Role.ATTEMPT)
        if attempt is not None and write.verb in (Verb.GIVE_BACK, Verb.POSTPONE):
            name, largest = f"q.{attempt.sql}", LARGEST[attempt.info.family]
            yield (
                f"{attempt.sql} = CASE WHEN {name} >= {largest} THEN {name} "
                f"ELSE COALESCE({name}, 1) + 1 END"
            )

    def _move_text(self, destination: Destination) -> str:
        """Delete here and insert there in one statement, every column as it stands."""
        assert destination.table is not None
        table = self._table
        stored = [names.quote(info.name) for info in table.stored()]
        # OVERRIDING SYSTEM VALUE: the id goes along even where the table would make its own.
        return (
            f"WITH moved AS (DELETE FROM {table.sql} AS q WHERE {self._by_id()} "
            f"RETURNING {', '.join(f'q.{name}' for name in stored)}) "
            f"INSERT INTO {names.table(destination.table, destination.schema)} "
            f"({', '.join(stored)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {', '.join(stored)} FROM moved RETURNING {table.id.sql}"
        )

    def _by_id(self) -> str:
        return f"q.{self._table.id.sql} = $1::{self._table.id.info.cast}"


def _and(*conditions: str) -> str:
    return "".join(f" AND {condition}" for condition in conditions if condition)
