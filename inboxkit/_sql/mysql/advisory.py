"""The advisory lock form's statements on MariaDB and MySQL: GET_LOCK, by keys that the database renders.

Neither answers which rows an UPDATE wrote, so a row is first read, and then counted if it has still the
attempt that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from inboxkit._core.lock_key import parse_key
from inboxkit._core.settlement import Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import RELEASE, Held, Row, Write, claim_threshold, largest_attempt
from inboxkit._sql.statement import Statement, Steps, Transaction
from inboxkit._sql.table import BoundColumn, Table

from .by_id import delete, move, update
from .claim import counted, unfinished
from .due import KEY, all_of, due_rows, is_due
from .held import Parameters
from .hints import Hints
from .lock_names import free_lock, lock_name

__all__ = ["MysqlAdvisory"]

_BYTES: Final = ("binary", "binary(16)", "varbinary", "bit")


class MysqlAdvisory:
    """Statements for one queue."""

    kept_by: Literal["session"] = "session"
    may_miss = True

    def __init__(self, table: Table, *, group: str | None, cap: int | None) -> None:
        self._table = table
        self._hints = Hints(table)
        self._group = None if group is None else table.get(Role.GROUP).encode(group)
        self._attempt = table.find(Role.ATTEMPT)
        self._threshold = claim_threshold(cap, largest_attempt(table))

    def lock(self, *, now: Any, limit: int, aside: Sequence[Any]) -> Statement:
        """A lock of the session, got from a list of rows whose locks nobody has; asking that takes none."""
        # The limit is a literal, so it is rounded up: few texts.
        limit = 1 << (limit - 1).bit_length()
        values, id_ = Parameters(), self._table.id.sql
        at, group = self._places(now, values)
        key = self._key(values)
        free = f"IS_USED_LOCK({lock_name(self._table, key, values)}) IS NULL"
        if aside:
            free += f" AND q.{id_} NOT IN ({values.add_all(aside)})"
        # LIMIT makes the list before any lock is asked for.
        due = due_rows(self._table, now=at, group=group, limit=limit, also=free, key=key)
        name = lock_name(self._table, f"due.{KEY}", values)
        text = (
            f"SELECT due.{id_}, due.{KEY} FROM ({due}) AS due WHERE GET_LOCK({name}, 0) = 1 LIMIT 1"
        )
        return Statement("claim lock", text, values.values)

    def nobodys(self, ids: Sequence[Any]) -> Statement:
        """Who gets the key after this finds the row locked, and leaves it alone."""
        values = Parameters()
        name = lock_name(self._table, self._key(values), values)
        id_ = self._table.id.sql
        text = (
            f"SELECT q.{id_} FROM {self._table.sql} AS q{self._hints.by_id} "
            f"WHERE IS_USED_LOCK({name}) IS NULL AND q.{id_} IN ({values.add_all(ids)})"
        )
        return Statement("dead probe", text, values.values)

    def unlock(self, key: Any) -> Statement:
        """Answers 0 where the session did not hold it."""
        return free_lock("unlock", self._table, key)

    def take(self, id: Any, key: Any, *, now: Any) -> Steps[Sequence[Row]]:
        """Read the row, then count it; not one that somebody's transaction has locked."""
        found = yield from self._hints.ask(lambda: self._read(id, key, now))
        if self._attempt is None or not found.rows:
            return found.rows
        at = [column.role for column in self._table.columns].index(Role.ATTEMPT)
        attempt = found.rows[0][at]
        taken = yield from self._hints.ask(lambda: self._count(id, key, now, attempt))
        return found.rows if taken.rowcount > 0 else ()

    def _read(self, id: Any, key: Any, now: Any) -> Statement:
        values = Parameters()
        columns = ", ".join(f"q.{column.sql}" for column in self._table.columns)
        return Statement("claim due", self._select(columns, id, key, now, values), values.values)

    def _count(self, id: Any, key: Any, now: Any, attempt: Any) -> Statement:
        assert self._attempt is not None
        values = Parameters()
        id_, name = self._table.id.sql, self._attempt.sql
        still = f"q.{name} <=> {values.add(attempt)}"
        # LIMIT keeps it a table of its own, read before the row is to be written, which would wait.
        due = f"{self._select(f'q.{id_}', id, key, now, values, still)} LIMIT 1"
        text = (
            f"UPDATE {self._table.sql} AS q{self._hints.by_id} "
            f"JOIN ({due} FOR UPDATE SKIP LOCKED) AS due ON q.{id_} = due.{id_} "
            f"SET q.{name} = {counted(f'q.{name}', self._threshold)}"
        )
        return Statement("claim", text, values.values, returns_rows=False)

    def _select(
        self, columns: str, id: Any, key: Any, now: Any, values: Parameters, *also: str
    ) -> str:
        """The row, if it is still claimable and of this key."""
        at, group = self._places(now, values)
        where = all_of(
            f"q.{self._table.id.sql} = {values.add(id)}",
            *is_due(self._table, now=at, group=group),
            f"CAST({self._key(values)} AS BINARY) = CAST({values.add(key)} AS BINARY)",
            *also,
        )
        return f"SELECT {columns} FROM {self._table.sql} AS q{self._hints.by_id}{where}"

    def _places(self, now: Any, values: Parameters) -> tuple[str, str]:
        at = "" if self._table.find(Role.RETRY_AFTER) is None else values.add(now)
        return at, "" if self._group is None else values.add(self._group)

    def _key(self, values: Parameters) -> str:
        """The key of row `q`; CONCAT_WS passes over NULL."""
        assert self._table.spec.advisory_lock is not None
        parts = []
        for part in parse_key(self._table.spec.advisory_lock):
            if isinstance(part, str):
                parts.append(values.add(part))
                continue
            found = self._table.spec.column_of(part.name)
            assert found is not None
            name = found[1].name
            parts.append(_rendered(next(one for one in self._table.columns if one.name == name)))
        return f"CONVERT(CONCAT_WS('', {', '.join(parts)}) USING utf8mb4)"

    def transaction(self, write: Write) -> Transaction:
        """A move to a table is several statements."""
        return "write" if _leaves(write) else "none"

    def write(self, write: Write, row: Held, *, now: Any) -> Steps[bool]:
        """Write one row by its id."""
        if not _leaves(write):
            answer = yield from self._hints.ask(lambda: self._write(write, row, now))
            return answer.rowcount > 0
        found = yield from self._hints.ask(lambda: self._find(write, row))
        if not found.rows:
            return False
        assert write.destination is not None
        copied = yield from move(self._table, self._hints, write.destination, (row.id,))
        return copied > 0

    def _find(self, write: Write, row: Held) -> Statement:
        id_ = self._table.id.sql
        where = all_of(f"q.{id_} = $1", *unfinished(self._table, "q"))
        text = f"SELECT q.{id_} FROM {self._table.sql} AS q{self._hints.by_id}{where} FOR UPDATE"
        return Statement(f"{write.name} find", text, (row.id,))

    def _write(self, write: Write, row: Held, now: Any) -> Statement:
        table, values = self._table, Parameters()
        also = list(unfinished(table, table.sql))
        if write.verb is Verb.FINISH and table.find(Role.PROCESSED_AT) is None:
            return delete(table, self._hints, write.name, (row.id,))
        if write == RELEASE:
            assert self._attempt is not None
            name = self._attempt.sql
            sets = f"{name} = {name} - {values.add(row.value)}"
            if row.attempt is not None:
                also.append(f"{name} = {values.add(row.attempt)}")
        elif write.verb is Verb.FINISH:
            done = table.get(Role.PROCESSED_AT)
            sets = f"{done.sql} = {values.add(done.encode(now))}"
        elif write.verb is Verb.POSTPONE:
            sets = f"{table.get(Role.RETRY_AFTER).sql} = {values.add(row.value)}"
        else:
            assert write.destination is not None
            group = table.get(Role.GROUP)
            sets = f"{group.sql} = {values.add(group.encode(write.destination.group))}"
        ids = (row.id,)
        return update(table, self._hints, write.name, [sets], ids, values=values, also=also)


def _leaves(write: Write) -> bool:
    """Whether the row goes to another table."""
    return write.destination is not None and write.destination.group is None


def _rendered(column: BoundColumn) -> str:
    name, family = f"q.{column.sql}", column.info.family
    if family in _BYTES or family.endswith("blob"):
        return f"LOWER(HEX({name}))"
    return f"CONVERT({name} USING utf8mb4)"
