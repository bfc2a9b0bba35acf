"""All groups of a table in one claim on PostgreSQL.

A claim is one READ COMMITTED transaction: it looks which groups have a due head, guards FIFO groups
as the claim of a single group does, and takes the rows in a statement of its own, whose snapshot is
younger than the guard.

The look goes from group to group by the index, since PostgreSQL would read every row for a DISTINCT.
It ends after a number of groups, so that its cost does not grow with theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inboxkit._core.rounds import Turn
from inboxkit._core.spec import Role
from inboxkit._sql.branches import branches, is_apart, together
from inboxkit._sql.every_group import Look, Others
from inboxkit._sql.lease import Row, claim_threshold, largest_attempt
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table

from .claim import head, in_group, keys, nothing_in_force, now, sets, unfinished, walked
from .guard import lock_name

__all__ = ["PostgresEveryGroup", "look_text", "take_text"]

STEPS: Final = 128
"""Groups that one look goes to."""


class PostgresEveryGroup:
    """Statements for all groups of one table; texts are made once."""

    def __init__(self, table: Table, *, cap: int | None, others: Others) -> None:
        encode = table.get(Role.GROUP).encode
        shape = others.shape
        self._table = table
        self._threshold = claim_threshold(cap, largest_attempt(table))
        self._others = [encode(group) for group in others.groups]
        self._shape = () if shape is None else (encode(shape.prefix), encode(shape.suffix))
        self._looks: dict[tuple[bool, int], str] = {}
        self._takes: dict[int, str] = {}

    def look(self, look: Look, *, now: Any) -> Statement:
        """Go from group to group."""
        is_first = look.after is None
        text = self._looks.get((is_first, look.limit))
        if text is None:
            text = look_text(
                self._table, is_first=is_first, has_shape=bool(self._shape), limit=look.limit
            )
            self._looks[is_first, look.limit] = text
        after = () if is_first else (look.after,)
        at = (now,) if _has_times(self._table) else ()
        others = [*self._others, *look.without]
        given = (*at, list(look.served), others, *after, *self._shape)
        return Statement("claim look", text, given)

    def guard(self, turns: Sequence[Turn], limit: int) -> Statement | None:
        """The lock that the claim of a single group tries too."""
        if not self._table.spec.fifo:
            return None
        # LIMIT: the locks are tried in the order of the turns, and no more than are wanted.
        text = (
            "SELECT turn.name FROM unnest($1::text[]) AS turn(name) "
            "WHERE pg_try_advisory_xact_lock(hashtextextended($2::text || turn.name, 0)) "
            f"LIMIT {limit}"
        )
        given = ([turn.group for turn in turns], lock_name(self._table, ""))
        return Statement("claim guard", text, given)

    def take(
        self,
        turns: Sequence[Turn],
        *,
        now: Any,
        expiry: Any,
        limit: int,
        most: int,
        aside: Sequence[Any] = (),  # noqa: ARG002 - what the checked types hold can be read
    ) -> Steps[Sequence[Row]]:
        """Lock and lease in one statement."""
        text = self._takes.get(most)
        if text is None:
            text = take_text(self._table, threshold=self._threshold, most=most)
            self._takes[most] = text
        groups = [turn.group for turn in turns]
        again = [int(turn.is_again) for turn in turns]
        answer = yield Statement("claim", text, (now, expiry, groups, again, limit))
        return answer.rows


def look_text(table: Table, *, is_first: bool, has_shape: bool, limit: int) -> str:
    """The look. ``$1``: now, ``$2``: served groups, ``$3``: groups of others, then the group to begin
    behind (unless `is_first`), and what stands before and after the names of its dead letters. Without
    a column to compare now with, all move up by one."""
    cast = table.get(Role.GROUP).info.cast
    at = 2 if _has_times(table) else 1
    served = f"${at}::{cast}[]"
    first = f"({_next(table, None if is_first else f'${at + 2}::{cast}')})::{cast}"
    walk = (
        f"SELECT {first}, 1 UNION ALL SELECT ({_next(table, 'walk.name')})::{cast}, walk.step + 1 "
        f"FROM walk WHERE walk.name IS NOT NULL AND walk.step < {STEPS}"
    )
    is_ours = [f"walk.name <> ALL(${at + 1}::{cast}[])"]
    if has_shape:
        is_ours.append(f"NOT {_has_shape('walk.name', at + (2 if is_first else 3), cast)}")
    heads = _fifo_heads(table) if table.spec.fifo else _heads(table)
    order = ", ".join(keys(table, "q."))
    found = (
        f"SELECT walk.name, walk.name = ANY({served}) AS is_served, "
        f"row_number() OVER (ORDER BY walk.name = ANY({served}), {order}) AS place "
        f"FROM walk {heads} AND {' AND '.join(is_ours)} ORDER BY place LIMIT {limit}"
    )
    stop = f"SELECT (SELECT walk.name FROM walk WHERE walk.step = {STEPS}) AS name"
    return (
        f"WITH RECURSIVE walk(name, step) AS ({walk}) "
        f"SELECT found.name, found.is_served, stop.name FROM ({stop}) AS stop "
        f"LEFT JOIN ({found}) AS found ON true ORDER BY found.place"
    )


def _has_times(table: Table) -> bool:
    return any(table.find(role) is not None for role in (Role.RETRY_AFTER, Role.LOCKED_UNTIL))


def _next(table: Table, name: str | None) -> str:
    """The group that follows; each index that holds some of the rows is asked by itself."""
    group = table.get(Role.GROUP).sql
    behind = f"q.{group} IS NOT NULL" if name is None else f"q.{group} > {name}"
    nexts = [
        f"SELECT q.{group} FROM {table.sql} AS q "
        f"WHERE {' AND '.join((behind, *part, *unfinished(table, 'q')))} ORDER BY q.{group} LIMIT 1"
        for part in _parts(table)
    ]
    return nexts[0] if len(nexts) == 1 else f"LEAST({', '.join(f'({one})' for one in nexts)})"


def _parts(table: Table) -> Iterator[tuple[str, ...]]:
    if table.spec.fifo or not is_apart(table, Role.LOCKED_UNTIL):
        yield ()
        return
    lease = table.get(Role.LOCKED_UNTIL).sql
    yield (f"q.{lease} IS NULL",)
    yield (f"q.{lease} IS NOT NULL",)


def _has_shape(name: str, place: int, cast: str) -> str:
    prefix, suffix = f"${place}::{cast}", f"${place + 1}::{cast}"
    return (
        f"(left({name}, length({prefix})) = {prefix} AND right({name}, length({suffix})) = {suffix} "
        f"AND length({name}) >= length({prefix}) + length({suffix}))"
    )


def _fifo_heads(table: Table) -> str:
    """Heads that are due, of groups of which nothing is in work."""
    conditions = [together(table, *now(table)) or "true"]
    if table.find(Role.LOCKED_UNTIL) is not None:
        conditions.append(nothing_in_force(table, "walk.name"))
    return (
        f"JOIN {table.sql} AS q ON q.{table.id.sql} = {head(table, 'walk.name')} "
        f"WHERE {' AND '.join(conditions)}"
    )


def _heads(table: Table) -> str:
    """The first due row of each group that nobody has."""
    names = ", ".join(f"q.{name}" for name in _key_names(table))
    first = _first_rows(table, names, "walk.name", most=1, lock="")
    return f"CROSS JOIN LATERAL ({first}) AS q WHERE true"


def _key_names(table: Table) -> Iterator[str]:
    for role in (Role.PRIORITY, Role.RETRY_AFTER, Role.ID):
        if (column := table.find(role)) is not None:
            yield column.sql


def _first_rows(table: Table, names: str, group: str, *, most: int, lock: str) -> str:
    base = " AND ".join((in_group(table, "q", group), *unfinished(table, "q")))
    parts = [
        f"SELECT {names} FROM {table.sql} AS q WHERE {base}{_and(part.condition)} "
        f"ORDER BY {', '.join(walked(table, 'q.', part))} LIMIT {most}{lock}"
        for part in branches(table, *now(table))
    ]
    if len(parts) == 1:
        return parts[0]
    union = " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part in parts)
    return f"SELECT * FROM ({union}) AS q ORDER BY {', '.join(keys(table, 'q.'))} LIMIT {most}"


def _and(condition: str) -> str:
    return f" AND {condition}" if condition else ""


def take_text(table: Table, *, threshold: int, most: int) -> str:
    """The claim. ``$1``: now, ``$2``: the expiry, ``$3``: groups, ``$4``: 1 for those that are a
    round ahead of the others, else 0, ``$5``: most rows.

    Args:
        table: Of the groups.
        threshold: Above this attempt the claim does not count.
        most: Most rows of one group.
    """
    cast = table.get(Role.GROUP).info.cast
    names = [f"q.{column.sql}" for column in table.columns]
    order = ", ".join(keys(table, "q."))
    turns = f"unnest($3::{cast}[], $4::int[]) AS turn(name, ahead)"
    if table.spec.fifo:
        rows = (
            f"SELECT {', '.join(names)}, turn.ahead AS inboxkit_turn FROM {turns} "
            f"JOIN {table.sql} AS q ON q.{table.id.sql} = {head(table, 'turn.name')} "
            f"WHERE {together(table, *now(table))} AND {nothing_in_force(table, 'turn.name')} "
            "FOR UPDATE OF q SKIP LOCKED"
        )
    else:
        lock = " FOR UPDATE OF q SKIP LOCKED"
        first = _first_rows(table, ", ".join(names), "turn.name", most=most, lock=lock)
        rows = (
            f"SELECT q.*, turn.ahead + row_number() OVER (PARTITION BY turn.name ORDER BY {order}) "
            f"AS inboxkit_turn FROM {turns} CROSS JOIN LATERAL ({first}) AS q"
        )
    taken = (
        f"UPDATE {table.sql} AS q SET {sets(table, threshold)} "
        f"WHERE q.{table.id.sql} = ANY(ARRAY(SELECT due.{table.id.sql} FROM due))"
    )
    return (
        f"WITH found AS ({rows}), "
        f"due AS (SELECT * FROM found AS q ORDER BY q.inboxkit_turn, {order} LIMIT $5::int), "
        f"taken AS ({taken}) "
        f"SELECT {', '.join(names)} FROM due AS q ORDER BY q.inboxkit_turn, {order}"
    )
