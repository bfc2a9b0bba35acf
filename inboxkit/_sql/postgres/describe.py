"""What PostgreSQL's catalogue says of a table."""

from __future__ import annotations

from typing import Any, Final

from inboxkit._core.spec import InboxSpec
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo, TableKind
from inboxkit._sql.servers import check_cockroach
from inboxkit._sql.statement import Reading, Script, Statement, Steps

from . import names

__all__ = ["describe"]

_KINDS: Final[dict[str, TableKind]] = {
    "r": "table",
    "p": "table",
    "v": "view",
    "m": "view",
    "f": "foreign table",
}

# to_regclass resolves the search path as the statements of this session would, and answers NULL
# where nothing is found.
_TABLE: Final = """\
SELECT c.relname::text, n.nspname::text, c.relkind::text,
       ARRAY(SELECT COALESCE(a.attname::text, '')
             FROM pg_catalog.pg_partitioned_table AS p
             CROSS JOIN unnest(p.partattrs::int2[]) WITH ORDINALITY AS k(attnum, at)
             LEFT JOIN pg_catalog.pg_attribute AS a
                    ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum > 0
             WHERE p.partrelid = c.oid
             ORDER BY k.at),
       pg_catalog.version()
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)"""

_NEARBY: Final = """\
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
WHERE c.relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY c.relname LIMIT 1000"""

# format_type with -1 and not NULL: it gives "bpchar", where NULL gives "character", which in a cast
# means one character.
_COLUMNS: Final = """\
WITH RECURSIVE base AS (
    SELECT a.attnum, a.atttypid AS oid, a.atttypmod AS modifier, false AS not_null
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = pg_catalog.to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod, b.not_null OR t.typnotnull
    FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.oid
    WHERE t.typtype = 'd'
)
SELECT a.attname::text,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       pg_catalog.format_type(b.oid, -1),
       b.modifier,
       a.attnotnull OR b.not_null,
       a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
       a.attgenerated <> '',
       a.attidentity = 'a'
FROM pg_catalog.pg_attribute AS a
JOIN base AS b ON b.attnum = a.attnum
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type AS u ON u.oid = b.oid AND u.typtype <> 'd'
WHERE a.attrelid = pg_catalog.to_regclass($1::text)
ORDER BY a.attnum"""

_HEAD: Final = 4
"""Bytes that the modifier of a text counts beside its characters."""

_INDEXES: Final = """\
SELECT i.indisunique AND i.indimmediate,
       i.indpred IS NOT NULL,
       ARRAY(SELECT COALESCE(a.attname::text, '')
             FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, at)
             LEFT JOIN pg_catalog.pg_attribute AS a
                    ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
             WHERE k.at <= i.indnkeyatts
             ORDER BY k.at)
FROM pg_catalog.pg_index AS i
WHERE i.indrelid = pg_catalog.to_regclass($1::text) AND i.indisvalid
ORDER BY i.indexrelid"""


def describe(spec: InboxSpec) -> Script[TableInfo]:
    """Ask for columns and indexes; views and missing tables are answers too.

    Raises:
        DialectError: The server is CockroachDB, and the table goes by locks.
    """
    name = names.table(spec.table, spec.schema)

    def steps(_reading: Reading) -> Steps[TableInfo]:
        tables = yield Statement("describe table", _TABLE, (name,))
        if not tables.rows:
            visible = yield Statement("describe nearby", _NEARBY)
            nearby = tuple(row[0] for row in visible.rows)
            return TableInfo(spec.table, spec.schema, "missing", nearby=nearby)
        table, schema, kind, partitioned_by, version = tables.rows[0]
        check_cockroach(version, spec)
        columns = yield Statement("describe columns", _COLUMNS, (name,))
        indexes = yield Statement("describe indexes", _INDEXES, (name,))
        return TableInfo(
            table,
            schema,
            _KINDS.get(kind, "view"),
            tuple(map(_read_column, columns.rows)),
            tuple(
                IndexInfo(tuple(keys), unique, partial) for unique, partial, keys in indexes.rows
            ),
            partitioned_by=tuple(partitioned_by),
        )

    return Script("describe", steps, "read")


def _read_column(row: tuple[Any, ...]) -> ColumnInfo:
    name, shown, base, modifier, not_null, has_default, computed, always = row
    is_time = base.startswith("timestamp")
    is_cut = base in ("character varying", "bpchar")
    return ColumnInfo(
        name,
        shown,
        base,
        nullable=not not_null,
        has_default=has_default and not computed,
        computed=computed,
        always_identity=always,
        precision=modifier if is_time and modifier >= 0 else 6,
        cast=base,
        longest=modifier - _HEAD if is_cut and modifier > _HEAD else None,
    )
