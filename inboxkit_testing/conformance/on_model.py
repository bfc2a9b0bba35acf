"""A bench over the model."""

from __future__ import annotations

from typing import Any

from inboxkit import InboxSpec
from inboxkit.abc import Claimed, ClaimForm, ClaimFormName
from inboxkit.errors import DecodeError
from inboxkit_testing.model import ModelDatabase, ModelTable, open_model

from .bench import LEASE, Bench
from .manual_clock import ManualClock

__all__ = ["ModelBench"]


class ModelBench(Bench):
    """One table in memory. Its methods never wait.

    Args:
        form_name: Of which kind the form is.
        table: The table's name; None: one that no other bench has.
        clock: The form's; None: a new one.
    """

    def __init__(
        self,
        form_name: ClaimFormName,
        table: str | None = None,
        *,
        clock: ManualClock | None = None,
    ) -> None:
        super().__init__(form_name, table, clock=clock)
        self.db: ModelDatabase = ModelDatabase(self.clock)

    @property
    def _table(self) -> ModelTable:
        return self.db.table(self.table)

    async def create(
        self,
        *,
        nullable: bool = False,  # noqa: ARG002 - every column takes NULL
        dead: str = "",
        **roles: Any,
    ) -> None:
        self.spec: InboxSpec = self.describe(**roles)
        self.db.create_table(self.spec)
        if dead:
            self.db.create_table(self.spec, dead)

    async def insert(self, *rows: dict[str, Any]) -> list[Any]:
        return [self._table.insert(**self.filled(row)) for row in rows]

    async def rows(self, *columns: str, table: str | None = None) -> list[Any]:
        stored = self.db.table(table or self.table)
        images = (stored.values(row) for row in sorted(stored.rows, key=lambda row: row.id))
        found = [tuple(image.get(column) for column in columns) for image in images]
        return [row[0] for row in found] if len(columns) == 1 else found

    async def set(self, id: Any, **values: Any) -> None:
        row = self._table.find(id)
        assert row is not None
        self._table.write(row, **values)

    async def spoil(self, id: Any, column: str) -> None:
        await self.set(id, **{column: DecodeError("spoilt", queue=self.table, id=id, where=column)})

    def open(self, group: str | None, cap: int | None, step: int = 0) -> ClaimForm:
        return open_model(self.db, self.spec, group=group, lease=LEASE, cap=cap, step=step)

    async def crash(self, row: Claimed) -> None:
        self._in_work.pop(id(row.fence), None)
        self.db.crash(row.fence)

    async def delete_all(self) -> None:
        """Delete all rows; none is in work."""
        assert not self.db.holds
        for table in self.db.tables.values():
            table.rows.clear()
