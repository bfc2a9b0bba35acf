"""A bench over a real database, in one of our own claim forms."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from inboxkit import Database, InboxSpec, NewRow
from inboxkit._core.lease import ExpirySteps
from inboxkit._forms import Connections, open_form
from inboxkit._sql.check import check
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.insert import insert
from inboxkit._sql.table import bind
from inboxkit.abc import (
    Claim,
    Claimed,
    ClaimForm,
    ClaimFormName,
    DriverConnection,
    Script,
    Statement,
)
from inboxkit.errors import DeclarationError

from .bench import LEASE, Bench
from .manual_clock import ManualClock
from .sessions import Lender

__all__ = ["DatabaseBench"]


class DatabaseBench(Bench):
    """One table of a database, which is dropped at the end.

    Tests a driver, a server or a URL with our claim forms: whether all that these say to the database
    means there what it should.

    Args:
        database: A URL, or a database whose clock is a `ManualClock` (that of `Database.over` is also
            its driver's), with a pool of 20. One that is not open is opened, and closed at the end.
        form_name: Which of our forms.
        table: The table's name; None: one that no other bench has.

    Raises:
        DeclarationError: The database goes by another clock.
    """

    def __init__(
        self, database: Database | str, form_name: ClaimFormName, table: str | None = None
    ) -> None:
        if isinstance(database, str):
            database = Database(database, pool_size=20, clock=ManualClock())
        super().__init__(form_name, table, clock=self.clock_of(database))
        self.clock.elapsed = timedelta(0)
        self.db = database
        self.dialect: Dialect = get_dialect(database.dialect)
        self.lender: Lender = Lender(database)
        """The database for forms: all sessions that hold rows are to come from it."""
        self.tables: list[str] = []
        """What is dropped at the end."""
        self._opened = False
        self._file = ""
        self._sessions: dict[int, DriverConnection] = {}
        """By the identity of their rows' fences."""

    def __str__(self) -> str:
        return f"{self.form_name} form on {self.db.dialect} by {self.db.driver_name}"

    async def __aenter__(self) -> Self:
        self._opened = not self.db.is_open
        await self.db.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drop()
        if self._opened:
            await self.db.aclose()

    def clock_of(self, database: Database) -> ManualClock:
        """The clock that the tests move: the database's own."""
        if not isinstance(database.clock, ManualClock):
            raise DeclarationError(
                f"a bench moves its database's clock: make the database with clock=ManualClock(), not "
                f"{database.clock!r}"
            )
        return database.clock

    @property
    def has_sessions(self) -> bool:
        """Whether sessions hold the rows."""
        return self.form_name != "lease" and self.db.dialect != "sqlite"

    # The table.

    @property
    def name(self) -> str:
        """The table's, quoted."""
        return self.dialect.table(self.table, None)

    async def create(self, *, nullable: bool = False, dead: str = "", **roles: Any) -> None:
        self.spec: InboxSpec = self.describe(**roles)
        statements = self.ddl(self.spec, nullable=nullable)
        if dead:
            statements += self.ddl(replace(self.spec, table=dead), nullable=nullable)
        await self.make(statements, self.table, *([dead] if dead else []))

    def ddl(self, spec: InboxSpec, *, nullable: bool) -> list[str]:
        """The statements that make a table; to be overridden where the database needs others."""
        made, *indexes = self.dialect.create_table(spec)
        return [made.replace(" NOT NULL", "") if nullable else made, *indexes]

    async def make(self, statements: list[str], *tables: str) -> None:
        """Make tables by statements."""
        self.tables += tables
        for statement in statements:
            await self.db.execute(statement)
        await self.look()

    async def look(self) -> None:
        """Ask the database what it has."""
        self.info: TableInfo = await self.db.run(self.dialect.describe(self.spec))
        check(self.dialect, self.spec, self.info)
        self._bound = bind(self.dialect, self.spec, self.info)
        self._columns = {column.name: column for column in self._bound.columns}
        if self.form_name == "advisory lock" and self.db.dialect == "sqlite":
            self._file = await self.db.fetch_value("SELECT file FROM pragma_database_list")

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

    async def _set(self, id: Any, name: str, value: Any) -> None:
        column = self._columns[name]
        place = "$1"
        if self.db.dialect == "postgres" and column.info.cast:
            place = f"$1::{column.info.cast}"
        text = f"UPDATE {self.name} SET {column.sql} = {place} WHERE id = $2"
        given = (value, self._bound.id.encode(id))

        def steps(_reading: object) -> Any:
            yield Statement("set", text, given, returns_rows=False)

        await self.db.run(Script("set", steps, "write"))

    async def spoil(self, id: Any, column: str) -> None:
        name = self.dialect.quote(column)
        await self.db.execute(f"UPDATE {self.name} SET {name} = '[1]' WHERE id = $1", id)

    async def delete_all(self) -> None:
        """Delete all rows; none is in work."""
        assert not self.lender.lent
        self._sessions.clear()
        for table in self.tables:
            await self.db.execute(f"DELETE FROM {self.dialect.table(table, None)}")

    async def drop(self) -> None:
        """Leave nothing behind."""
        await self.close_forms()
        await self.lender.end_all()
        more = " CASCADE" if self.db.dialect == "postgres" else ""
        for table in self.tables:
            await self.db.execute(f"DROP TABLE {self.dialect.table(table, None)}{more}")

    # The form.

    def open(self, group: str | None, cap: int | None = None, step: int = 0) -> ClaimForm:
        return self.open_on(self.lender, group, cap, step)

    def open_on(
        self, database: Connections, group: str | None, cap: int | None, step: int
    ) -> ClaimForm:
        """As `open`, on what runs the form's scripts and lends it sessions."""
        return open_form(
            database,
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
        if self.form_name != "advisory lock" or self.db.dialect != "sqlite":
            return {}
        from inboxkit._db.process_keys import keys_of_file  # noqa: PLC0415 - not on every system

        return {"keys": keys_of_file(self._file)}

    async def claim_once(self, form: ClaimForm, limit: int) -> Claim:
        before = list(self.lender.lent)
        claim = await super().claim_once(form, limit)
        new = [session for session in self.lender.lent if session not in before]
        held = [id(row.fence) for row in claim.rows]
        if self.has_sessions:
            assert len(new) == len(held), "each row is held by a session, and no other is kept"
            self._sessions.update(zip(held, new, strict=True))
        else:
            assert not new, "no session is kept"
        return claim

    async def crash(self, row: Claimed) -> None:
        self._in_work.pop(id(row.fence), None)
        if self.has_sessions:
            await self.lender.end(self._sessions.pop(id(row.fence)))
        elif row.fence.hold is not None:
            # The key is this process's own, which lives on, so its form must let go of it.
            await self.release(row, give_back=False)
