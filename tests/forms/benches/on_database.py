"""A bench over a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import anyio

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.rows import NewRow
from inboxkit._forms import open_form
from inboxkit._sql.check import check
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.insert import insert
from inboxkit._sql.statement import Script, Statement
from inboxkit._sql.table import bind
from inboxkit.abc import Claim, Claimed, ClaimForm, DriverConnection
from inboxkit.database import Database

from .bench import LEASE, Bench
from .cells import Cell

__all__ = ["DatabaseBench", "OpenBench"]


@dataclass(frozen=True)
class _Number:
    """How a session is told from others."""

    asked: str
    ended: str
    """Ends it; with PostgreSQL, waits until it has."""
    seen: str | None = None
    """Whether it is there still."""


_NUMBERS = {
    "postgres": _Number("SELECT pg_backend_pid()", "SELECT pg_terminate_backend($1::int, 5000)"),
    "mysql": _Number(
        "SELECT connection_id()",
        "KILL $1",
        "SELECT count(*) FROM information_schema.processlist WHERE id = $1",
    ),
}


class Lender:
    """A database as forms see it: runs their scripts and lends them sessions, and notes both."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.runs: list[str] = []
        """Scripts, and what they ran in."""
        self.lent: list[DriverConnection] = []

    async def run(self, script: Script[Any]) -> Any:
        self.runs.append(f"{script.name} {script.transaction}")
        return await self.db.run(script)

    async def acquire(self, *, wait: bool = True) -> DriverConnection:
        session = await self.db.acquire(wait=wait)
        self.lent.append(session)
        return session

    async def begin(self) -> DriverConnection:
        session = await self.db.begin()
        self.lent.append(session)
        return session

    async def release(self, session: DriverConnection) -> None:
        self.lent.remove(session)
        await self.db.release(session)

    async def end_all(self) -> None:
        """End what is lent still."""
        for session in list(self.lent):
            await self.end(session)
            await self.release(session)

    async def end(self, session: DriverConnection) -> None:
        """End a session as a crash does; returns when the server has let go of what it held."""
        if not session.is_closed and self.db.dialect in _NUMBERS:
            await self.kill(await self.number(session))
        session.terminate()

    async def number(self, session: DriverConnection) -> Any:
        """The number that the server gave a session."""
        asked = _NUMBERS[self.db.dialect].asked
        return (await session.execute(Statement("session", asked))).rows[0][0]

    async def kill(self, number: Any) -> None:
        """End the session that the server gave this number."""
        how = _NUMBERS[self.db.dialect]
        await self.db.execute(how.ended, number)
        while how.seen is not None and await self.db.fetch_value(how.seen, number):
            await anyio.lowlevel.checkpoint()


class DatabaseBench(Bench):
    """One table of a database that tests share."""

    def __init__(self, cell: Cell, table: str, db: Database) -> None:
        super().__init__(cell, table, db.clock)  # type: ignore[arg-type]
        self.clock.elapsed = timedelta(0)
        self.db = db
        self.dialect = get_dialect(db.dialect)
        self.lender = Lender(db)
        self.locks: set[tuple[str, tuple[Any, ...]]] = set()
        """Statements that tried for advisory locks, where the database does not list these."""
        self.tables: list[str] = []
        """What is dropped at the end."""
        self._sessions: dict[int, DriverConnection] = {}
        """By the identity of their rows' fences."""

    @property
    def has_sessions(self) -> bool:
        """Whether sessions hold the rows."""
        return self.cell.form != "lease" and self.db.dialect != "sqlite"

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

    @property
    def name(self) -> str:
        """The table's, quoted."""
        return self.dialect.table(self.table, None)

    async def create(
        self, *extra: str, nullable: bool = False, dead: str = "", ddl: str = "", **roles: Any
    ) -> None:
        """Make the table that a description asks for, or `ddl` with {table} in it; `extra` follows."""
        self.spec = self.describe(**roles)
        statements = (
            [ddl.format(table=self.name)] if ddl else self._ddl(self.spec, nullable=nullable)
        )
        if dead:
            statements += self._ddl(replace(self.spec, table=dead), nullable=nullable)
        self.tables += [self.table, *([dead] if dead else [])]
        for statement in (*statements, *(one.format(table=self.name) for one in extra)):
            await self.db.execute(statement)
        await self.look()
        if self.cell == Cell("advisory lock", "sqlite"):
            self._path = await self.db.fetch_value("SELECT file FROM pragma_database_list")

    def _ddl(self, spec: Any, *, nullable: bool) -> list[str]:
        made, *indexes = self.dialect.create_table(spec)
        return [made.replace(" NOT NULL", "") if nullable else made, *indexes]

    async def look(self) -> None:
        """Ask the database what it has."""
        self.info = await self.db.run(self.dialect.describe(self.spec))
        check(self.dialect, self.spec, self.info)
        self._bound = bind(self.dialect, self.spec, self.info)
        self._columns = {column.name: column for column in self._bound.columns}

    async def insert(self, *rows: dict[str, Any]) -> list[Any]:
        made = [NewRow(self.spec, self.filled(row)) for row in rows]
        script = insert(self.dialect, self.spec, self.info, made, on_conflict="error", now=self.now)
        ids: list[Any] = await self.db.run(script)
        return ids

    async def rows(self, *columns: str, table: str | None = None) -> list[Any]:
        there = [column for column in columns if column in self._columns]
        names = ", ".join(self.dialect.quote(column) for column in there)
        source = self.name if table is None else self.dialect.table(table, None)
        stored = await self.db.fetch(f"SELECT {names} FROM {source} ORDER BY id")
        found = [
            {
                name: self._columns[name].decode(value)
                for name, value in zip(there, row, strict=True)
            }
            for row in stored
        ]
        if len(columns) == 1:
            return [row[columns[0]] for row in found]
        return [tuple(row.get(column) for column in columns) for row in found]

    async def set(self, id: Any, **values: Any) -> None:
        for name, value in values.items():
            await self._set(id, name, self._columns[name].encode(value))

    async def set_raw(self, id: Any, **values: Any) -> None:
        """Write what the driver is to send as it is."""
        for name, value in values.items():
            await self._set(id, name, value)

    async def _set(self, id: Any, name: str, value: Any) -> None:
        column = self._columns[name]
        place = "$1"
        if self.is_postgres and column.info.cast:
            place = f"$1::{column.info.cast}"
        text = f"UPDATE {self.name} SET {column.sql} = {place} WHERE id = $2"
        given = (value, self._bound.id.encode(id))

        def steps(_reading: object) -> Any:
            yield Statement("set", text, given, returns_rows=False)

        await self.db.run(Script("set", steps, "write"))

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

    async def spoil(self, id: Any, column: str) -> None:
        name = self.dialect.quote(column)
        await self.db.execute(f"UPDATE {self.name} SET {name} = '[1]' WHERE id = $1", id)

    async def delete(self, id: Any) -> None:
        given = self._bound.id.encode(id)
        await self.db.execute(f"DELETE FROM {self.name} WHERE id = $1", given)

    # The form.

    def open(
        self, group: str | None, cap: int | None = None, step: int = 0, runner: Any = None
    ) -> ClaimForm:
        return open_form(
            runner if runner is not None else self.lender,
            self.spec,
            self.info,
            self.dialect,
            group=group if self.spec.group is not None else None,
            lease=LEASE,
            cap=cap,
            steps=ExpirySteps(step),
            **self._keys(),
        )

    def _keys(self) -> dict[str, Any]:
        """Where the process keeps the keys, each form has its own right to them."""
        if self.cell != Cell("advisory lock", "sqlite"):
            return {}
        from inboxkit._db.process_keys import keys_of_file

        return {"keys": keys_of_file(self._path)}

    async def claim_once(self, form: ClaimForm, limit: int) -> Claim:
        before = list(self.lender.lent)
        claim = await super().claim_once(form, limit)
        new = [session for session in self.lender.lent if session not in before]
        held = [id(row.fence) for row in claim.rows]
        if self.has_sessions:
            assert len(new) == len(held), "each row is held by a session, and no other is kept"
            self._sessions.update(zip(held, new, strict=True))
        else:
            assert not new
        return claim

    async def crash(self, row: Claimed) -> None:
        self._in_work.pop(id(row.fence), None)
        if self.has_sessions:
            await self.lender.end(self._sessions.pop(id(row.fence)))
        elif row.fence.hold is not None:
            # The key is this process's own, which lives on, so its form must let go of it.
            await self.release(row, give_back=False)

    async def delete_all(self) -> None:
        assert not self.lender.lent
        self._sessions.clear()
        for table in self.tables:
            await self.db.execute(f"DELETE FROM {self.dialect.table(table, None)}")

    async def drop(self) -> None:
        """Leave nothing behind."""
        await self.close_forms()
        await self.lender.end_all()
        for table in self.tables:
            more = " CASCADE" if self.is_postgres else ""
            await self.db.execute(f"DROP TABLE {self.dialect.table(table, None)}{more}")


class OpenBench(DatabaseBench):
    """For tests of one form alone: each `form` is another instance's, on what the test wants. The
    bench is a database as forms see it, itself."""

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
        return self.open(served, cap, step, runner)
