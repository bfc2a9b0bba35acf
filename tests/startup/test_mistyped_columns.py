"""A service refuses to start over a column whose type cannot hold its role: each role, database and type."""

from __future__ import annotations

import re
import types
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import pytest
from database_cells import if_chosen

from inboxkit import Database, Inbox, SchemaError, role
from inboxkit._core.spec import Role
from inboxkit._sql.column_types import COLUMN_TYPES, Accepts, known
from inboxkit._sql.dialect import get_dialect
from inboxkit.abc import DialectName

_ON_BOTH = {
    **{kind: kind for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")},
    **{kind: kind for kind in ("tinytext", "text", "mediumtext", "longtext")},
    **{kind: kind for kind in ("tinyblob", "blob", "mediumblob", "longblob")},
    **{kind: f"{kind}(40)" for kind in ("varchar", "char", "varbinary", "binary")},
    **{kind: kind for kind in ("binary(16)", "date", "year", "float", "double")},
    "datetime": "datetime(6)",
    "timestamp": "timestamp(6) NULL",
    "time": "time(6)",
    "decimal": "decimal(10, 2)",
    "enum": "enum('a')",
    "bit": "bit(3)",
}

DECLARED: dict[str, dict[str, str]] = {
    "postgres": {
        "smallint": "smallint",
        "integer": "integer",
        "bigint": "bigint",
        "text": "text",
        "character varying": "varchar(40)",
        "bpchar": "char(40)",
        "uuid": "uuid",
        "bytea": "bytea",
        "json": "json",
        "jsonb": "jsonb",
        "timestamp with time zone": "timestamptz",
        "timestamp without time zone": "timestamp",
        "date": "date",
        "time without time zone": "time",
        "interval": "interval",
        "numeric": "numeric(10, 2)",
        "boolean": "boolean",
        "real": "real",
        "double precision": "double precision",
        "name": "name",
        "text[]": "text[]",
        "inet": "inet",
    },
    "sqlite": {
        "INT": "INTEGER",
        "TEXT": "TEXT",
        "BLOB": "BLOB",
        "REAL": "REAL",
        "NUMERIC": "DECIMAL(10, 2)",
        "BOOLEAN": "BOOLEAN",
        "UUID": "UUID",
        "JSON": "JSON",
        "TIME": "TIMESTAMP",
    },
    "mariadb": _ON_BOTH | {"uuid": "uuid", "inet6": "inet6"},
    "mysql": _ON_BOTH | {"json": "json"},
}
"""One declaration for each type that a table may have; SQLite's columns without type hold anything, and
MariaDB's JSON is a longtext."""

SPECIFIERS: dict[Role, Any] = {
    Role.ID: role.id,
    Role.GROUP: role.group,
    Role.PRIORITY: role.priority,
    Role.PARTITION_KEY: role.partition_key,
    Role.RETRY_AFTER: role.retry_after,
    Role.ATTEMPT: role.attempt,
    Role.PROCESSED_AT: role.processed_at,
    Role.LOCKED_UNTIL: role.locked_until,
    Role.HEADERS: role.headers,
    Role.PAYLOAD: role.payload,
    Role.DATA: role.column,
}
NULLABLE = {Role.RETRY_AFTER, Role.PROCESSED_AT, Role.LOCKED_UNTIL}
NO_INDEX = re.compile("json|.*text|.*blob")
"""Types that MySQL cannot index as they are, and Postgres's json."""


@dataclass(frozen=True)
class Case:
    """A role's values of one Python type on one database, and the types that cannot hold them."""

    database: str
    accepts: Accepts

    @property
    def dialect(self) -> DialectName:
        return "mysql" if self.database == "mariadb" else cast("DialectName", self.database)

    @property
    def column(self) -> str:
        return {Role.ID: "id", Role.LOCKED_UNTIL: "lease"}.get(self.accepts.role, "it")

    @property
    def wrong(self) -> list[str]:
        kinds = DECLARED[self.database]
        if self.accepts.role is Role.DATA:  # other types are the service's own: the driver's matter
            kinds = {kind: kinds[kind] for kind in known(self.dialect) & kinds.keys()}
        return sorted(
            declared
            for kind, declared in kinds.items()
            if kind not in self.accepts.on(self.dialect)
        )

    def __str__(self) -> str:
        accepts = self.accepts
        types = "+".join(declared.partition("(")[0] for declared in self.wrong)
        return f"{self.database}-{accepts.role.value}-{accepts.python.__name__}-not-{types}"


CASES = [Case(database, accepts) for database in DECLARED for accepts in COLUMN_TYPES]


def cells() -> list[Any]:
    """Each case on its database."""
    marks = dict.fromkeys(("mariadb", "mysql"), (if_chosen,))
    return [
        pytest.param(case.database, case, id=str(case), marks=marks.get(case.database, ()))
        for case in CASES
    ]


def row_class(case: Case, table: str) -> type[Inbox]:
    accepts = case.accepts
    kind: Any = dict[str, str] if accepts.role is Role.HEADERS else accepts.python
    fields: dict[str, tuple[Any, Any]] = {
        "id": (int, role.id()),
        "lease": (datetime | None, role.locked_until()),
        case.column: (
            kind | None if accepts.role in NULLABLE else kind,
            SPECIFIERS[accepts.role](),
        ),
    }

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {name: kind for name, (kind, _) in fields.items()}
        for name, (_, specifier) in fields.items():
            namespace[name] = specifier

    made: type[Inbox] = types.new_class("Row", (Inbox,), {"table": table}, fill)
    return made


@pytest.mark.parametrize(("inbox_db", "case"), cells())
def test_mistyped_column_stops_the_start(case: Case, with_database: Any, refusal_of: Any) -> None:
    async def test(db: Database) -> dict[str, str]:
        return {declared: await met(db, declared) for declared in case.wrong}

    async def met(db: Database, declared: str) -> str:
        """What is missing from the refusal; empty where it is as it should be."""
        table = f"jobs {uuid.uuid4().hex[:12]}"
        quote = get_dialect(db.dialect).quote
        time = {"postgres": "timestamptz", "sqlite": "TEXT", "mysql": "datetime(6)"}[db.dialect]
        of_column = {"id": "integer", "lease": time} | {case.column: declared}
        of_column["id"] = of_column["id"].removesuffix(" NULL")
        if NO_INDEX.fullmatch(of_column["id"]) is None or db.dialect == "sqlite":
            of_column["id"] += " PRIMARY KEY"
        columns = ", ".join(f"{name} {kind}" for name, kind in of_column.items())
        await db.execute(f"CREATE TABLE {quote(table)} ({columns})")

        error = await refusal_of(db, row_class(case, table))

        if not isinstance(error, SchemaError):
            return f"met {error!r}"
        pieces = [repr(table), repr(case.column), case.accepts.python.__name__, "accepted: "]
        if case.accepts.role is not Role.DATA:
            pieces.append(f"(role {case.accepts.role.value})")
        if db.dialect == "postgres":
            pieces.append(f'ALTER TABLE "{table}" ALTER COLUMN "{case.column}" TYPE ')
        elif db.dialect == "mysql":
            pieces.append(f"ALTER TABLE `{table}` MODIFY COLUMN `{case.column}` ")
        else:
            pieces.append(f"make the table anew with `{case.column}` ")
        missing = [piece for piece in pieces if piece not in str(error)]
        if (error.table, error.column) != (table, case.column):
            missing.append(f"attributes: {error.table!r}, {error.column!r}")
        if missing:
            return f"{error} lacks {missing}"
        if db.dialect != "sqlite":  # the cure, as a person would paste it
            for statement in str(error)[str(error).index("ALTER TABLE ") :].split("; "):
                await db.execute(statement)
            again = await refusal_of(db, row_class(case, table))
            if "is of type" in str(again):
                return f"after {error} met {again!r}"
        return ""

    answers = with_database(test)
    assert len(answers) == len(case.wrong) > 0
    assert {declared: answer for declared, answer in answers.items() if answer} == {}


def test_no_case_is_lost() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in CASES:
        kind = "data" if case.accepts.role is Role.DATA else "role"
        counts[case.database, kind] += len(case.wrong)
    assert counts == {
        ("postgres", "role"): 319,
        ("postgres", "data"): 122,
        ("sqlite", "role"): 120,
        ("sqlite", "data"): 60,
        ("mariadb", "role"): 406,
        ("mariadb", "data"): 172,
        ("mysql", "role"): 390,
        ("mysql", "data"): 171,
    }
    assert len({str(case) for case in CASES}) == len(CASES) == 4 * len(COLUMN_TYPES)
    assert known("postgres") <= DECLARED["postgres"].keys()
    assert known("sqlite") - {"NONE"} <= DECLARED["sqlite"].keys()
    assert known("mysql") - {"json"} <= DECLARED["mariadb"].keys()
    assert known("mysql") - {"uuid"} <= DECLARED["mysql"].keys()
