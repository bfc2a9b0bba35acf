"""A service refuses to start over a table that it cannot serve, and the cure that it names is one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from database_cells import on_servers

from inboxkit import (
    Column,
    Database,
    DialectError,
    InboxQueue,
    InboxSpec,
    SchemaError,
)
from inboxkit._core.spec import Role
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]

COLUMNS: dict[str, Any] = {
    "id": Column("id", type=int),
    "group": Column("queue"),
    "priority": Column("urgency"),
    "partition_key": Column("account", type=str),
    "retry_after": Column("due", default=None),
    "attempt": Column("tries"),
    "processed_at": Column("done"),
    "locked_until": Column("lease"),
    "headers": Column("heads"),
    "payload": Column("body", type=bytes),
}
CURE = re.compile(r"(?:ALTER TABLE|CREATE UNIQUE INDEX) .*$")


def full(table: str, **changed: Any) -> InboxSpec:
    """A table with every role and a column of the service's own."""
    return InboxSpec(table, columns=(Column("note", type=str),), **{**COLUMNS, **changed})


async def make(db: Database, spec: InboxSpec) -> str:
    """Make the table as `spec` describes it, and return its quoted name."""
    dialect = get_dialect(db.dialect)
    for statement in create_table(dialect, spec):
        await db.execute(statement)
    return dialect.table(spec.table, spec.schema)


async def apply_cures(db: Database, spec: InboxSpec, refusal_of: Any) -> list[SchemaError]:
    """Start, do what the error says, and start again, until the service serves."""
    refusals: list[SchemaError] = []
    while (error := await refusal_of(db, spec)) is not None:
        assert isinstance(error, SchemaError)
        assert len(refusals) < 3, f"the cures do not help: {error}"
        refusals.append(error)
        cure = CURE.search(str(error))
        assert cure is not None, f"no cure in {error}"
        await db.execute(cure[0])
    return refusals


def test_table_that_fits_is_served(
    table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    async def test(db: Database) -> None:
        await make(db, full(table))
        assert await refusal_of(db, full(table)) is None

    with_database(test)


NAMES = [*COLUMNS, "own"]


@pytest.mark.parametrize("missing", NAMES)
def test_missing_column_stops_the_start_and_its_cure_is_one(
    missing: str, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    async def test(db: Database) -> None:
        spec, quote = full(table), get_dialect(db.dialect).quote
        column = "note" if missing == "own" else COLUMNS[missing].name
        quoted = await make(
            db,
            full(table, id=Column("other", type=int, generated=True)) if missing == "id" else spec,
        )
        if missing != "id":
            for (index,) in await db.fetch(INDEXES[db.dialect], table):
                where = f" ON {quoted}" if db.dialect == "mysql" else ""
                await db.execute(f"DROP INDEX {quote(index)}{where}")
            await db.execute(f"ALTER TABLE {quoted} DROP COLUMN {quote(column)}")

        first, *others = await apply_cures(db, spec, refusal_of)

        assert (first.table, first.column) == (table, column)
        assert f"table {table!r} has no column {column!r}" in str(first)
        assert missing == "own" or f"(role {missing})" in str(first)
        assert len(others) == (missing == "id")  # which also needs its unique index

    with_database(test)


INDEXES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = $1 AND sql IS NOT NULL",
    "postgres": """SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_class t ON t.oid = i.indrelid WHERE t.relname = $1::text AND NOT i.indisprimary""",
    "mysql": """SELECT DISTINCT index_name FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = $1 AND index_name <> 'PRIMARY'""",
}


def test_every_role_has_been_missed() -> None:
    assert {*NAMES, "column"} - {"own"} == {role.value for role in Role}
    assert len(NAMES) == 11


def test_missing_table_stops_the_start_and_its_cure_is_one(
    table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    spec = full(table + "s")

    async def test(db: Database) -> SchemaError:
        await make(db, full(table))
        error = await refusal_of(db, spec)
        assert isinstance(error, SchemaError)
        for statement in str(error).partition("such as by:\n")[2].split(";\n"):
            await db.execute(statement)
        assert await refusal_of(db, spec) is None
        return error

    error = with_database(test)
    assert (error.table, error.column) == (table + "s", None)
    assert f"table {table + 's'!r} does not exist (did you mean {table!r}" in str(error)


@pytest.mark.parametrize("keys", ["", ", UNIQUE (tries, id)", ", PRIMARY KEY (id, tries)"])
def test_id_without_unique_index_stops_the_start_and_its_cure_is_one(
    keys: str, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    spec = InboxSpec(table, id=Column("id"), attempt=Column("tries"), locked_until=Column("lease"))

    async def test(db: Database) -> None:
        time = TIME[db.dialect]
        name = get_dialect(db.dialect).quote(table)
        await db.execute(f"CREATE TABLE {name} (id integer, tries integer, lease {time}{keys})")
        (error,) = await apply_cures(db, spec, refusal_of)
        assert (error.table, error.column) == (table, "id")
        assert "(role id) has no unique index of its own" in str(error)

    with_database(test)


TIME = {"sqlite": "TEXT", "postgres": "timestamptz", "mysql": "datetime(6)"}


@pytest.mark.parametrize("role", ["locked_until", "processed_at"])
def test_column_that_cannot_be_null_stops_the_start(
    role: str, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    spec = InboxSpec(
        table, **{"id": Column("id"), "locked_until": Column("lease"), role: Column("it")}
    )

    async def test(db: Database) -> None:
        time = TIME[db.dialect]
        await db.execute(
            f"CREATE TABLE {get_dialect(db.dialect).quote(table)} "
            f"(id integer PRIMARY KEY, lease {time}, it {time} NOT NULL)"
        )
        error = await refusal_of(db, spec)
        assert isinstance(error, SchemaError)
        assert (error.table, error.column) == (table, "it")
        assert f"{table!r} (role {role}) is NOT NULL" in str(error)
        if db.dialect != "sqlite":
            await apply_cures(db, spec, refusal_of)
        else:
            assert "make the table anew with a nullable `it`" in str(error)

    with_database(test)


def test_view_stops_the_start(table: str, with_database: WithDatabase, refusal_of: Any) -> None:
    async def test(db: Database) -> SchemaError:
        quoted = await make(db, full(table))
        view = get_dialect(db.dialect).quote(f"{table} seen")
        await db.execute(f"CREATE VIEW {view} AS SELECT * FROM {quoted}")
        error: SchemaError = await refusal_of(db, full(table + " seen"))
        return error

    error = with_database(test)
    assert isinstance(error, SchemaError)
    assert error.table == f"{table} seen"
    assert "is a view; a queue needs a table" in str(error)
    assert "describe the table beneath it" in str(error)


def test_generated_column_that_nothing_fills_stops_the_start(
    table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    spec = InboxSpec(
        table,
        id=Column("id", type=int),
        attempt=Column("tries", generated=True),
        locked_until=Column("lease"),
    )

    async def test(db: Database) -> SchemaError:
        await db.execute(
            f"CREATE TABLE {get_dialect(db.dialect).quote(table)} "
            f"(id integer PRIMARY KEY, tries integer NOT NULL, lease {TIME[db.dialect]})"
        )
        error: SchemaError = await refusal_of(db, spec)
        return error

    error = with_database(test)
    assert isinstance(error, SchemaError)
    assert (error.table, error.column) == (table, "tries")
    assert "DEFAULT 1" in str(error)


@on_servers
@pytest.mark.parametrize("digits", [0, 3])
def test_coarse_lease_without_attempts_stops_the_start(
    digits: int, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    lease = {"id": Column("id"), "locked_until": Column("lease")}

    async def test(db: Database) -> None:
        kind = "datetime" if db.dialect == "mysql" else "timestamptz"
        await db.execute(
            f"CREATE TABLE {get_dialect(db.dialect).quote(table)} "
            f"(id integer PRIMARY KEY, tries integer, lease {kind}({digits}))"
        )
        assert await refusal_of(db, InboxSpec(table, attempt=Column("tries"), **lease)) is None
        error = await refusal_of(db, InboxSpec(table, **lease))
        assert isinstance(error, SchemaError)
        assert (error.table, error.column) == (table, "lease")
        assert f"keeps {digits} fraction digits" in str(error)
        assert "or describe an attempt column" in str(error)

    with_database(test)


@pytest.mark.parametrize("by", ["a name", "a queue"])
def test_dead_letter_table_is_checked_at_the_start(
    by: str, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    dead = f"{table} dead"
    roles = {key: column for key, column in COLUMNS.items() if key != "group"}
    spec = InboxSpec(table, **roles)
    target: Any = dead if by == "a name" else InboxQueue(InboxSpec(dead, **roles), "dead", bytes)

    async def test(db: Database) -> None:
        await make(db, spec)
        error = await refusal_of(db, spec, max_attempts=3, dead_letter=target)
        assert isinstance(error, SchemaError)
        assert error.table == dead
        assert "is missing" in str(error)
        thin = {key: column for key, column in roles.items() if key != "headers"}
        await make(db, InboxSpec(dead, **thin))
        error = await refusal_of(db, spec, max_attempts=3, dead_letter=target)
        assert isinstance(error, SchemaError)
        assert (error.table, error.column) == (dead, "heads")
        cure = CURE.search(str(error))
        assert cure is not None
        await db.execute(cure[0])
        assert await refusal_of(db, spec, max_attempts=3, dead_letter=target) is None

    with_database(test)


@pytest.mark.parametrize("form", ["row lock", "advisory lock"])
def test_claim_form_that_is_not_served_stops_the_start(
    form: str, table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    key = "jobs-{id}" if form == "advisory lock" else None
    spec = InboxSpec(table, id=Column("id", type=int), advisory_lock=key)

    async def test(db: Database) -> Any:
        await make(db, spec)
        return db.dialect, await refusal_of(db, spec)

    dialect, error = with_database(test)
    if (dialect, form) != ("sqlite", "row lock"):
        assert error is None
        return
    assert isinstance(error, DialectError)
    assert f"table {table!r} asks for the {form} form" in str(error)
    assert "describe a locked_until column" in str(error)


def test_refusal_names_the_subscription(
    table: str, with_database: WithDatabase, refusal_of: Any
) -> None:
    async def test(db: Database) -> Any:
        return await refusal_of(db, full(table))

    error = with_database(test)
    assert str(error).startswith("subscription 'queue': ")
