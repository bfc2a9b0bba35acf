"""The published table of column types, row by row, on the real databases."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.rows import NewRow
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._forms import open_form
from inboxkit._sql import column_types
from inboxkit._sql.check import check
from inboxkit._sql.column_types import COLUMN_TYPES, FAMILIES, Accepts
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.insert import insert
from inboxkit._sql.sqlite.values import family
from inboxkit._sql.table import bind
from inboxkit.database import Database
from inboxkit.errors import SchemaError

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]

DECLARED = {
    "postgres": {
        "smallint": ["smallint"],
        "integer": ["integer"],
        "bigint": ["bigint", "of_bigint"],
        "text": ["text", "of_text"],
        "character varying": ["varchar", "varchar(40)"],
        "bpchar": ["char(40)"],
        "uuid": ["uuid"],
        "bytea": ["bytea"],
        "json": ["json"],
        "jsonb": ["jsonb"],
        "timestamp with time zone": ["timestamptz", "timestamptz(6)"],
        "timestamp without time zone": ["timestamp"],
        "date": ["date"],
        "numeric": ["numeric", "numeric(10, 2)"],
        "boolean": ["boolean"],
        "real": ["real"],
        "double precision": ["double precision"],
        "interval": ["interval"],
        "name": ["name"],
        "text[]": ["text[]"],
    },
    "sqlite": {
        "INT": ["INTEGER", "INT", "BIGINT", "unsigned big int", "INTERVAL"],
        "TEXT": ["TEXT", "VARCHAR(40)", "CLOB", "text"],
        "BLOB": ["BLOB"],
        "REAL": ["REAL", "FLOAT", "DOUBLE PRECISION"],
        "NUMERIC": ["NUMERIC", "DECIMAL(10, 2)", "STRING", "DATE", "ANY"],
        "BOOLEAN": ["BOOLEAN"],
        "UUID": ["UUID"],
        "JSON": ["JSON", "jsonb"],
        "TIME": ["DATETIME", "TIMESTAMP", "DATETIME(3)"],
        "NONE": [""],
    },
    "mysql": {
        "tinyint": ["tinyint", "tinyint(1)"],
        "smallint": ["smallint unsigned"],
        "mediumint": ["mediumint"],
        "int": ["integer", "int unsigned"],
        "bigint": ["bigint", "bigint unsigned"],
        "decimal": ["decimal(10, 2)"],
        "float": ["float"],
        "double": ["double"],
        "char": ["char(40)"],
        "varchar": ["varchar(40)", "varchar(40) CHARACTER SET latin1"],
        "tinytext": ["tinytext"],
        "text": ["text"],
        "mediumtext": ["mediumtext"],
        "longtext": ["longtext"],
        "binary": ["binary(2)"],
        "binary(16)": ["binary(16)"],
        "varbinary": ["varbinary(40)"],
        "tinyblob": ["tinyblob"],
        "blob": ["blob"],
        "mediumblob": ["mediumblob"],
        "longblob": ["longblob"],
        "datetime": ["datetime(6)"],
        "timestamp": ["timestamp(6) NULL"],
        "date": ["date"],
        "time": ["time"],
        "year": ["year"],
        "bit": ["bit(1)"],
        "enum": ["enum('a', 'b')"],
        "json": ["json"],
        "uuid": ["uuid"],
    },
}
"""What a table may declare, by what the check makes of it."""

VALUES: dict[type, Any] = {
    int: 7,
    str: "00é7",
    UUID: UUID(int=7),
    bytes: b"\x00\xff",
    dict: {"a": "1.0"},
    bool: True,
    float: 0.5,
    Decimal: Decimal("1.25"),
    datetime: datetime(2019, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
}
ROLES = {
    Role.ID: "id",
    Role.GROUP: "group",
    Role.PRIORITY: "priority",
    Role.PARTITION_KEY: "partition_key",
    Role.RETRY_AFTER: "retry_after",
    Role.ATTEMPT: "attempt",
    Role.PROCESSED_AT: "processed_at",
    Role.LOCKED_UNTIL: "locked_until",
    Role.HEADERS: "headers",
    Role.PAYLOAD: "payload",
}
ROWS = [row for row in COLUMN_TYPES if row.role is not Role.DATA]


def name_of(row: Accepts) -> str:
    return f"{row.role.value}-{row.python.__name__}"


def description(row: Accepts, table: str, name: str = "") -> InboxSpec:
    """A table in whose column this row's role is played."""
    roles: dict[str, Any] = {"id": Column("id", type=int), "locked_until": Column("lease")}
    declared = row.python if row.role in (Role.ID, Role.PARTITION_KEY, Role.PAYLOAD) else None
    name = name or {Role.ID: "id", Role.LOCKED_UNTIL: "lease"}.get(row.role, "it")
    roles[ROLES[row.role]] = Column(name, type=declared)
    return InboxSpec(table, **roles)


async def describe(db: Database, row: Accepts, declared: str) -> tuple[InboxSpec, Any]:
    spec = description(row, f"t{uuid.uuid4().hex}")
    types = {"id": "integer", "lease": TIME[db.dialect]}
    types[{Role.ID: "id", Role.LOCKED_UNTIL: "lease"}.get(row.role, "it")] = declared
    key = ""
    if db.dialect == "mysql" and types["id"].endswith(("text", "blob")):
        key = ", PRIMARY KEY (id(40))"
    elif types["id"] not in NO_INDEX:
        types["id"] += " PRIMARY KEY"
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    await db.execute(f"CREATE TABLE {spec.table} ({columns}{key})")
    return spec, await db.run(get_dialect(db.dialect).describe(spec))


TIME = {"postgres": "timestamptz", "sqlite": "TEXT", "mysql": "datetime(6)"}
NO_INDEX = {"json"}
"""Types that Postgres and MySQL cannot index at all."""


def declared_as(info_of: str, dialect: str, server: str) -> list[str]:
    """What a table on this server may declare for a type of the published table."""
    missing = {"mariadb": "json", "mysql": "uuid"}.get(server)  # JSON is longtext there
    return [] if info_of == missing else DECLARED[dialect][info_of]


async def server_of(db: Database) -> str:
    """MariaDB or MySQL; empty on other databases."""
    info = await db.run(get_dialect(db.dialect).describe(InboxSpec("x", id=Column("id"))))
    found: str = info.server
    return found


async def create_domains(db: Database) -> None:
    if db.dialect == "postgres":
        for domain, base in (("of_bigint", "bigint"), ("of_text", "text")):
            await db.execute(f"DROP DOMAIN IF EXISTS {domain} CASCADE")
            await db.execute(f"CREATE DOMAIN {domain} AS {base}")


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_accepted_types_hold_their_role(row: Accepts, with_database: WithDatabase) -> None:
    async def test(db: Database) -> None:
        await create_domains(db)
        dialect, server = get_dialect(db.dialect), await server_of(db)
        for kind in row.on(db.dialect):
            for declared in declared_as(kind, db.dialect, server):
                spec, info = await describe(db, row, declared)
                check(dialect, spec, info)
                await use(db, row, spec, info, declared)

    with_database(test)


async def use(db: Database, row: Accepts, spec: InboxSpec, info: Any, declared: str) -> None:
    """Insert a row, claim it, renew it and finish it."""
    dialect, value = get_dialect(db.dialect), VALUES[row.python]
    column = next(column for role, column in spec.roles() if role is row.role)
    values: dict[str, Any] = {"id": 1}
    if row.role is not Role.PROCESSED_AT:
        values[column.name] = value
    if row.role is Role.PAYLOAD and declared.startswith("json"):
        values[column.name] = value = "1.0"
    new = NewRow(spec, values)
    ids = await db.run(insert(dialect, spec, info, [new], on_conflict="error", now=None))
    group = value if row.role is Role.GROUP else None
    form = open_form(
        db,
        spec,
        info,
        dialect,
        group=group,
        lease=timedelta(seconds=30),
        cap=None,
        steps=ExpirySteps(0),
    )
    (claimed,) = (await form.claim(limit=1)).rows
    assert ids == [values["id"]], declared
    assert claimed.fence.id == values["id"], declared
    assert claimed.values[column.name] == values.get(column.name), declared
    renewal = await form.renew([(claimed.fence, claimed.reading)], timeout=5)
    assert not renewal.lost, declared
    (settled,) = await form.release([(claimed.fence, False)])
    assert settled.result == "lost", declared  # the renewal moved the token
    fence = type(claimed.fence)(claimed.fence.id, tuple(renewal.renewed.values()))
    (settled,) = await form.settle([(fence, Settlement(Verb.FINISH))])
    assert settled.result == "written", declared


DATA = [row for row in COLUMN_TYPES if row.role is Role.DATA]


@pytest.mark.parametrize("row", DATA, ids=name_of)
def test_data_columns_hold_what_is_accepted(row: Accepts, with_database: WithDatabase) -> None:
    async def test(db: Database) -> None:
        await create_domains(db)
        dialect, server = get_dialect(db.dialect), await server_of(db)
        for kind in row.on(db.dialect):
            for declared in declared_as(kind, db.dialect, server):
                table = f"t{uuid.uuid4().hex}"
                await db.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, it {declared})")
                it = Column("it", type=row.python)
                spec = InboxSpec(table, id=Column("id", type=int), columns=(it,))
                info = await db.run(dialect.describe(spec))
                check(dialect, spec, info)
                value: Any = VALUES[row.python]
                if row.python is str and kind in ("json", "jsonb"):
                    value = '"00é7"'
                if kind == "timestamp without time zone":
                    value = value.replace(tzinfo=None)
                if row.python is bytes and kind == "binary(16)":
                    value = bytes(range(16))
                if row.python is str and kind == "bpchar":
                    value = value.ljust(40)
                rows = [NewRow(spec, {"id": n, "it": value}) for n in range(2)]
                await db.run(insert(dialect, spec, info, rows, on_conflict="error", now=None))
                column = bind(dialect, spec, info).columns[1]
                for (raw,) in await db.fetch(f"SELECT it FROM {table}"):
                    found = column.decode(raw)
                    assert (found, type(found)) == (value, type(value)), declared

    with_database(test)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_other_types_are_refused_with_the_cure(row: Accepts, with_database: WithDatabase) -> None:
    async def test(db: Database) -> None:
        await create_domains(db)
        dialect, server = get_dialect(db.dialect), await server_of(db)
        kinds = [kind for kind in DECLARED[db.dialect] if kind not in row.on(db.dialect)]
        wrong = [name for kind in kinds for name in declared_as(kind, db.dialect, server)]
        table = f"t{uuid.uuid4().hex}"
        columns = "".join(f", it{n} {declared}" for n, declared in enumerate(wrong))
        time = TIME[db.dialect]
        await db.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, lease {time}{columns})")
        info = await db.run(dialect.describe(InboxSpec(table, id=Column("id"))))
        for n, declared in enumerate(wrong):
            spec = description(row, table, f"it{n}")
            with pytest.raises(SchemaError) as caught:
                check(dialect, spec, info)
            message = str(caught.value)
            assert caught.value.table == table
            assert caught.value.column == f"it{n}"
            assert row.role.value in message
            assert row.python.__name__ in message, declared
            assert "accepted: " in message
            assert ("make the table anew" if db.dialect == "sqlite" else "ALTER TABLE") in message

    with_database(test)


@pytest.mark.parametrize(
    "declared", [name for names in DECLARED["sqlite"].values() for name in names]
)
def test_declared_types_of_sqlite_fall_into_their_family(declared: str) -> None:
    assert declared in DECLARED["sqlite"][family(declared)]


def test_any_is_no_type_in_strict_tables_only() -> None:
    assert family("ANY") == "NUMERIC"
    assert family("ANY", strict=True) == "NONE"


def test_every_type_of_the_table_is_tried_here() -> None:
    for dialect in ("postgres", "sqlite", "mysql"):
        assert column_types.known(dialect) <= set(DECLARED[dialect])  # type: ignore[arg-type]
    assert set(FAMILIES) == set(DECLARED["sqlite"])


def test_every_role_has_rows() -> None:
    assert {row.role for row in COLUMN_TYPES} == set(Role)


def test_table_prints_for_the_documentation() -> None:
    text = column_types.markdown()
    assert text.count("\n") == len(COLUMN_TYPES) + 2
    assert "| `locked_until` | `datetime` | timestamp with time zone |" in text
