"""One lease form over one table on a real database."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

# Tests are imported by path, so their helpers are found by plain names, as the examples' are.
sys.path.insert(0, str(Path(__file__).parent))

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.rows import NewRow
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._forms import LeaseForm, open_form
from inboxkit._sql.check import check
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.insert import insert
from inboxkit._sql.statement import Script, Statement
from inboxkit.abc import DriverConnection
from inboxkit.database import Database

START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.elapsed = timedelta(0)

    def now(self) -> datetime:
        return START + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def sleep_until(self, instant: datetime) -> None:
        raise NotImplementedError

    def external(self, label: str) -> AbstractContextManager[None]:
        return nullcontext()


class Bench:
    """One table on a real database, with a clock that the test moves."""

    START = START

    def __init__(self, db: Database, table: str) -> None:
        self.db = db
        self.clock: ManualClock = db.clock  # type: ignore[assignment]
        self.dialect = get_dialect(db.dialect)
        self.is_postgres = db.dialect == "postgres"
        self.table = table
        self.runs: list[str] = []

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, **delta: float) -> None:
        self.clock.elapsed += timedelta(**delta)

    async def run(self, script: Script[Any]) -> Any:
        """Run a script on the database, and note it."""
        self.runs.append(f"{script.name} {script.transaction}")
        return await self.db.run(script)

    async def acquire(self) -> DriverConnection:
        """Lend a session of the database's."""
        return await self.db.acquire()

    async def release(self, connection: DriverConnection) -> None:
        """Take it back."""
        await self.db.release(connection)

    async def create(self, *extra: str, ddl: str = "", **roles: Any) -> None:
        """Make the table that a description asks for, or `ddl` with {table} in it."""
        self.spec = InboxSpec(self.table, **{**ROLES, **roles})
        statements = self.dialect.create_table(self.spec)
        if ddl:
            statements = [ddl.format(table=self.name)]
        for statement in (*statements, *(one.format(table=self.name) for one in extra)):
            await self.db.execute(statement)
        self.info = await self.db.run(self.dialect.describe(self.spec))
        check(self.dialect, self.spec, self.info)

    @property
    def name(self) -> str:
        return self.dialect.table(self.table, None)

    def form(
        self, group: str | None = "a", *, cap: int | None = None, runner: Any = None, step: int = 0
    ) -> LeaseForm:
        return open_form(
            runner if runner is not None else self,
            self.spec,
            self.info,
            self.dialect,
            group=group if self.spec.group is not None else None,
            lease=timedelta(seconds=30),
            cap=cap,
            steps=ExpirySteps(step),
        )

    async def insert(self, *rows: dict[str, Any]) -> list[Any]:
        """Insert rows, with what they leave out filled in."""
        described = {column.name for _role, column in self.spec.roles()}
        defaults = {"grp": "a", "prio": 0, "due": None, "body": b"{}", "tries": 1}
        given = {name: value for name, value in defaults.items() if name in described}
        made = [NewRow(self.spec, given | row) for row in rows]
        script = insert(self.dialect, self.spec, self.info, made, on_conflict="error", now=self.now)
        ids: list[Any] = await self.db.run(script)
        return ids

    async def rows(self, *columns: str) -> list[Any]:
        """The table's rows by id: one column's values, or tuples of several."""
        names = ", ".join(self.dialect.quote(column) for column in columns)
        found = await self.db.fetch(f"SELECT {names} FROM {self.name} ORDER BY id")
        return [row[0] if len(columns) == 1 else tuple(row) for row in found]

    async def set(self, id: Any, **values: Any) -> None:
        """Write a row as somebody else would."""
        for name, value in values.items():
            await self.db.run(
                Script("set", lambda _r, n=name, v=value: self._set(id, n, v), "write")
            )

    def _set(self, id: Any, name: str, value: Any) -> Any:
        if isinstance(value, datetime):
            value = self.dialect.instant(value)
        cast = next(c.cast for c in self.info.columns if c.name == name)
        place = f"$1::{cast}" if cast else "$1"
        text = f"UPDATE {self.name} SET {self.dialect.quote(name)} = {place} WHERE id = $2"
        yield Statement("set", text, (value, id), returns_rows=False)


ROLES: dict[str, Any] = {
    "id": Column("id", generated=True, type=int),
    "group": Column("grp"),
    "priority": Column("prio"),
    "retry_after": Column("due", default=None),
    "attempt": Column("tries"),
    "locked_until": Column("lease"),
    "payload": Column("body", type=bytes),
}


@pytest.fixture(params=["asyncio", "trio"])
def bench(request: pytest.FixtureRequest, url: str, table: str) -> Callable[..., None]:
    """Run an async test with a `Bench`, on one backend."""

    def run(test: Callable[[Bench], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Database(url, clock=ManualClock()) as db:
                await test(Bench(db, table))

        anyio.run(main, backend=request.param)

    return run


@pytest.fixture
def server(bench: Any, url: str) -> Any:
    if not url.startswith("postgres"):
        pytest.skip("no session holds the rows")
    return bench


@pytest.fixture
def file(bench: Any, url: str) -> Any:
    if not url.startswith("sqlite"):
        pytest.skip("sessions of the server hold the rows")
    return bench
