"""The lease form's statements on MariaDB and MySQL.

Neither answers which rows an UPDATE wrote, so what a write is to change is first locked and read,
in the same transaction. Of a single row the count says it: such a write is one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final

from inboxkit._core.settlement import Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import (
    RELEASE,
    Held,
    Row,
    Write,
    claim_threshold,
    largest_attempt,
)
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import Table

from .by_id import delete, move, update
from .claim import alone_in_group, claim_look, claim_update
from .due import due_rows, lock_of
from .heads import Heads
from .held import Parameters
from .hints import Hints

__all__ = ["MysqlLease"]

_TRIES: Final = 3
_MORE: Final = 32
"""Due rows that a claim tries beside those it wants: others' claims may have some at the moment."""


class MysqlLease:
    """Statements for one queue."""

    claim_transaction: Transaction = "write"
    locks_rows = True
    alone: tuple[Statement, ...] = ()

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._hints = Hints(table)
        self._lease = table.get(Role.LOCKED_UNTIL)
        self._attempt = table.find(Role.ATTEMPT)
        self._processed = table.find(Role.PROCESSED_AT)
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._threshold = claim_threshold(cap, largest_attempt(table))
        self.heads = Heads(table, self._hints, self.stamp)
        """Claims of FIFO groups."""

    def claim(
        self, *, now: Any, expiry: Any, limit: int, aside: Sequence[Any] = ()
    ) -> Steps[Sequence[Row]]:
        """Lease due rows; of a FIFO group its head, where no other claim is at it."""
        if self._table.spec.fifo:
            return (yield from self.heads.claim([self._group], now=now, expiry=expiry, aside=aside))
        rows = yield from self.lock_due(now, limit)
        if rows:
            yield self.stamp([row[0] for row in rows], expiry)
        return rows

    def of_group(self, group: str) -> MysqlLease:
        """The same for another group."""
        other = copy(self)
        other._group = self._table.get(Role.GROUP).encode(group)
        return other

    def stamp(self, ids: Sequence[Any], expiry: Any) -> Statement:
        """Lease and count rows that are locked."""
        text = claim_update(self._table, self._hints, len(ids), threshold=self._threshold)
        return Statement("claim", text, (expiry, *ids), returns_rows=False)

    def lock_due(self, now: Any, limit: int) -> Steps[Sequence[Row]]:
        """Lock due rows until the transaction ends, and read them in claim order."""
        for _ in range(_TRIES):
            answer = yield from self._hints.ask(lambda: self._due(now, limit))
            # What is due and is not had is locked by somebody, who mostly lets go of it at once:
            # another claim.
            if answer.rows or not (yield from self._look(now)):
                return answer.rows
        return ()

    def _due(self, now: Any, limit: int) -> Statement:
        values = Parameters()
        at = values.add(now)
        group = "" if self._group is None else values.add(self._group)
        due = due_rows(self._table, now=at, group=group, limit=limit + _MORE, hints=self._hints)
        text = lock_of(self._table, due, self._hints, now=at, group=group, limit=limit)
        return Statement("claim due", text, values.values)

    def _look(self, now: Any) -> Steps[bool]:
        given = (now, *(() if self._group is None else (self._group,)))
        seen = yield from self._hints.ask(
            lambda: Statement("claim look", claim_look(self._table, self._hints), given)
        )
        return bool(seen.rows)

    def renew(self, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Prolong, where the fence holds and nobody has the row locked."""
        answer = yield from self._hints.ask(
            lambda: self._find("renew find", rows, now=now, lock=" FOR UPDATE SKIP LOCKED")
        )
        ids = [row[0] for row in answer.rows]
        if ids:
            values = Parameters()
            sets = [f"{self._lease.sql} = {values.by_id(self._table, _of(rows, ids))}"]
            yield update(self._table, self._hints, "renew", sets, ids, values=values)
        return ids

    def still_held(self, rows: Sequence[Held], *, now: Any) -> Statement:
        """Tell locked rows from lost ones; the renewal has gone by the same hints before."""
        return self._find("renew check", rows, now=now)

    def _find(
        self, name: str, rows: Sequence[Held], *, now: Any = None, lock: str = ""
    ) -> Statement:
        """Read the ids of rows that hold their fence; with `now`, alone in their FIFO group."""
        values = Parameters()
        text = (
            f"SELECT q.{self._table.id.sql} FROM {self._table.sql} AS q{self._hints.by_id} "
            f"WHERE {values.fences(self._table, rows)}"
        )
        if now is not None and self._table.spec.fifo:
            text += f" AND {alone_in_group(self._table, values.add(now))}"
        return Statement(name, text + lock, values.values)

    def transaction(self, write: Write, count: int) -> Transaction:
        """One statement where the count tells what it wrote."""
        return "none" if _is_told_by_count(write, count) else "write"

    def write(self, write: Write, rows: Sequence[Held], *, now: Any) -> Steps[list[Any]]:
        """Write where the fence holds; who has a row locked is waited for, as by a plain UPDATE."""
        if _is_told_by_count(write, len(rows)):
            answer = yield from self._hints.ask(lambda: self._write_one(write, rows, now))
            return [rows[0].id] if answer.rowcount > 0 else []
        answer = yield from self._hints.ask(
            lambda: self._find(f"{write.name} find", rows, lock=" FOR UPDATE")
        )
        ids = [row[0] for row in answer.rows]
        if not ids:
            return ids
        if write.destination is not None and write.destination.group is None:
            yield from move(self._table, self._hints, write.destination, ids)
        elif write.verb is Verb.FINISH and self._processed is None:
            yield delete(self._table, self._hints, write.name, ids)
        else:
            values = Parameters()
            sets = self._sets(write, _of(rows, ids), now, values)
            yield update(self._table, self._hints, write.name, sets, ids, values=values)
        return ids

    def _write_one(self, write: Write, rows: Sequence[Held], now: Any) -> Statement:
        values = Parameters()
        if write.verb is Verb.FINISH and self._processed is None:
            text = f"DELETE q FROM {self._table.sql} AS q{self._hints.by_id} WHERE "
        else:
            sets = ", ".join(self._sets(write, rows, now, values))
            text = f"UPDATE {self._table.sql} AS q{self._hints.by_id} SET {sets} WHERE "
        text += values.fences(self._table, rows)
        return Statement(write.name, text, values.values, returns_rows=False)

    def _sets(self, write: Write, rows: Sequence[Held], now: Any, values: Parameters) -> list[str]:
        table = self._table
        held = values.by_id(table, rows) if write.verb is Verb.HOLD else "NULL"
        sets = [f"{self._lease.sql} = {held}"]
        match write.verb:
            case Verb.FINISH:
                assert self._processed is not None
                sets.append(f"{self._processed.sql} = {values.add(self._processed.encode(now))}")
            case Verb.POSTPONE:
                due = table.get(Role.RETRY_AFTER).sql
                sets.append(f"{due} = {values.by_id(table, rows)}")
            case Verb.MOVE:
                assert write.destination is not None
                group = table.get(Role.GROUP)
                sets.append(f"{group.sql} = {values.add(group.encode(write.destination.group))}")
            case _ if write == RELEASE and self._attempt is not None:
                name = self._attempt.sql
                sets.append(f"{name} = {name} - {values.by_id(table, rows)}")
            case _:
                pass
        return sets

    def unfinished(self, ids: Sequence[Any]) -> Statement:
        """Read which rows are there."""
        values = Parameters()
        id_ = self._table.id.sql
        unfinished = f" AND {self._processed.sql} IS NULL" if self._processed else ""
        return Statement(
            "settle check",
            f"SELECT {id_} FROM {self._table.sql} "
            f"WHERE {id_} IN ({values.add_all(ids)}){unfinished}",
            values.values,
        )


def _is_told_by_count(write: Write, count: int) -> bool:
    """The servers count rows that a write has changed: all do that end the lease, but a new lease may
    be as it was. A move between tables is several statements."""
    leaves = write.destination is not None and write.destination.group is None
    return count == 1 and not leaves and write.verb is not Verb.HOLD


def _of(rows: Sequence[Held], ids: Sequence[Any]) -> list[Held]:
    """The rows that were found."""
    found = set(ids)
    return [row for row in rows if row.id in found]
