"""Finished rows, oldest first, to be deleted in batches."""

from __future__ import annotations

from typing import Any

from inboxkit._core.spec import InboxSpec, Role

from .info import TableInfo
from .scope import Values
from .statement import Statement
from .table import Table

__all__ = ["finished", "has_index"]


def finished(table: Table, *, before: Any, after: tuple[Any, Any] | None, limit: int) -> Statement:
    """Lock finished rows, oldest first, until the transaction ends; answers id and time of each. Waits
    for no row: one that somebody else has locked is passed over.

    Args:
        table: Where they are; it has a `processed_at`.
        before: Only those finished then or earlier.
        after: Time and id of a row as the driver gave them: only those behind it, so that what a held
            snapshot keeps of deleted rows is not walked over again. None: from the first.
        limit: Most rows.
    """
    done, values = table.get(Role.PROCESSED_AT), Values()
    time, id = f"q.{done.sql}", f"q.{table.id.sql}"
    conditions = [f"{time} IS NOT NULL", f"{time} <= {values.add(before, done)}"]
    if after is not None:
        # The first of the two is what an index is entered by; databases read no more of an OR.
        conditions.append(f"{time} >= {values.add(after[0], done)}")
        conditions.append(
            f"({time} > {values.add(after[0], done)} OR {id} > {values.add(after[1], table.id)})"
        )
    text = (
        f"SELECT {id}, {time} FROM {table.sql} AS q WHERE {' AND '.join(conditions)} "
        f"ORDER BY {time}, {id} LIMIT {limit}"
    )
    return Statement("retention", text + table.dialect.lock_rows, values.given)


def has_index(spec: InboxSpec, info: TableInfo) -> bool:
    """Whether an index gives finished rows by their time; ties, which are few, may be sorted."""
    assert spec.processed_at is not None
    done, id = spec.processed_at.name, spec.id.name
    return info.has_index(done, id) or any(
        len(index.columns) == 1 and info.same(index.columns[0], done) for index in info.indexes
    )
