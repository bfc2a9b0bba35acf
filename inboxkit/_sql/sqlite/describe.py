"""What a SQLite file says of a table, by its table-valued pragmas."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from inboxkit._core.spec import InboxSpec
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo
from inboxkit._sql.statement import Answer, Reading, Script, Statement, Steps

from .names import quote
from .values import family

__all__ = ["describe"]


def describe(spec: InboxSpec) -> Script[TableInfo]:
    """Ask for columns and indexes; views and missing tables are answers too."""

    def steps(_reading: Reading) -> Steps[TableInfo]:
        columns = yield _columns(spec)
        if not columns.rows:
            tables = yield _tables(spec)
            nearby = tuple(row[0] for row in tables.rows)
            return TableInfo(spec.table, spec.schema, "missing", folds_case=True, nearby=nearby)
        kinds = yield _tables(spec)
        indexes = yield _indexes(spec)
        return _read(spec, columns, kinds, indexes)

    return Script("describe", steps, "read")


def _arguments(spec: InboxSpec, *first: str) -> tuple[str, tuple[Any, ...]]:
    values = (*first, spec.schema) if spec.schema is not None else first
    return ", ".join(f"${n + 1}" for n in range(len(values))), values


def _columns(spec: InboxSpec) -> Statement:
    places, values = _arguments(spec, spec.table)
    return Statement(
        "describe columns",
        'SELECT name, type, "notnull", dflt_value IS NOT NULL, pk, hidden '
        f"FROM pragma_table_xinfo({places}) ORDER BY cid",
        values,
    )


def _tables(spec: InboxSpec) -> Statement:
    if spec.schema is not None:
        master = f"SELECT name, type, sql FROM {quote(spec.schema)}.sqlite_master"
    else:
        # An unqualified name is looked for among temporary tables first.
        master = (
            "SELECT name, type, sql FROM (SELECT name, type, sql FROM sqlite_temp_master "
            "UNION ALL SELECT name, type, sql FROM sqlite_master)"
        )
    return Statement("describe tables", f"{master} WHERE type IN ('table', 'view')")


def _indexes(spec: InboxSpec) -> Statement:
    listed, values = _arguments(spec, spec.table)
    schema = f", ${len(values)}" if spec.schema is not None else ""
    return Statement(
        "describe indexes",
        'SELECT l.name, l."unique", l.origin, l.partial, i.name '
        f"FROM pragma_index_list({listed}) AS l, pragma_index_info(l.name{schema}) AS i "
        "ORDER BY l.seq, i.seqno",
        values,
    )


def _read(spec: InboxSpec, columns: Answer, kinds: Answer, indexes: Answer) -> TableInfo:
    keys = [row for row in columns.rows if row[4]]
    found = _read_indexes(indexes)
    if len(keys) == 1:
        # INTEGER PRIMARY KEY is the rowid itself and has no index that would be listed.
        found.append(IndexInfo((keys[0][0],), unique=True))
    is_rowid = (
        len(keys) == 1
        and str(keys[0][1]).upper() == "INTEGER"
        and not any(row[2] == "pk" for row in indexes.rows)
    )
    named = [row for row in kinds.rows if row[0].lower() == spec.table.lower()]
    _name, kind, text = named[0] if named else ("", "table", "")  # in an attached database
    strict = "STRICT" in (text or "").rpartition(")")[2].upper()
    return TableInfo(
        spec.table,
        spec.schema,
        "view" if kind == "view" else "table",
        tuple(
            _read_column(row, is_rowid=is_rowid and bool(row[4]), strict=strict)
            for row in columns.rows
        ),
        tuple(found),
        folds_case=True,
    )


def _read_column(row: tuple[Any, ...], *, is_rowid: bool, strict: bool) -> ColumnInfo:
    name, declared, not_null, has_default, _key, hidden = row
    return ColumnInfo(
        name,
        declared,
        family(declared, strict=strict),
        nullable=not not_null and not is_rowid,
        has_default=bool(has_default) or is_rowid,
        computed=hidden != 0,  # or hidden by a virtual table
    )


def _read_indexes(answer: Answer) -> list[IndexInfo]:
    columns: defaultdict[tuple[str, bool, bool], list[str]] = defaultdict(list)
    for name, unique, _origin, partial, column in answer.rows:
        columns[name, bool(unique), bool(partial)].append(column or "")
    return [
        IndexInfo(tuple(names), unique=unique, partial=partial)
        for (_name, unique, partial), names in columns.items()
    ]
