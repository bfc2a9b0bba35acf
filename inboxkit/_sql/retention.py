"""Finished rows, oldest first, to be deleted in batches."""

from __future__ import annotations

from typing import Any

from inboxkit._core.spec import Role

from .info import IndexInfo
from .scope import Values
from .statement import Statement
from .table import Table

__all__ = ["finished", "index_of"]


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
    index = index_of(table)
    # Only MariaDB and MySQL tell names, and have to be told: by the index of claims, which begins with
    # the same column, they would sort all that is old.
    hint = f" FORCE INDEX ({table.dialect.quote(index.name)})" if index and index.name else ""
    text = (
        f"SELECT {id}, {time} FROM {table.sql} AS q{hint} WHERE {' AND '.join(conditions)} "
        f"ORDER BY {time}, {id} LIMIT {limit}"
    )
    return Statement("retention", text + table.dialect.lock_rows, values.given)


def index_of(table: Table) -> IndexInfo | None:
    """The index that gives finished rows by their time; ties, which are few, may be sorted."""
    done, info = table.get(Role.PROCESSED_AT).name, table.info
    for index in info.indexes:
        first, *rest = index.columns
        if info.same(first, done) and (not rest or info.same(rest[0], table.id.name)):
            return index
    return None
