"""The lease form's statements on SQLite.

One writer at a time holds the whole file, so nothing here guards against another claim: a claim
reads and then writes under the write lock that its transaction took first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import RELEASE, Held, Row, Write, claim_threshold
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import Table
from inboxkit.errors import DatabaseError

from . import names, values
from .claim import claim_select, claim_update, leased

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
        self._select_of = lru_cache(maxsize=16)(self._select)

    def _select(self, limit: int, aside: int) -> str:
        has_group = self._group is not None
        return claim_select(self._table, limit, has_group=has_group, aside=aside)

    def claim(
        self, *, now: Any, expiry: Any, limit: int, aside: Sequence[Any] = ()
    ) -> Steps[Sequence[Row]]:
        """Lease due rows."""
        given = (now,) if self._group is None else (now, self._group)
        text = self._select_of(int(limit), len(aside))
        if aside and self._table.spec.fifo:
            given = (*given, *aside)
        answer = yield Statement("claim due", text, given)
        if not answer.rows:
            return ()
        ids = leased(self._table, answer.rows)
        if ids:
            text = claim_update(self._table, len(ids), threshold=self._threshold)
            yield Statement("claim", text, (expiry, *ids), returns_rows=False)
        return answer.rows

    def renew(self, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Prolong, where the fence holds."""
        held, parameters = _held(rows)
        text = (
            f"{held} UPDATE {self._table.sql} AS q SET {self._lease} = inboxkit_held.value FROM inboxkit_held "
            f"WHERE {self._fence()}"
        )
        if self._table.spec.fifo:
            parameters = (*parameters, now)
            text += f" AND {self._alone_in_group(len(parameters))}"
        answer = yield Statement("renew", f"{text} RETURNING {self._table.id.sql}", parameters)
        return [row[0] for row in answer.rows]

    def still_held(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Not asked for: nobody else's lock hides a row here, so what was not renewed is lost."""
        held, parameters = _held(rows)
        text = f"{held} SELECT q.{self._table.id.sql} FROM inboxkit_held CROSS JOIN {self._table.sql} AS q"
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

    def transaction(self, write: Write, count: int) -> Transaction:  # noqa: ARG002
        """The write lock is had first."""
        return "write"

    def write(self, write: Write, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Write where the fence holds."""
        if write.destination is not None and write.destination.group is None:
            return (yield from self._move(write.destination, rows))
        answer = yield self._statement(write, rows, now)
        return [row[0] for row in answer.rows]

    def _statement(self, write: Write, rows: Sequence[Held], now: Any) -> Statement:
        if write.verb is Verb.FINISH and self._processed is None:
            return self._delete(write.name, rows)
        held, parameters = _held(rows)
        sets = [f"{self._lease} = {'inboxkit_held.value' if write.verb is Verb.HOLD else 'NULL'}"]
        match write.verb:
            case Verb.FINISH:
                assert self._processed is not None
                sets.append(f"{self._processed.sql} = ${len(parameters) + 1}")
                parameters = (*parameters, now)
            case Verb.POSTPONE:
                sets.append(f"{self._table.get(Role.RETRY_AFTER).sql} = inboxkit_held.value")
            case Verb.MOVE:
                assert write.destination is not None
                group = self._table.get(Role.GROUP)
                sets.append(f"{group.sql} = ${len(parameters) + 1}")
                parameters = (*parameters, group.encode(write.destination.group))
            case _ if write == RELEASE and self._attempt is not None:
                sets.append(f"{self._attempt.sql} = q.{self._attempt.sql} - inboxkit_held.value")
            case _:
                pass
        # Row values in IN (VALUES …) would scan the table; the join finds each row by its id.
        text = (
            f"{held} UPDATE {self._table.sql} AS q SET {', '.join(sets)} FROM inboxkit_held "
            f"WHERE {self._fence()} RETURNING {self._table.id.sql}"
        )
        return Statement(write.name, text, parameters)

    def _delete(self, name: str, rows: Sequence[Held]) -> Statement:
        held, parameters = _held(rows)
        text = (
            f"{held} DELETE FROM {self._table.sql} WHERE {self._table.id.sql} IN "
            f"({self._found(self._table.id.sql)}) RETURNING {self._table.id.sql}"
        )
        return Statement(name, text, parameters)

    def _found(self, column: str) -> str:
        # CROSS JOIN keeps the order: the few held rows first, each then found by its id.
        return f"SELECT q.{column} FROM inboxkit_held CROSS JOIN {self._table.sql} AS q WHERE {self._fence()}"

    def _move(self, destination: Destination, rows: Sequence[Held]) -> Steps[list[Any]]:
        """Copy and delete in the script's transaction; SQLite has no DELETE inside a WITH."""
        assert destination.table is not None
        held, parameters = _held(rows)
        stored = [names.quote(info.name) for info in self._table.stored()]
        taken = [f"q.{name}" if name.lower() != self._lease.lower() else "NULL" for name in stored]
        id_ = self._table.id.sql
        copied = yield Statement(
            "move insert",
            f"{held} INSERT INTO {names.table(destination.table, destination.schema)} "
            f"({', '.join(stored)}) SELECT {', '.join(taken)} FROM inboxkit_held "
            f"CROSS JOIN {self._table.sql} AS q WHERE {self._fence()} RETURNING {id_}",
            parameters,
        )
        deleted = yield self._delete("move delete", rows)
        moved = {row[0] for row in copied.rows}
        gone = {row[0] for row in deleted.rows}
        if moved != gone:
            raise DatabaseError(
                f"moving {len(gone)} rows of {self._table.spec.name!r} to {destination.name!r} copied "
                f"{len(moved)} (a trigger?); nothing was moved",
                statement="move insert",
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
        fence = (
            f"q.{self._table.id.sql} = inboxkit_held.id AND q.{self._lease} = inboxkit_held.token"
        )
        if self._attempt is not None:
            fence += f" AND (inboxkit_held.attempt IS NULL OR q.{self._attempt.sql} = inboxkit_held.attempt)"
        return fence


def _held(rows: Sequence[Held]) -> tuple[str, tuple[Any, ...]]:
    """The rows as a table: one line for each token that may stand in a row. Its name hides a real
    table of that name, so it is one that nobody has."""
    parameters = tuple(
        value
        for row in rows
        for token in row.tokens
        for value in (row.id, token, row.attempt, row.value)
    )
    lines = ", ".join(
        f"(${n + 1}, ${n + 2}, ${n + 3}, ${n + 4})" for n in range(0, len(parameters), 4)
    )
    return f"WITH inboxkit_held(id, token, attempt, value) AS (VALUES {lines})", parameters
