"""What differs between databases, behind one port."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit.errors import DialectError

from .convert import Converter
from .info import ColumnInfo, TableInfo
from .statement import Script, Statement, Steps, Transaction

if TYPE_CHECKING:
    from .advisory import AdvisoryStatements
    from .ddl import Index
    from .lease import LeaseStatements
    from .row_lock import RowLockStatements
    from .table import BoundColumn, Table

__all__ = ["Dialect", "DialectName", "get_dialect"]

DialectName = Literal["postgres", "sqlite", "mysql"]


class Dialect(Protocol):
    """Spells SQL for one kind of database; knows no driver."""

    @property
    def name(self) -> DialectName:
        """Which it is."""
        ...

    @property
    def lone_write(self) -> Transaction:
        """What one writing statement runs in: alone where that saves round trips, else under the
        write lock, so that the clock is read when it is had."""
        ...

    @property
    def lock_rows(self) -> str:
        """The end of a SELECT from `q` that locks what it reads and waits for no row; empty where one
        lock is on the whole file."""
        ...

    @property
    def keep_ids(self) -> str:
        """What goes between INSERT and SELECT so that ids are written also where the database would
        make its own; empty, or with a space behind it."""
        ...

    @property
    def by_indexes(self) -> Statement | None:
        """What makes the rest of a transaction go by indexes where it can, also where the planner takes a
        few rows for many; None: nothing is needed."""
        ...

    def by_id(self, table: Table) -> str:
        """A hint behind a table's name for a statement that finds rows by their ids; mostly empty."""
        ...

    def unsorted(self, table: Table, wanted: str, where: str) -> str:
        """A SELECT from `q` to be ordered by id, that is found by the indexes of its conditions: by that
        of the ids, few rows among many would be looked for in all of them.

        Args:
            table: What `q` is; the id is among `wanted`.
            wanted: Columns of `q`.
            where: The conditions, with WHERE.
        """
        ...

    def quote(self, name: str) -> str:
        """Quote an identifier.

        Raises:
            DialectError: The database cannot have such a name.
        """
        ...

    def table(self, table: str, schema: str | None) -> str:
        """Quote a table's name, with its schema where one is given."""
        ...

    def converter(self, role: Role, column: Column, info: ColumnInfo | None) -> Converter:
        """How a column's values travel; `info` None: guessed from the description."""
        ...

    def instant(self, value: datetime) -> Any:
        """Encode an aware datetime, to the microsecond."""
        ...

    def describe(self, spec: InboxSpec) -> Script[TableInfo]:
        """The script that asks the database about a table."""
        ...

    def lease(self, table: Table, *, group: str | None, cap: int | None) -> LeaseStatements:
        """The statements of the lease form for one queue."""
        ...

    def advisory(self, table: Table, *, group: str | None, cap: int | None) -> AdvisoryStatements:
        """The statements of the advisory lock form for one queue."""
        ...

    def row_lock(self, table: Table, *, group: str | None) -> RowLockStatements:
        """The statements of the row lock form for one queue.

        Raises:
            DialectError: The database locks no rows.
        """
        ...

    def insert(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Statement:
        """One statement that writes rows of driver values and answers their ids in order, where the
        database has such a statement.

        Args:
            table: Where to.
            columns: The columns that are given; none: the database fills all, and `rows` is one
                empty row.
            rows: Their values; at most `rows_at_once`.
            ignore: Skip rows that are there already, by any unique index.
        """
        ...

    def inserted(
        self,
        table: Table,
        columns: Sequence[BoundColumn],
        rows: Sequence[Sequence[Any]],
        *,
        ignore: bool,
    ) -> Steps[list[Any]]:
        """Write rows as `insert` does; returns their ids in order, None for one that was skipped."""
        ...

    def rows_at_once(self, table: Table, columns: Sequence[BoundColumn], *, ignore: bool) -> int:
        """Most rows that `insert` takes."""
        ...

    @property
    def bytes_at_once(self) -> int | None:
        """Bytes of values beyond which rows go into another statement; None: no limit."""
        ...

    def create_table(self, spec: InboxSpec) -> list[str]:
        """Statements that would make the table and its indexes."""
        ...

    def indexes(self, spec: InboxSpec) -> list[Index]:
        """The indexes that the table's claims walk."""
        ...

    def finished_index(self, spec: InboxSpec) -> Index:
        """The index of finished rows by their time, which deleting old ones walks."""
        ...


def get_dialect(name: str) -> Dialect:
    """Return the dialect of a database.

    Raises:
        DialectError: No such dialect.
    """
    # Imported here: all are made of this module's port.
    if name == "postgres":
        from .postgres import Postgres  # noqa: PLC0415

        return Postgres()
    if name == "sqlite":
        from .sqlite import Sqlite  # noqa: PLC0415

        return Sqlite()
    if name == "mysql":
        from .mysql import Mysql  # noqa: PLC0415

        return Mysql()
    raise DialectError(f"dialect must be 'postgres', 'sqlite' or 'mysql', not {name!r}")
