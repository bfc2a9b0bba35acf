"""The one table of column types: what each role's column may be, on each database.

The start-up check goes by it, the documentation prints it, a test runs every row of it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import UUID

from inboxkit._core.spec import Column, Role

__all__ = [
    "COLUMN_TYPES",
    "FAMILIES",
    "ROLE_PYTHON",
    "Accepts",
    "accepted",
    "markdown",
    "python_type",
]

DialectName = Literal["postgres", "sqlite", "mysql"]


@dataclass(frozen=True, slots=True)
class Accepts:
    """The column types that hold one role's values of one Python type."""

    role: Role
    python: type
    postgres: tuple[str, ...]
    """Type names as `format_type` gives them, any length or precision, domains over them too."""
    sqlite: tuple[str, ...]
    """Families of declared types, see `FAMILIES`."""
    mysql: tuple[str, ...]
    """Type names of MariaDB and MySQL, any length or precision, unsigned too."""
    nullable: bool = False
    """Whether the column must be able to hold NULL."""

    def on(self, dialect: DialectName) -> tuple[str, ...]:
        """The types for one database."""
        by_dialect = {"postgres": self.postgres, "sqlite": self.sqlite, "mysql": self.mysql}
        return by_dialect[dialect]


_INTS = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying")
_TEXT_FAMILIES = ("TEXT", "NONE")
_TIME = ("timestamp with time zone",)
_TIME_FAMILIES = ("TEXT", "TIME", "NONE")
# The first is the one that a message recommends. JSON is longtext on MariaDB, UUID is its own.
_MY_INTS = ("bigint", "int", "mediumint", "smallint", "tinyint")
_MY_TEXTS = ("varchar", "char", "longtext", "mediumtext", "text", "tinytext")
_MY_LONG_TEXTS = ("longtext", "mediumtext", "text", "tinytext", "varchar", "char")
_MY_BLOBS = ("longblob", "mediumblob", "blob", "tinyblob", "varbinary")
_MY_UUIDS = ("char", "varchar", "binary(16)", "uuid")
_MY_TIME = ("datetime", "timestamp")

FAMILIES: Final = {
    "INT": "INTEGER (any name with INT in it)",
    "TEXT": "TEXT (any name with CHAR, CLOB or TEXT in it)",
    "BLOB": "BLOB",
    "REAL": "REAL (any name with REAL, FLOA or DOUB in it)",
    "NUMERIC": "NUMERIC (any other name)",
    "BOOLEAN": "BOOLEAN",
    "UUID": "UUID",
    "JSON": "JSON",
    "TIME": "DATETIME or TIMESTAMP",
    "NONE": "no type (ANY in a STRICT table)",
}
"""How the families of SQLite's declared types are spelt for people."""

COLUMN_TYPES: Final = (
    Accepts(Role.ID, int, _INTS, ("INT", "NONE"), _MY_INTS),
    Accepts(Role.ID, str, _TEXTS, _TEXT_FAMILIES, _MY_TEXTS),
    Accepts(Role.ID, UUID, ("uuid",), ("UUID", "TEXT", "BLOB", "NONE"), _MY_UUIDS),
    # PostgreSQL's character(n) is left out: it pads, so the name that was written is not the one that is
    # read. (MySQL's char reads as it was written, but for spaces at the end, which no insert takes.)
    # SQLite's other families are: they turn the group '007' into the number 7.
    Accepts(Role.GROUP, str, _TEXTS, _TEXT_FAMILIES, _MY_TEXTS),
    Accepts(Role.PRIORITY, int, _INTS, ("INT", "NONE"), _MY_INTS),
    Accepts(Role.PARTITION_KEY, str, _TEXTS, _TEXT_FAMILIES, _MY_TEXTS),
    Accepts(Role.PARTITION_KEY, int, _INTS, ("INT", "NONE"), _MY_INTS),
    Accepts(Role.PARTITION_KEY, UUID, ("uuid",), ("UUID", "TEXT", "BLOB", "NONE"), _MY_UUIDS),
    Accepts(
        Role.PARTITION_KEY, bytes, ("bytea",), ("BLOB", "NONE"), ("varbinary", *_MY_BLOBS[:-1])
    ),
    # timestamp without time zone is left out: what it means hangs on the session's time zone.
    # SQLite keeps time text unchanged in every column; numbers there would be another layout.
    # MySQL's datetime is UTC by agreement; its timestamp ends in 2038, where later instants are kept.
    Accepts(Role.RETRY_AFTER, datetime, _TIME, _TIME_FAMILIES, _MY_TIME),
    Accepts(Role.ATTEMPT, int, _INTS, ("INT", "NONE"), _MY_INTS),
    Accepts(Role.PROCESSED_AT, datetime, _TIME, _TIME_FAMILIES, _MY_TIME, nullable=True),
    Accepts(Role.LOCKED_UNTIL, datetime, _TIME, _TIME_FAMILIES, _MY_TIME, nullable=True),
    Accepts(
        Role.HEADERS,
        dict,
        ("jsonb", "json", *_TEXTS),
        ("TEXT", "JSON", "NONE"),
        ("json", *_MY_LONG_TEXTS),
    ),
    Accepts(Role.PAYLOAD, bytes, ("bytea",), ("BLOB", "NONE"), _MY_BLOBS),
    # SQLite's JSON is left out: its affinity is NUMERIC, which rewrites a payload such as 1.0.
    Accepts(
        Role.PAYLOAD, str, (*_TEXTS, "jsonb", "json"), _TEXT_FAMILIES, (*_MY_LONG_TEXTS, "json")
    ),
    # The service's own columns: only where both sides are known and can never fit.
    Accepts(Role.DATA, bool, ("boolean",), ("BOOLEAN", "INT", "NUMERIC", "NONE"), _MY_INTS[::-1]),
    Accepts(
        Role.DATA, int, (*_INTS, "numeric"), ("INT", "NUMERIC", "NONE"), (*_MY_INTS, "decimal")
    ),
    Accepts(
        Role.DATA,
        float,
        ("double precision", "real", "numeric"),
        ("REAL", "INT", "NUMERIC", "NONE"),
        ("double", "float", "decimal"),
    ),
    Accepts(Role.DATA, Decimal, ("numeric",), ("TEXT", "NUMERIC", "NONE"), ("decimal",)),
    Accepts(
        Role.DATA,
        str,
        (*_TEXTS, "bpchar", "jsonb", "json"),
        ("TEXT", "JSON", "TIME", "NONE"),
        (*_MY_LONG_TEXTS, "json"),
    ),
    Accepts(Role.DATA, bytes, ("bytea",), ("BLOB", "NONE"), (*_MY_BLOBS, "binary", "binary(16)")),
    Accepts(
        Role.DATA,
        UUID,
        ("uuid",),
        ("UUID", "TEXT", "BLOB", "NONE"),
        (*_MY_UUIDS, *_MY_LONG_TEXTS[:4]),
    ),
    Accepts(
        Role.DATA,
        datetime,
        (*_TIME, "timestamp without time zone"),
        ("TEXT", "TIME", "NONE"),
        _MY_TIME,
    ),
    Accepts(
        Role.DATA,
        dict,
        ("jsonb", "json", *_TEXTS),
        ("TEXT", "JSON", "NONE"),
        ("json", *_MY_LONG_TEXTS),
    ),
)

ROLE_PYTHON: Final[dict[Role, type]] = {
    Role.GROUP: str,
    Role.PRIORITY: int,
    Role.RETRY_AFTER: datetime,
    Role.ATTEMPT: int,
    Role.PROCESSED_AT: datetime,
    Role.LOCKED_UNTIL: datetime,
    Role.HEADERS: dict,
}
"""Roles whose Python type is fixed."""


def rows(role: Role) -> Iterator[Accepts]:
    """The table's rows for one role."""
    return (row for row in COLUMN_TYPES if row.role is role)


def python_type(role: Role, column: Column) -> Any:
    """The Python type of a column's values, without None; None where nothing says it."""
    fixed = ROLE_PYTHON.get(role)
    return fixed if fixed is not None else _without_none(column.type)


def accepted(role: Role, python: Any, dialect: DialectName) -> tuple[str, ...] | None:
    """The types that may hold a role's values; None: the role asks for nothing.

    Args:
        role: The column's.
        python: What `python_type` gave; None: any that the role allows.
        dialect: The database's.
    """
    if role is Role.DATA and python is None:
        return None
    fitting = [row for row in rows(role) if python is None or row.python is _plain(python)]
    if not fitting:
        return None
    return tuple(dict.fromkeys(name for row in fitting for name in row.on(dialect)))


def must_be_nullable(role: Role) -> bool:
    """Whether a role writes NULL into its column."""
    return any(row.nullable for row in rows(role))


def known(dialect: DialectName) -> frozenset[str]:
    """Every type that the table names for one database."""
    return frozenset(name for row in COLUMN_TYPES for name in row.on(dialect))


def spelt(names: tuple[str, ...], dialect: DialectName) -> str:
    """Types as a person would list them."""
    if dialect == "sqlite":
        names = tuple(FAMILIES[name] for name in names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def markdown() -> str:
    """The table as the documentation shows it."""
    lines = [
        "| role | Python | PostgreSQL | SQLite | MariaDB, MySQL | NULL |",
        "|---|---|---|---|---|---|",
    ]
    for row in COLUMN_TYPES:
        null = "must be allowed" if row.nullable else ""
        postgres = spelt(row.postgres, "postgres")
        sqlite = spelt(row.sqlite, "sqlite")
        mysql = spelt(row.mysql, "mysql")
        lines.append(
            f"| `{row.role.value}` | `{row.python.__name__}` | {postgres} | {sqlite} | {mysql} | {null} |"
        )
    return "\n".join(lines) + "\n"


def _without_none(python: Any) -> Any:
    if typing.get_origin(python) is typing.Annotated:
        return _without_none(typing.get_args(python)[0])
    if isinstance(python, typing.NewType):
        return _without_none(python.__supertype__)
    if typing.get_origin(python) in {typing.Union, types.UnionType}:
        kept = [one for one in typing.get_args(python) if one is not types.NoneType]
        return kept[0] if len(kept) == 1 else python
    return None if python is typing.Any else python


def _plain(python: Any) -> Any:
    return typing.get_origin(python) or python
