"""The row lock form's statements on MariaDB and MySQL.

    SELECT … FROM (SELECT id … ORDER BY … LIMIT m) STRAIGHT_JOIN … LIMIT n FOR UPDATE SKIP LOCKED

Locks last as long as the transaction, so a claim must lock no row that it does not take (see `due`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any, Final

from inboxkit._core.settlement import Verb
from inboxkit._core.spec import Role
from inboxkit._sql.branches import together
from inboxkit._sql.lease import Row, Write, largest_attempt
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table

from .by_id import delete, move, update
from .claim import counted, head
from .due import all_of, due_rows, is_due, lock_of
from .held import Parameters
from .hints import Hints
from .lock_names import free_lock, guard_key, try_lock

__all__ = ["MysqlRowLock"]

_FIRST: Final = 64
"""Due rows that a claim tries at first. Others may have them all: the list does not know locks."""
_FURTHER: Final = 16
"""How many times as many it tries next."""


class MysqlRowLock:
    """Statements for one queue."""

    def __init__(self, table: Table, *, group: str | None) -> None:
        self._table = table
        self._hints = Hints(table)
        self._group = None if group is None else table.get(Role.GROUP).encode(group)

    def claim(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Steps[Sequence[Row]]:
        """Lock due rows; of a FIFO group its head, where the group has no row in work.

        The guard outlasts the transaction, until `after` is sent.
        """
        if self._table.spec.fifo:
            key = guard_key(self._table, self._group)
            guarded = yield try_lock("claim guard", self._table, key)
            if not guarded.rows[0][0]:
                return ()
            answer = yield from self._hints.ask(lambda: self._claim(now, 1, aside, _FIRST))
            return answer.rows
        tried = max(_FIRST, limit)
        while True:
            answer = yield from self._hints.ask(partial(self._claim, now, limit, aside, tried))
            if answer.rows:
                return answer.rows
            behind = yield self._behind(now, aside, tried)
            if not behind.rows:
                return ()
            tried *= _FURTHER

    def of_group(self, group: str) -> MysqlRowLock:
        """Shares what was learnt of the table's indexes."""
        other = copy(self)
        other._group = self._table.get(Role.GROUP).encode(group)
        return other

    def after(self) -> Statement | None:
        """Let go of the group's guard, if the session has it."""
        if not self._table.spec.fifo:
            return None
        return free_lock("guard release", self._table, guard_key(self._table, self._group))

    def _claim(self, now: Any, limit: int, aside: Sequence[Any], tried: int) -> Statement:
        values = Parameters()
        table, id_ = self._table, self._table.id.sql
        at, group = self._places(now, values)
        others = self._not(aside, values)
        if table.spec.fifo:
            # What cannot be read is no head: the group goes on without it.
            without = (self._not(aside, values, alias="h"),) if aside else ()
            first = head(table, group, *without)
            where = all_of(f"q.{id_} = {first}", together(table, at, ""), others)
            # LIMIT keeps it a list, made before anything is locked.
            due = f"SELECT q.{id_} FROM {table.sql} AS q{where} LIMIT 1"
        else:
            due = due_rows(table, now=at, group=group, limit=tried, also=others)
        text = lock_of(table, due, self._hints, now=at, group=group, limit=limit)
        return Statement("claim", text, values.values)

    def _behind(self, now: Any, aside: Sequence[Any], tried: int) -> Statement:
        """See whether there are more due rows than were tried."""
        values = Parameters()
        at, group = self._places(now, values)
        others = self._not(aside, values)
        where = all_of(*is_due(self._table, now=at, group=group), others)
        text = f"SELECT 1 FROM {self._table.sql} AS q{where} LIMIT 1 OFFSET {tried}"
        return Statement("claim look", text, values.values)

    def _places(self, now: Any, values: Parameters) -> tuple[str, str]:
        """The placeholders of the clock's reading and of the group, where the table has them."""
        at = "" if self._table.find(Role.RETRY_AFTER) is None else values.add(now)
        return at, "" if self._group is None else values.add(self._group)

    def _not(self, aside: Sequence[Any], values: Parameters, *, alias: str = "q") -> str:
        return f"{alias}.{self._table.id.sql} NOT IN ({values.add_all(aside)})" if aside else ""

    def writes(self, write: Write) -> bool:
        """All do but a count without a column for it."""
        return write.verb is not Verb.GIVE_BACK or self._table.find(Role.ATTEMPT) is not None

    def write(self, write: Write, id: Any, *, value: Any, now: Any) -> Steps[bool]:
        """By id: the row is locked."""
        if write.destination is not None and write.destination.group is None:
            copied = yield from move(self._table, self._hints, write.destination, (id,))
            return copied > 0
        answer = yield from self._hints.ask(lambda: self._write(write, id, value, now))
        return answer.rowcount > 0

    def _write(self, write: Write, id: Any, value: Any, now: Any) -> Statement:
        table, values = self._table, Parameters()
        if write.verb is Verb.FINISH and table.find(Role.PROCESSED_AT) is None:
            return delete(table, self._hints, write.name, (id,))
        sets: list[str] = []
        if write.verb is Verb.FINISH:
            done = table.get(Role.PROCESSED_AT)
            sets.append(f"{done.sql} = {values.add(done.encode(now))}")
        elif write.verb is Verb.POSTPONE:
            sets.append(f"{table.get(Role.RETRY_AFTER).sql} = {values.add(value)}")
        elif write.destination is not None:
            group = table.get(Role.GROUP)
            sets.append(f"{group.sql} = {values.add(group.encode(write.destination.group))}")
        attempt = table.find(Role.ATTEMPT)
        if attempt is not None and write.verb in (Verb.GIVE_BACK, Verb.POSTPONE):
            next_one = counted(attempt.sql, largest_attempt(table) - 1)
            sets.append(f"{attempt.sql} = {next_one}")
        return update(table, self._hints, write.name, sets, (id,), values=values)
