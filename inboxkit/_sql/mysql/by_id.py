"""Writes to rows that are named by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inboxkit._core.settlement import Destination
from inboxkit._core.spec import Role
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table
from inboxkit.errors import DatabaseError

from . import names
from .held import Parameters
from .hints import Hints

__all__ = ["delete", "move", "update"]


def update(
    table: Table,
    hints: Hints,
    name: str,
    sets: Sequence[str],
    ids: Sequence[Any],
    *,
    values: Parameters,
    also: Sequence[str] = (),
) -> Statement:
    """Change rows; `values` has those of `sets` and of the conditions `also`."""
    text = (
        f"UPDATE {table.sql}{hints.by_id} SET {', '.join(sets)} "
        f"WHERE {table.id.sql} IN ({values.add_all(ids)}){_and(*also)}"
    )
    return Statement(name, text, values.values, returns_rows=False)


def delete(table: Table, hints: Hints, name: str, ids: Sequence[Any]) -> Statement:
    """Delete rows.

    No hint keeps MariaDB and MySQL from reading a small table whole for a DELETE of several rows, and from
    waiting for what others have locked in it; joined with a list of ids they go by the id. The list takes
    its type and collation from the column, by a part that reads nothing.
    """
    values = Parameters()
    id_, source = table.id.sql, f"{table.sql} AS q{hints.by_id}"
    if len(ids) == 1:
        text = f"DELETE q FROM {source} WHERE q.{id_} IN ({values.add_all(ids)})"
    else:
        listed = [f"SELECT q.{id_} FROM {table.sql} AS q WHERE FALSE"]
        listed += [f"SELECT {values.add(id)}" for id in ids]
        text = (
            f"DELETE q FROM ({' UNION ALL '.join(listed)}) AS listed "
            f"STRAIGHT_JOIN {source} ON q.{id_} = listed.{id_}"
        )
    return Statement(name, text, values.values, returns_rows=False)


def move(table: Table, hints: Hints, destination: Destination, ids: Sequence[Any]) -> Steps[int]:
    """Copy rows to another table and delete them, in the script's transaction: every column as it
    stands, but for the lease; returns how many."""
    assert destination.table is not None
    values = Parameters()
    stored = [(info.name, names.quote(info.name)) for info in table.stored()]
    lease = table.find(Role.LOCKED_UNTIL)
    taken = [
        "NULL" if lease is not None and table.info.same(name, lease.name) else sql
        for name, sql in stored
    ]
    copied = yield Statement(
        "move insert",
        f"INSERT INTO {names.table(destination.table, destination.schema)} "
        f"({', '.join(sql for _name, sql in stored)}) SELECT {', '.join(taken)} "
        f"FROM {table.sql} WHERE {table.id.sql} IN ({values.add_all(ids)})",
        values.values,
        returns_rows=False,
    )
    deleted = yield delete(table, hints, "move delete", ids)
    if copied.rowcount != deleted.rowcount:
        raise DatabaseError(
            f"moving {deleted.rowcount} rows of {table.spec.name!r} to "
            f"{destination.name!r} copied {copied.rowcount}; nothing was moved",
            statement="move insert",
        )
    return copied.rowcount


def _and(*conditions: str) -> str:
    return "".join(f" AND {condition}" for condition in conditions)
