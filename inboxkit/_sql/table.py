"""A description and what the database says of the table, made ready for SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit.errors import DecodeError, EncodeError

from .convert import Converter, MisfitError
from .dialect import Dialect
from .info import ColumnInfo, TableInfo

__all__ = ["VITAL", "BoundColumn", "Table", "bind"]

VITAL: Final = frozenset({Role.ID, Role.RETRY_AFTER})
"""A row of which one of these cannot be read is set aside. A due time in another layout than SQLite's
canonical one sorts wrong, so the row came early or late."""

_UNKNOWN = ColumnInfo("", "", "")


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """One described column, with all that statements need of it."""

    table: str
    role: Role
    column: Column
    info: ColumnInfo
    sql: str
    """Its name, quoted."""
    converter: Converter

    @property
    def name(self) -> str:
        """Its name as described."""
        return self.column.name

    def encode(self, value: Any) -> Any:
        """Return the driver's value.

        Raises:
            EncodeError: The column cannot hold it; names table and column.
        """
        if value is None:
            return None
        try:
            return self.converter.encode(value)
        except MisfitError as error:
            raise EncodeError(
                f"table {self.table!r}, column {self.name!r}: {error}",
                table=self.table,
                where=self.name,
            ) from None

    def decode(self, value: Any, *, id: Any = None) -> Any:
        """Return the Python value; a DecodeError, not raised, where it cannot be read."""
        decode = self.converter.decode
        if value is None or decode is None:
            return value
        try:
            return decode(value)
        except MisfitError as error:
            return DecodeError(
                f"table {self.table!r}, column {self.name!r}: {error}",
                queue=self.table,
                id=id,
                where=self.name,
            )


@dataclass(frozen=True, slots=True)
class Table:
    """One table on one database."""

    dialect: Dialect
    spec: InboxSpec
    info: TableInfo
    sql: str
    """Its name, quoted and with its schema."""
    columns: tuple[BoundColumn, ...]
    """Described ones, in the order of `InboxSpec.roles`."""
    by_role: Mapping[Role, BoundColumn]
    """Those that play a role; the service's own columns are not among them."""

    def find(self, role: Role) -> BoundColumn | None:
        """The column that plays a role, if any."""
        return self.by_role.get(role)

    def get(self, role: Role) -> BoundColumn:
        """The column that plays a role that the table has."""
        return self.by_role[role]

    @property
    def id(self) -> BoundColumn:
        """The id column."""
        return self.columns[0]

    @property
    def precision(self) -> int:
        """Fraction digits of the lease column."""
        return self.get(Role.LOCKED_UNTIL).info.precision

    def instant(self, value: datetime) -> Any:
        """Encode a reading of the clock, to be compared with any time column: to the microsecond."""
        return self.dialect.instant(value)

    def is_readable(self, row: Sequence[Any]) -> bool:
        """Whether a claimed row can be handed out: one driver value for each described column."""
        return not any(
            isinstance(column.decode(value), DecodeError)
            for column, value in zip(self.columns, row, strict=True)
            if column.role in VITAL
        )

    def stored(self) -> Iterator[ColumnInfo]:
        """Every column of the table that is not computed, described or not: what a move carries."""
        return (column for column in self.info.columns if not column.computed)


def bind(dialect: Dialect, spec: InboxSpec, info: TableInfo | None) -> Table:
    """Make a description ready.

    Args:
        dialect: The database's.
        spec: The description.
        info: What the database says; None where nobody asked it (inserts on foreign connections):
            types are then guessed from the description, and statements cast nothing.
    """
    columns = tuple(
        _bind_column(dialect, spec, role, column, info) for role, column in spec.roles()
    )
    schema = info.schema if info is not None else spec.schema
    if info is None:
        info = TableInfo(spec.table, spec.schema)
    by_role: dict[Role, BoundColumn] = {
        column.role: column for column in columns if column.role is not Role.DATA
    }
    return Table(dialect, spec, info, dialect.table(spec.table, schema), columns, by_role)


def _bind_column(
    dialect: Dialect, spec: InboxSpec, role: Role, column: Column, info: TableInfo | None
) -> BoundColumn:
    found = info.column(column.name) if info is not None else None
    return BoundColumn(
        spec.name,
        role,
        column,
        found if found is not None else _UNKNOWN,
        dialect.quote(column.name),
        dialect.converter(role, column, found),
    )
