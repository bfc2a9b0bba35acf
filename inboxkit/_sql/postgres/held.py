"""Rows under a lease as a relation: one line for each token that may stand in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inboxkit._core.spec import Role
from inboxkit._sql.lease import Held
from inboxkit._sql.table import Table

__all__ = ["fence", "parameters", "relation"]


def relation(table: Table, value: Role | None) -> str:
    """``unnest(…) AS held(…)``, each array cast to its column's type: the drivers guess types
    differently where nothing tells them.

    Args:
        table: The rows' table.
        value: The column whose type `Held.value` has; None: no values are used.
    """
    attempt = table.find(Role.ATTEMPT)
    casts = [
        table.id.info.cast,
        table.get(Role.LOCKED_UNTIL).info.cast,
        attempt.info.cast if attempt is not None else "bigint",
    ]
    names = ["id", "token", "attempt"]
    if value is not None:
        casts.append(table.get(value).info.cast)
        names.append("value")
    arrays = ", ".join(f"${n}::{cast}[]" for n, cast in enumerate(casts, 1))
    return f"unnest({arrays}) AS held({', '.join(names)})"


def parameters(rows: Sequence[Held], *, values: bool) -> tuple[list[Any], ...]:
    """The arrays of `relation`."""
    lines = [(row.id, token, row.attempt, row.value) for row in rows for token in row.tokens]
    columns = tuple([line[n] for line in lines] for n in range(4))
    return columns if values else columns[:3]


def fence(table: Table) -> str:
    """That row `q` holds what line `held` says."""
    text = f"q.{table.id.sql} = held.id AND q.{table.get(Role.LOCKED_UNTIL).sql} = held.token"
    attempt = table.find(Role.ATTEMPT)
    if attempt is not None:
        text += f" AND (held.attempt IS NULL OR q.{attempt.sql} = held.attempt)"
    return text
