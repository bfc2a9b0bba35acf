"""Rows under a lease as conditions and as values by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inboxkit._core.spec import Role
from inboxkit._sql.lease import Held
from inboxkit._sql.table import Table

__all__ = ["Parameters"]


class Parameters:
    """A statement's values, given their placeholders as the text is made."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    @property
    def values(self) -> tuple[Any, ...]:
        """All of them, in order."""
        return tuple(self._values)

    def add(self, value: Any) -> str:
        """Give one more; returns its placeholder."""
        self._values.append(value)
        return f"${len(self._values)}"

    def add_all(self, values: Sequence[Any]) -> str:
        """Give more; returns their placeholders, separated by commas."""
        return ", ".join(map(self.add, values))

    def fences(self, table: Table, rows: Sequence[Held]) -> str:
        """That row `q` is one of `rows` and holds one of its tokens. Each is a point of the id's index;
        a list of pairs would be none on MariaDB."""
        return f"({' OR '.join(self._fence(table, row) for row in rows)})"

    def _fence(self, table: Table, row: Held) -> str:
        lease, attempt = table.get(Role.LOCKED_UNTIL).sql, table.find(Role.ATTEMPT)
        tokens = self.add_all(row.tokens)
        text = f"q.{table.id.sql} = {self.add(row.id)} AND q.{lease} IN ({tokens})"
        if attempt is not None and row.attempt is not None:
            text += f" AND q.{attempt.sql} = {self.add(row.attempt)}"
        return f"({text})"

    def by_id(self, table: Table, rows: Sequence[Held]) -> str:
        """Each row's value, told by its id."""
        first = rows[0].value
        if all(row.value == first for row in rows):
            return self.add(first)
        cases = "".join(f" WHEN {self.add(row.id)} THEN {self.add(row.value)}" for row in rows)
        return f"CASE {table.id.sql}{cases} END"
