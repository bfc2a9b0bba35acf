"""Times in another layout than the canonical one: they sort wrong, so their rows are set aside."""

from __future__ import annotations

from typing import Final

from inboxkit._sql.statement import Statement
from inboxkit._sql.table import BoundColumn, Table

__all__ = ["odd_times"]

_DIGITS: Final = "[0-9]"
_DATE: Final = (
    f"{_DIGITS * 4}-{_DIGITS * 2}-{_DIGITS * 2}T{_DIGITS * 2}:{_DIGITS * 2}:{_DIGITS * 2}."
)


def odd_times(table: Table, column: BoundColumn, *, limit: int) -> Statement:
    """Read the ids of rows whose time no claim can read."""
    name = f"q.{column.sql}"
    layouts = " OR ".join(f"{name} GLOB '{_DATE}{_DIGITS * n}+00:00'" for n in (3, 4, 5, 6))
    text = (
        f"SELECT q.{table.id.sql} FROM {table.sql} AS q WHERE {name} IS NOT NULL "
        f"AND NOT (typeof({name}) = 'text' AND ({layouts})) LIMIT {limit}"
    )
    return Statement("check times", text)
