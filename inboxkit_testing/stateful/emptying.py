"""A database made as good as new between two examples: tables empty, identities at their start."""

from __future__ import annotations

from collections.abc import Collection

from inboxkit import Connection, Database
from inboxkit.errors import DatabaseError, DeclarationError

__all__ = ["MIGRATIONS", "empty", "tables_with_rows"]

MIGRATIONS = frozenset(
    {
        "alembic_version",
        "aerich",
        "django_migrations",
        "flyway_schema_history",
        "databasechangelog",
        "databasechangeloglock",
        "goose_db_version",
        "schema_migrations",
        "_yoyo_log",
        "_yoyo_migration",
        "_yoyo_version",
        "yoyo_lock",
    }
)
"""Tables in which migration tools keep their own state; always kept."""

_PASSES = 3
"""A trigger may write into a table that was emptied before."""


async def empty(database: Database, keep: Collection[str] = ()) -> None:
    """Empty every table that the database has, and restart identities.

    Args:
        database: Open, and nobody else's for the moment.
        keep: Tables that stay as they are, by name or as ``schema.name``; those of migration tools
            do in any case.

    Raises:
        DeclarationError: A kept table refers to one that is emptied.
    """
    kept = {name.casefold() for name in keep} | MIGRATIONS
    async with database.connection() as connection:
        match database.dialect:
            case "sqlite":
                await _empty_sqlite(connection, kept)
            case "postgres":
                await _empty_postgres(connection, kept)
            case "mysql":
                await _empty_mysql(connection, kept)


async def tables_with_rows(database: Database, keep: Collection[str] = ()) -> list[str]:
    """Tables that `empty` would take rows from, in the order of their names."""
    kept = {name.casefold() for name in keep} | MIGRATIONS
    async with database.connection() as connection:
        match database.dialect:
            case "sqlite":
                tables = {name: _quoted(name) for name in await _sqlite_tables(connection, kept)}
            case "postgres":
                tables = {
                    name: f"{_quoted(schema)}.{_quoted(name)}"
                    for schema, name in await connection.fetch(_POSTGRES_TABLES)
                    if not _is_kept(kept, name, schema)
                }
            case "mysql":
                tables = {
                    name: _quoted(name, "`")
                    for name, kind in await connection.fetch(_MYSQL_TABLES)
                    if kind != "SEQUENCE" and not _is_kept(kept, name)
                }
        return [
            name
            for name, quoted in sorted(tables.items())
            if await connection.fetch_value(f"SELECT 1 FROM {quoted} LIMIT 1") is not None
        ]


def _is_kept(kept: Collection[str], table: str, schema: str = "") -> bool:
    return table.casefold() in kept or f"{schema}.{table}".casefold() in kept


def _quoted(name: str, mark: str = '"') -> str:
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


async def _sqlite_tables(connection: Connection, kept: Collection[str]) -> list[str]:
    # The shadow tables of a virtual table are emptied through it; PRAGMA table_list would tell them,
    # but only from 3.37 on.
    rows = await connection.fetch(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    virtual = [name for name, sql in rows if (sql or "").upper().startswith("CREATE VIRTUAL")]
    return [
        name
        for name, _ in rows
        if not _is_kept(kept, name) and not any(name.startswith(f"{each}_") for each in virtual)
    ]


async def _empty_sqlite(connection: Connection, kept: Collection[str]) -> None:
    tables = await _sqlite_tables(connection, kept)
    if not tables:
        return
    checks = await connection.fetch_value("PRAGMA foreign_keys")
    if checks:
        await connection.execute("PRAGMA foreign_keys = OFF")
    try:
        for _ in range(_PASSES):
            for name in tables:
                await connection.execute(f"DELETE FROM {_quoted(name)}")
            exist = " OR ".join(f"EXISTS (SELECT 1 FROM {_quoted(name)})" for name in tables)
            if not await connection.fetch_value(f"SELECT {exist}"):
                break
        counted = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"
        if await connection.fetch_value(counted):
            listed = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}'" for name in tables)
            await connection.execute(f"DELETE FROM sqlite_sequence WHERE name IN ({listed})")
    finally:
        if checks:
            await connection.execute("PRAGMA foreign_keys = ON")


_OF_EXTENSIONS = "SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'"
_POSTGRES_TABLES = f"""
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
      AND NOT EXISTS ({_OF_EXTENSIONS})
    ORDER BY 1, 2"""
_POSTGRES_SEQUENCES = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'S' AND n.nspname NOT LIKE 'pg\\_%' AND c.relpersistence <> 't'
      AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e'))
    ORDER BY 1, 2"""


async def _empty_postgres(connection: Connection, kept: Collection[str]) -> None:
    tables = [
        f"{_quoted(schema)}.{_quoted(name)}"
        for schema, name in await connection.fetch(_POSTGRES_TABLES)
        if not _is_kept(kept, name, schema)
    ]
    if tables:
        try:
            # Together, so that foreign keys among them do not matter.
            await connection.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY")
        except DatabaseError as error:
            raise DeclarationError(
                f"the tables could not be emptied between examples: {error}. If a table that is kept refers "
                "to another one, keep that too"
            ) from error
    for schema, name in await connection.fetch(_POSTGRES_SEQUENCES):
        if not _is_kept(kept, name, schema):
            await connection.execute(f"ALTER SEQUENCE {_quoted(schema)}.{_quoted(name)} RESTART")


# MariaDB's sequences have a type of their own.
_MYSQL_TABLES = """
    SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE()
    AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') ORDER BY 1"""


async def _empty_mysql(connection: Connection, kept: Collection[str]) -> None:
    rows = await connection.fetch(_MYSQL_TABLES)
    await connection.execute("SET foreign_key_checks = 0")
    try:
        for name, kind in rows:
            if _is_kept(kept, name):
                continue
            if kind == "SEQUENCE":
                await connection.execute(f"ALTER SEQUENCE {_quoted(name, '`')} RESTART")
            else:
                await connection.execute(f"TRUNCATE TABLE {_quoted(name, '`')}")
    finally:
        await connection.execute("SET foreign_key_checks = 1")
