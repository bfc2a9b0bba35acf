"""What a database says about a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["ColumnInfo", "IndexInfo", "TableInfo", "TableKind"]

TableKind: TypeAlias = Literal["table", "view", "foreign table", "missing"]


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column as the database has it."""

    name: str
    type: str
    """As the database spells it, with length and precision: for messages."""
    family: str
    """What `column_types` goes by: the type's name without length; on Postgres with its domains
    resolved, on SQLite the family of the declared type."""
    nullable: bool = True
    has_default: bool = False
    """The database fills it where an insert leaves it out (a default, an identity, a rowid)."""
    computed: bool = False
    """No insert may write it."""
    always_identity: bool = False
    """Postgres: GENERATED ALWAYS AS IDENTITY; an ordinary insert may not write it."""
    precision: int = 6
    """Times: fraction digits that the column keeps."""
    cast: str = ""
    """The type to cast a parameter to, without length (an explicit cast to varchar(3) would cut the
    value instead of refusing it). Empty on SQLite, and on MariaDB and MySQL."""
    unsigned: bool = False
    """MariaDB, MySQL: no negative numbers, and twice as many others."""
    longest: int | None = None
    """Most characters of a char or varchar; on MariaDB and MySQL most bytes of another type. None: no
    limit."""
    charset: str = ""
    """MariaDB, MySQL: the character set of a text column; and"""
    collation: str = ""
    """what texts are compared by."""
    is_numbered: bool = False
    """MariaDB, MySQL: AUTO_INCREMENT."""
    on_update: bool = False
    """MariaDB, MySQL: each update of the row writes the current time into it."""


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index."""

    columns: tuple[str, ...]
    """Its key columns in order; an empty name stands for an expression."""
    unique: bool = False
    partial: bool = False
    name: str = ""
    """MariaDB, MySQL: by which a statement can be told to use it."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the database has it."""

    table: str
    schema: str | None = None
    """Where it was found: the search path is resolved."""
    kind: TableKind = "table"
    columns: tuple[ColumnInfo, ...] = ()
    indexes: tuple[IndexInfo, ...] = ()
    folds_case: bool = False
    """Columns' names are compared without regard to case (not on Postgres)."""
    nearby: tuple[str, ...] = ()
    """Where the table is missing: the tables that are there."""
    server: Literal["", "mariadb", "mysql"] = ""
    """Which of the two the server is; empty on other databases, and where nobody asked."""
    engine: str = ""
    """MariaDB, MySQL: the storage engine."""
    partitioned_by: tuple[str, ...] = ()
    """PostgreSQL: the columns that say which partition a row is in; an empty name stands for an
    expression."""

    def column(self, name: str) -> ColumnInfo | None:
        """Find a column as the database would find it."""
        return next((column for column in self.columns if self.same(column.name, name)), None)

    def same(self, one: str, other: str) -> bool:
        """Whether two names mean the same column."""
        return one.lower() == other.lower() if self.folds_case else one == other

    def has_unique(self, name: str) -> bool:
        """Whether a whole unique index stands on exactly this column."""
        return any(
            index.unique
            and not index.partial
            and len(index.columns) == 1
            and self.same(index.columns[0], name)
            for index in self.indexes
        )

    def has_index(self, *names: str) -> bool:
        """Whether an index begins with these columns, in this order."""
        return any(
            len(index.columns) >= len(names)
            and all(self.same(a, b) for a, b in zip(index.columns, names, strict=False))
            for index in self.indexes
        )
