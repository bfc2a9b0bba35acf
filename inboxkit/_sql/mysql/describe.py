"""What MariaDB's and MySQL's information schema says of a table."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final, Literal

from inboxkit._core.spec import InboxSpec
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo, TableKind
from inboxkit._sql.statement import Answer, Reading, Script, Statement, Steps
from inboxkit.errors import DialectError, ServerTooOldError

from . import names

__all__ = ["describe", "read_server"]

Server = Literal["mariadb", "mysql"]

_KINDS: Final[dict[str, TableKind]] = {
    "BASE TABLE": "table",
    "SYSTEM VERSIONED": "table",
    "VIEW": "view",
    "SYSTEM VIEW": "view",
}
_OLDEST: Final[dict[Server, tuple[int, int, int]]] = {
    "mariadb": (10, 6, 0),
    "mysql": (8, 0, 1),
}
"""SKIP LOCKED."""
_SHOWN: Final[dict[Server, str]] = {"mariadb": "MariaDB", "mysql": "MySQL"}

# 2: the file system compares names without case, and so does the server; 1: they are kept in lower case.
_SERVER: Final = "SELECT VERSION(), @@version_comment, DATABASE(), @@lower_case_table_names"

# The information schema compares without case and accents; the second comparison does not.
_NAMED: Final = "t.table_schema = $1 AND t.table_name = $2"
_EXACTLY: Final = (
    " AND CAST(t.table_schema AS BINARY) = CAST($1 AS BINARY)"
    " AND CAST(t.table_name AS BINARY) = CAST($2 AS BINARY)"
)

_NEARBY: Final = """\
SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_schema = $1 AND t.table_type <> 'VIEW'
ORDER BY t.table_name LIMIT 1000"""


def describe(spec: InboxSpec) -> Script[TableInfo]:
    """Ask for columns and indexes; views and missing tables are answers too.

    Raises:
        ServerTooOldError: The server has no SKIP LOCKED.
        DialectError: No database is chosen and the description names none.
    """
    names.table(spec.table, spec.schema)

    def steps(_reading: Reading) -> Steps[TableInfo]:
        answer = yield Statement("describe server", _SERVER)
        version, comment, database, folding = answer.rows[0]
        server = read_server(str(version), str(comment))
        schema = spec.schema if spec.schema is not None else database
        if schema is None:
            raise DialectError(
                f"table {spec.table!r}: no database is chosen; name one in the URL, or give the table "
                "its schema"
            )
        where = _NAMED if folding else _NAMED + _EXACTLY
        named = (schema, spec.table)
        tables = yield Statement("describe table", _tables(where), named)
        if not tables.rows:
            nearby = yield Statement("describe nearby", _NEARBY, (schema,))
            close = tuple(row[0] for row in nearby.rows)
            return TableInfo(
                spec.table, spec.schema, "missing", folds_case=True, nearby=close, server=server
            )
        columns = yield Statement("describe columns", _columns(where), named)
        indexes = yield Statement("describe indexes", _indexes(where), named)
        found_schema, table, kind, engine = tables.rows[0]
        return TableInfo(
            table,
            found_schema if spec.schema is not None else None,
            _KINDS.get(kind, "view"),
            tuple(_read_column(row, server) for row in columns.rows),
            tuple(_read_indexes(indexes)),
            folds_case=True,
            server=server,
            engine=engine or "",
        )

    return Script("describe", steps, "read")


def read_server(version: str, comment: str) -> Server:
    """Which server it is.

    Raises:
        ServerTooOldError: Its version has no SKIP LOCKED.
    """
    server: Server = "mariadb" if "mariadb" in f"{version} {comment}".lower() else "mysql"
    numbers = re.findall(r"\d+", version.removeprefix("5.5.5-"))[:3]
    met = tuple(map(int, numbers))
    if met < _OLDEST[server]:
        needed = ".".join(map(str, _OLDEST[server]))
        raise ServerTooOldError(
            f"the server is {_SHOWN[server]} {version}, and inboxkit needs {needed} or newer; upgrade it"
        )
    return server


def _tables(where: str) -> str:
    return (
        "SELECT t.table_schema, t.table_name, t.table_type, t.engine\n"
        f"FROM information_schema.tables AS t\nWHERE {where}"
    )


def _columns(where: str) -> str:
    return f"""\
SELECT t.column_name, t.data_type, t.column_type, t.is_nullable, t.column_default, t.extra,
       t.generation_expression, t.datetime_precision, t.character_maximum_length,
       t.character_set_name, t.collation_name
FROM information_schema.columns AS t
WHERE {where}
ORDER BY t.ordinal_position"""


def _indexes(where: str) -> str:
    return f"""\
SELECT t.index_name, t.non_unique, t.column_name, t.sub_part
FROM information_schema.statistics AS t
WHERE {where} AND t.index_type IN ('BTREE', 'HASH')
ORDER BY t.index_name, t.seq_in_index"""


def _read_column(row: tuple[Any, ...], server: Server) -> ColumnInfo:
    name, kind, shown, nullable, default, extra, expression = row[:7]
    precision, longest, charset, collation = row[7:]
    extra, computed = str(extra).lower(), bool(expression)
    has_default = default is not None or "default_generated" in extra
    if server == "mariadb" and str(default).upper() == "NULL":
        has_default = False
    family = str(kind).lower()
    return ColumnInfo(
        name,
        str(shown),
        "binary(16)" if str(shown).lower() == "binary(16)" else family,
        nullable=nullable == "YES",
        has_default=(has_default or "auto_increment" in extra) and not computed,
        computed=computed,
        precision=int(precision or 0) if family in ("datetime", "timestamp") else 6,
        unsigned="unsigned" in str(shown).lower(),
        longest=None if longest is None else int(longest),
        charset=str(charset or ""),
        collation=str(collation or ""),
        is_numbered="auto_increment" in extra,
        on_update="on update" in extra,
    )


def _read_indexes(answer: Answer) -> list[IndexInfo]:
    parts: defaultdict[tuple[str, bool], list[tuple[str, bool]]] = defaultdict(list)
    for name, not_unique, column, prefix in answer.rows:
        # An expression has no column; a prefix is in no order of the column's values.
        parts[name, not int(not_unique)].append((column or "", prefix is not None))
    indexes = []
    for (index, unique), columns in parts.items():
        # What is unique by its beginning is unique.
        whole = unique and len(columns) == 1
        names_ = tuple(column if whole or not cut else "" for column, cut in columns)
        indexes.append(IndexInfo(names_, unique=unique, name=str(index)))
    return indexes
