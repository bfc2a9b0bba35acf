"""The lease form's statements on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import RELEASE, Held, Row, Write, claim_threshold, largest_attempt
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import Table

from . import names
from .claim import alone_in_group, claim_text
from .guard import guard
from .held import fence, parameters, relation

__all__ = ["PostgresLease"]


_VALUES: Final = {Verb.POSTPONE: Role.RETRY_AFTER, Verb.HOLD: Role.LOCKED_UNTIL}


class PostgresLease:
    """Statements for one queue; texts are made once."""

    locks_rows = True
    alone: tuple[Statement, ...] = (
        # A deferred constraint would fail at the COMMIT, and every row with it.
        Statement("settle constraints", "SET CONSTRAINTS ALL IMMEDIATE", returns_rows=False),
    )

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._threshold = claim_threshold(cap, largest_attempt(table))
        self._claims: dict[int, str] = {}
        self._writes: dict[Write, str] = {}
        self._renew = self._renew_text()
        self._check = self._check_text()

    @property
    def claim_transaction(self) -> Transaction:
        """A plain claim is one statement; a FIFO claim has its guard before it, and its transaction
        is READ COMMITTED, or the claim's snapshot would be as old as the guard's."""
        return "write" if self._table.spec.fifo else "none"

    def claim(
        self,
        *,
        now: Any,
        expiry: Any,
        limit: int,
        aside: Sequence[Any] = (),  # noqa: ARG002 - what the checked types hold can be read
    ) -> Steps[Sequence[Row]]:
        """Lease due rows; of a FIFO group its head, where no other claim is at it."""
        if self._table.spec.fifo:
            assert self._group is not None
            answer = yield guard(self._table, self._group)
            if not answer.rows[0][0]:
                return ()
        text = self._claims.get(limit)
        if text is None:
            text = claim_text(self._table, threshold=self._threshold, limit=limit)
            self._claims[limit] = text
        given = (now, expiry) if self._group is None else (now, expiry, self._group)
        answer = yield Statement("claim", text, given)
        return answer.rows

    def renew(self, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Prolong, where the fence holds and nobody has the row locked."""
        given = parameters(rows, values=True)
        given = (*given, now) if self._table.spec.fifo else given
        answer = yield Statement("renew", self._renew, given)
        return [row[0] for row in answer.rows]

    def _renew_text(self) -> str:
        table, lease = self._table, self._table.get(Role.LOCKED_UNTIL).sql
        kept = (
            f"SELECT q.{table.id.sql} AS id, held.value FROM {table.sql} AS q "
            f"JOIN {relation(table, Role.LOCKED_UNTIL)} ON {fence(table)}"
        )
        if table.spec.fifo:
            kept += f" WHERE {alone_in_group(table, '$5')}"
        # Not FOR UPDATE: that would also wait for, so here pass over, a row that a foreign key
        # points to from a transaction of the handler's own.
        return (
            f"WITH kept AS ({kept} FOR NO KEY UPDATE OF q SKIP LOCKED) "
            f"UPDATE {table.sql} AS q SET {lease} = kept.value FROM kept "
            f"WHERE q.{table.id.sql} = kept.id RETURNING q.{table.id.sql}"
        )

    def still_held(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Tell locked rows from lost ones."""
        given = parameters(rows, values=False)
        given = (*given, now) if self._table.spec.fifo else given
        return Statement("renew check", self._check, given)

    def _check_text(self) -> str:
        table = self._table
        text = (
            f"SELECT q.{table.id.sql} FROM {table.sql} AS q "
            f"JOIN {relation(table, None)} ON {fence(table)}"
        )
        if table.spec.fifo:
            text += f" WHERE {alone_in_group(table, '$4')}"
        return text

    def transaction(self, write: Write, count: int) -> Transaction:  # noqa: ARG002
        """Every write is one statement."""
        return "none"

    def write(self, write: Write, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Write where the fence holds."""
        kind = _kind(write)
        text = self._writes.get(kind)
        if text is None:
            text = self._writes[kind] = self._write_text(write)
        given: tuple[Any, ...] = parameters(
            rows, values=_value_role(self._table, write) is not None
        )
        if write.verb is Verb.FINISH and self._table.find(Role.PROCESSED_AT) is not None:
            given = (*given, now)
        elif write.destination is not None and write.destination.group is not None:
            given = (*given, self._table.get(Role.GROUP).encode(write.destination.group))
        answer = yield Statement(write.name, text, given)
        return [row[0] for row in answer.rows]

    def _write_text(self, write: Write) -> str:
        table = self._table
        if write.destination is not None and write.destination.group is None:
            return self._move_text(write.destination)
        held = relation(table, _value_role(table, write))
        if write.verb is Verb.FINISH and table.find(Role.PROCESSED_AT) is None:
            return (
                f"DELETE FROM {table.sql} AS q USING {held} WHERE {fence(table)} "
                f"RETURNING q.{table.id.sql}"
            )
        return (
            f"UPDATE {table.sql} AS q SET {', '.join(self._sets(write))} FROM {held} "
            f"WHERE {fence(table)} RETURNING q.{table.id.sql}"
        )

    def _sets(self, write: Write) -> list[str]:
        table = self._table
        lease = "held.value" if write.verb is Verb.HOLD else "NULL"
        sets = [f"{table.get(Role.LOCKED_UNTIL).sql} = {lease}"]
        attempt = table.find(Role.ATTEMPT)
        match write.verb:
            case Verb.FINISH:
                processed = table.get(Role.PROCESSED_AT)
                sets.append(f"{processed.sql} = $4::{processed.info.cast}")
            case Verb.POSTPONE:
                sets.append(f"{table.get(Role.RETRY_AFTER).sql} = held.value")
            case Verb.MOVE:
                group = table.get(Role.GROUP)
                sets.append(f"{group.sql} = $4::{group.info.cast}")
            case _ if write == RELEASE and attempt is not None:
                sets.append(f"{attempt.sql} = q.{attempt.sql} - held.value")
            case _:
                pass
        return sets

    def _move_text(self, destination: Destination) -> str:
        """Delete here and insert there in one statement, every column as it stands."""
        assert destination.table is not None
        table, lease = self._table, self._table.get(Role.LOCKED_UNTIL).sql
        stored = [names.quote(info.name) for info in table.stored()]
        taken = [name if name != lease else "NULL" for name in stored]
        # OVERRIDING SYSTEM VALUE: the id goes along even where the table would make its own.
        return (
            f"WITH moved AS (DELETE FROM {table.sql} AS q USING {relation(table, None)} "
            f"WHERE {fence(table)} RETURNING {', '.join(f'q.{name}' for name in stored)}) "
            f"INSERT INTO {names.table(destination.table, destination.schema)} "
            f"({', '.join(stored)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {', '.join(taken)} FROM moved RETURNING {table.id.sql}"
        )

    def unfinished(self, ids: Sequence[Any]) -> Statement:
        """Read which rows are there."""
        table = self._table
        processed = table.find(Role.PROCESSED_AT)
        unfinished = f" AND q.{processed.sql} IS NULL" if processed is not None else ""
        return Statement(
            "settle check",
            f"SELECT q.{table.id.sql} FROM {table.sql} AS q "
            f"WHERE q.{table.id.sql} = ANY($1::{table.id.info.cast}[]){unfinished}",
            (list(ids),),
        )


def _kind(write: Write) -> Write:
    """The same for all writes that differ in a parameter alone."""
    if write.destination is None or write.destination.group is None:
        return write
    return Write(write.verb, Destination(group=""))


def _value_role(table: Table, write: Write) -> Role | None:
    """The column whose type a write's values have."""
    if write == RELEASE:
        return Role.ATTEMPT if table.spec.attempt is not None else None
    return _VALUES.get(write.verb) if isinstance(write.verb, Verb) else None
