"""Benches over a database for tests of our own forms, which look closer than the suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from inboxkit import Database
from inboxkit._sql.statement import Script, Statement
from inboxkit.abc import ClaimFormName, DriverConnection
from inboxkit_testing.conformance import DatabaseBench

__all__ = ["OpenBench"]


class OpenBench(DatabaseBench):
    """For tests of one form alone: each `form` is another instance's, on what the test wants. The
    bench is a database as forms see it, itself."""

    def __init__(self, database: Database, form_name: ClaimFormName, table: str) -> None:
        super().__init__(database, form_name, table)
        self.locks: set[tuple[str, tuple[Any, ...]]] = set()
        """Statements that tried for advisory locks, where the database does not list these."""

    @property
    def is_postgres(self) -> bool:
        return self.db.dialect == "postgres"

    @property
    def is_sqlite(self) -> bool:
        return self.db.dialect == "sqlite"

    @property
    def is_mysql(self) -> bool:
        return self.db.dialect == "mysql"

    @property
    def runs(self) -> list[str]:
        """Scripts that forms ran, and what they ran in."""
        return self.lender.runs

    # The table.

    async def create(
        self, *extra: str, nullable: bool = False, dead: str = "", ddl: str = "", **roles: Any
    ) -> None:
        """Make the table that a description asks for, or `ddl` with {table} in it; `extra` follows."""
        self.spec = self.describe(**roles)
        made = [ddl.format(table=self.name)] if ddl else self.ddl(self.spec, nullable=nullable)
        if dead:
            made += self.ddl(replace(self.spec, table=dead), nullable=nullable)
        made += [text.format(table=self.name) for text in extra]
        await self.make(made, self.table, *([dead] if dead else []))

    async def set_raw(self, id: Any, **values: Any) -> None:
        """Write what the driver is to send as it is."""
        for name, value in values.items():
            await self._set(id, name, value)

    @asynccontextmanager
    async def locked(self, *ids: Any) -> AsyncIterator[None]:
        """Lock rows as somebody else's transaction would."""
        session = await self.db.acquire()
        try:
            await session.begin(hold=True)
            text = f"SELECT id FROM {self.name} WHERE id = $1 FOR UPDATE"
            for id in ids:  # by one statement MariaDB would lock more, whatever its condition
                await session.execute(Statement("lock", text, (id,)))
            yield
        finally:
            await self.db.release(session)

    # The form.

    async def run(self, script: Script[Any]) -> Any:
        """Run a script, and note it."""
        return await self.lender.run(script)

    async def acquire(self, *, wait: bool = True) -> DriverConnection:
        """Lend a session."""
        return await self.lender.acquire(wait=wait)

    async def begin(self) -> DriverConnection:
        """Lend a session inside a transaction."""
        return await self.lender.begin()

    async def release(self, session: Any) -> None:  # type: ignore[override]
        """Take a session back."""
        await self.lender.release(session)

    def form(  # type: ignore[override]
        self, group: str = "a", *, cap: int | None = None, runner: Any = None, step: int = 0
    ) -> Any:
        served = group if self.spec.group is not None else None
        return self.open_on(runner if runner is not None else self.lender, served, cap, step)
