"""Start-up's check: what it refuses, and what it says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from inboxkit import Broker, InboxQueue, Service, subscriber
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.check import check, check_dead_letter
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.mysql.describe import read_server
from inboxkit.database import Database
from inboxkit.errors import SchemaError, ServerTooOldError

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]


def spec(table: str, **roles: Any) -> InboxSpec:
    given = {"id": Column("id"), "attempt": Column("attempt"), "locked_until": Column("lease")}
    return InboxSpec(table, **{**given, **roles})


async def dialect_of(db: Database) -> str:
    return db.dialect


async def server_of(db: Database) -> str:
    info: TableInfo = await db.run(get_dialect(db.dialect).describe(spec("nowhere")))
    return info.server


def refusal(run: WithDatabase, described: InboxSpec, *statements: str) -> SchemaError | None:
    """Create what `statements` say, check the description, and return the error."""

    async def test(db: Database) -> SchemaError | None:
        dialect = get_dialect(db.dialect)
        meant = {
            "TABLE_": dialect.table(described.table, None),
            "OTHER_": dialect.quote(described.table.removesuffix("x")),
            "INDEX_": dialect.quote(described.table + " u"),
            "TIME_": TIME[db.dialect],
            "TEXT_": "varchar(40)" if db.dialect == "mysql" else "TEXT",
        }
        for statement in statements:
            await db.execute(re.sub("|".join(meant), lambda word: meant[word[0]], statement))
        info = await db.run(dialect.describe(described))
        try:
            check(dialect, described, info)
        except SchemaError as error:
            return error
        return None

    found: SchemaError | None = run(test)
    assert found is None or found.table == described.name
    return found


TIME = {"postgres": "timestamptz", "sqlite": "TEXT", "mysql": "datetime(6)"}
GOOD = "CREATE TABLE TABLE_ (id integer PRIMARY KEY, attempt integer, lease TIME_)"


def test_table_that_fits_passes(with_database: WithDatabase, table: str) -> None:
    assert refusal(with_database, spec(table), GOOD) is None


def test_missing_table_names_close_ones(with_database: WithDatabase, table: str) -> None:
    error = refusal(with_database, spec(table + "x"), GOOD.replace("TABLE_", "OTHER_"))
    assert error is not None
    assert "does not exist" in str(error)
    assert repr(table) in str(error)


def test_missing_column_names_close_ones_and_the_cure(
    with_database: WithDatabase, table: str
) -> None:
    error = refusal(with_database, spec(table, attempt=Column("atempt")), GOOD)
    assert error is not None
    assert error.column == "atempt"
    assert "did you mean 'attempt'?" in str(error)
    assert "(role attempt)" in str(error)
    assert "ADD COLUMN" in str(error)


@pytest.mark.parametrize("role", ["locked_until", "processed_at"])
def test_column_that_must_hold_null_is_refused_where_it_cannot(
    with_database: WithDatabase, table: str, role: str
) -> None:
    error = refusal(
        with_database,
        spec(table, **{role: Column("it")}),
        "CREATE TABLE TABLE_ (id integer PRIMARY KEY, attempt integer, lease TIME_, "
        "it TIME_ NOT NULL)",
    )
    assert error is not None
    assert error.column == "it"
    assert "NOT NULL" in str(error)


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE TABLE_ (id integer, attempt integer, lease TIME_)",
        "CREATE TABLE TABLE_ (id integer, attempt integer, lease TIME_, PRIMARY KEY (id, attempt))",
        "CREATE TABLE TABLE_ (id integer, attempt integer, lease TIME_, UNIQUE (attempt, id))",
    ],
)
def test_id_without_a_unique_index_of_its_own_is_refused(
    with_database: WithDatabase, table: str, ddl: str
) -> None:
    error = refusal(with_database, spec(table), ddl)
    assert error is not None
    assert error.column == "id"
    assert "CREATE UNIQUE INDEX" in str(error)


def test_partial_unique_index_is_none(with_database: WithDatabase, table: str) -> None:
    bare = "CREATE TABLE TABLE_ (id integer, attempt integer, lease TIME_)"
    partial = "CREATE UNIQUE INDEX INDEX_ ON TABLE_ (id) WHERE attempt > 0"
    if with_database(dialect_of) == "mysql":
        partial = "CREATE UNIQUE INDEX INDEX_ ON TABLE_ ((CASE WHEN attempt > 0 THEN id END))"
        if with_database(server_of) == "mariadb":
            pytest.skip("it has neither partial indexes nor indexes of expressions")
    assert refusal(with_database, spec(table), bare, partial) is not None


def test_whole_unique_index_will_do(with_database: WithDatabase, table: str) -> None:
    bare = "CREATE TABLE TABLE_ (id integer, attempt integer, lease TIME_)"
    whole = "CREATE UNIQUE INDEX INDEX_ ON TABLE_ (id)"
    assert refusal(with_database, spec(table), bare, whole) is None


def test_view_is_refused(with_database: WithDatabase, table: str) -> None:
    view = "CREATE VIEW TABLE_ AS SELECT 1 AS id, 1 AS attempt, NULL AS lease"
    error = refusal(with_database, spec(table), view)
    assert error is not None
    assert "is a view" in str(error)


def test_generated_column_that_nothing_fills_is_refused(
    with_database: WithDatabase, table: str
) -> None:
    ddl = "CREATE TABLE TABLE_ (id TEXT_ NOT NULL PRIMARY KEY, attempt integer, lease TIME_)"
    described = spec(table, id=Column("id", generated=True, type=str))
    error = refusal(with_database, described, ddl)
    assert error is not None
    assert "does not fill it" in str(error)


def test_generated_attempt_needs_a_default_or_null(with_database: WithDatabase, table: str) -> None:
    described = spec(table, attempt=Column("attempt", generated=True))
    tight = "CREATE TABLE TABLE_ (id integer PRIMARY KEY, attempt integer NOT NULL, lease TIME_)"
    error = refusal(with_database, described, tight)
    assert error is not None
    assert "DEFAULT 1" in str(error)
    assert (
        refusal(with_database, spec(table + "2", attempt=Column("attempt", generated=True)), GOOD)
        is None
    )


def test_type_that_the_class_declares_must_fit_the_column(
    with_database: WithDatabase, table: str
) -> None:
    error = refusal(with_database, spec(table, id=Column("id", type=UUID)), GOOD)
    assert error is not None
    assert "UUID" in str(error)
    assert "'INT" in str(error).upper()


def test_data_column_is_checked_where_both_sides_are_known(
    with_database: WithDatabase, table: str
) -> None:
    ddl = "CREATE TABLE TABLE_ (id integer PRIMARY KEY, attempt integer, lease TIME_, data integer)"
    described = spec(table, columns=(Column("data", type=bytes),))
    error = refusal(with_database, described, ddl)
    assert error is not None
    assert error.column == "data"
    other = spec(table + "2", columns=(Column("data", type=int),))
    assert refusal(with_database, other, ddl) is None


def test_names_are_compared_as_the_database_compares_them(
    with_database: WithDatabase, table: str
) -> None:
    error = refusal(with_database, spec(table, attempt=Column("ATTEMPT")), GOOD)
    assert (error is None) == (with_database(dialect_of) != "postgres")


@pytest.fixture
def postgres(postgres_url: str) -> WithDatabase:
    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(postgres_url) as db:
                return await test(db)

        return anyio.run(main)

    return run


def test_coarse_lease_needs_an_attempt(postgres: WithDatabase, table: str) -> None:
    ddl = "CREATE TABLE TABLE_ (id integer PRIMARY KEY, attempt integer, lease timestamptz(3))"
    assert refusal(postgres, spec(table), ddl) is None
    error = refusal(postgres, spec(table + "2", attempt=None), ddl)
    assert error is not None
    assert error.column == "lease"
    assert "3 fraction digits" in str(error)


def test_identity_always_must_be_declared_generated(postgres: WithDatabase, table: str) -> None:
    ddl = (
        "CREATE TABLE TABLE_ (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "attempt integer, lease timestamptz)"
    )
    error = refusal(postgres, spec(table), ddl)
    assert error is not None
    assert "generated=True" in str(error)
    declared = spec(table + "2", id=Column("id", generated=True))
    assert refusal(postgres, declared, ddl) is None


@pytest.fixture
def mysql(mysql_url: str) -> WithDatabase:
    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(mysql_url) as db:
                return await test(db)

        return anyio.run(main)

    return run


@pytest.mark.parametrize(
    ("ddl", "column", "said", "cure"),
    [
        ("{0}, lease datetime(6)) ENGINE=MyISAM", None, "MyISAM", "ENGINE = InnoDB"),
        (
            "{0}, lease datetime(3))",
            "lease",
            "3 fraction digits",
            "MODIFY COLUMN `lease` datetime(6) NULL, or describe an attempt",
        ),
        (
            "{0}, lease timestamp(6) NULL ON UPDATE CURRENT_TIMESTAMP(6))",
            "lease",
            "at each update",
            "MODIFY COLUMN `lease` timestamp(6) NULL",
        ),
        (
            "{0}, lease datetime(6) NOT NULL DEFAULT '2000-01-01')",
            "lease",
            "NOT NULL",
            "MODIFY COLUMN `lease` datetime(6) NULL",
        ),
        (
            "CREATE TABLE TABLE_ (id varchar(40) NOT NULL, lease datetime(6))",
            "id",
            "no unique index",
            "CREATE UNIQUE INDEX `",
        ),
    ],
)
def test_mysql_names_what_a_table_lacks(
    mysql: WithDatabase, table: str, ddl: str, column: str | None, said: str, cure: str
) -> None:
    made = ddl.format("CREATE TABLE TABLE_ (id integer PRIMARY KEY")
    error = refusal(mysql, spec(table, attempt=None), made)
    assert error is not None
    assert error.column == column
    assert said in str(error)
    assert cure in str(error)


def test_mysql_cures_are_taken_by_the_server(mysql: WithDatabase, table: str) -> None:
    """Each error's statement mends what it is about, until nothing is left."""
    bad = (
        "CREATE TABLE TABLE_ (id varchar(40) NOT NULL, attempt blob, "
        "lease timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), "
        "body varchar(9)) ENGINE=MyISAM"
    )
    described = spec(
        table,
        id=Column("id", type=str),
        attempt=Column("attempt", generated=True),
        retry_after=Column("due", default=None),
        payload=Column("body", type=bytes),
    )
    statements = [bad]
    while (error := refusal(mysql, described, *statements)) is not None:
        (cure,) = re.findall(r"(?:ALTER TABLE|CREATE UNIQUE INDEX) .*?(?=, or |\Z)", str(error))
        statements = [cure]
        assert cure != bad
        bad = cure


def test_mysql_compares_names_of_tables_to_the_letter(mysql: WithDatabase, table: str) -> None:
    async def test(db: Database) -> list[str]:
        dialect = get_dialect("mysql")
        for name in (table, f"{table}é"):
            await db.execute(f"CREATE TABLE {dialect.quote(name)} (id int PRIMARY KEY)")
        names = (f"{table}é", f"{table}e", table.upper())
        return [(await db.run(dialect.describe(spec(name)))).kind for name in names]

    assert mysql(test) == ["table", "missing", "missing"]


@pytest.mark.parametrize(
    ("version", "server"),
    [
        ("8.0.1", "mysql"),
        ("9.7.0-0debian1", "mysql"),
        ("10.6.0-MariaDB", "mariadb"),
        ("5.5.5-10.11.6-MariaDB-log", "mariadb"),
        ("8.0.0-dmr", "ServerTooOldError: the server is MySQL 8.0.0-dmr, and inboxkit needs 8.0.1"),
        ("10.5.23-MariaDB", "ServerTooOldError: the server is MariaDB 10.5.23-MariaDB"),
    ],
)
def test_server_is_told_by_its_version(version: str, server: str) -> None:
    try:
        found: str = read_server(version, "")
    except ServerTooOldError as error:
        found = f"{type(error).__name__}: {error}"
    assert found.startswith(server)


def test_search_path_is_resolved(postgres: WithDatabase, table: str) -> None:
    async def test(db: Database) -> TableInfo:
        await db.execute(f'CREATE SCHEMA "{table}"')
        await db.execute(f'CREATE TABLE "{table}".jobs (id integer PRIMARY KEY, "Id" integer)')
        info: TableInfo = await db.run(get_dialect("postgres").describe(spec("jobs", schema=table)))
        return info

    info = postgres(test)
    assert (info.schema, info.table) == (table, "jobs")
    assert [column.name for column in info.columns] == ["id", "Id"]


def test_dead_letter_table_needs_the_same_columns(with_database: WithDatabase, table: str) -> None:
    async def test(db: Database) -> str:
        dialect = get_dialect(db.dialect)
        time = TIME[db.dialect]
        for name, extra in ((table, ", extra text"), (table + " dead", "")):
            quoted = dialect.table(name, None)
            await db.execute(
                f"CREATE TABLE {quoted} (id integer PRIMARY KEY, attempt integer, lease {time}{extra})"
            )
        mine = await db.run(dialect.describe(spec(table)))
        dead = await db.run(dialect.describe(spec(table + " dead")))
        check_dead_letter(dialect, spec(table), mine, mine, name=table)
        with pytest.raises(SchemaError, match="lacks column 'extra'") as caught:
            check_dead_letter(dialect, spec(table), mine, dead, name=table + " dead")
        missing = await db.run(dialect.describe(spec("nowhere")))
        with pytest.raises(SchemaError, match="missing"):
            check_dead_letter(dialect, spec(table), mine, missing, name="nowhere")
        return str(caught.value)

    assert "ADD COLUMN" in with_database(test)


def test_schema_of_sqlite_is_an_attached_database(tmp_path: Path, table: str) -> None:
    async def main() -> None:
        dialect = get_dialect("sqlite")
        async with Database(f"sqlite:///{tmp_path / 'main.db'}") as db:
            described = spec(table, schema="main", id=Column("id", generated=True, type=int))
            for statement in create_table(dialect, described):
                await db.execute(statement)
            info = await db.run(dialect.describe(described))
            check(dialect, described, info)
            assert info.has_index("lease")
            elsewhere = spec(table, schema="main", id=Column("other"))
            with pytest.raises(SchemaError, match="main"):
                check(dialect, elsewhere, await db.run(dialect.describe(elsewhere)))

    anyio.run(main)


PARTITIONED = {
    "by the group": ("(grp)", "LIST (grp)", "'grp'", ["FOR VALUES IN ('g0')", "DEFAULT"]),
    "by the group and the id": (
        "(grp, id)",
        "RANGE (grp, id)",
        "'grp', 'id'",
        ["FOR VALUES FROM (MINVALUE, MINVALUE) TO (MAXVALUE, MAXVALUE)"],
    ),
    "by an expression": ("", "LIST ((grp || ''))", "an expression", ["DEFAULT"]),
}


@pytest.mark.parametrize("how", PARTITIONED)
def test_a_table_whose_partitions_keep_the_id_from_being_unique_is_told_what_can_be_done(
    with_database: WithDatabase, table: str, how: str
) -> None:
    key, by, said, parts = PARTITIONED[how]
    unique = f", UNIQUE (id, {key[1:-1]})" if how == "by the group" else ""
    made = [
        (
            f"CREATE TABLE TABLE_ (id bigint NOT NULL, grp text NOT NULL, attempt integer, lease TIME_{unique}) "
            f"PARTITION BY {by}"
        ),
        *(f'CREATE TABLE "{table} {n}" PARTITION OF TABLE_ {part}' for n, part in enumerate(parts)),
    ]
    if with_database(dialect_of) != "postgres":
        return
    error = refusal(with_database, spec(table, group=Column("grp")), *made)
    assert error is not None
    assert error.column == "id"
    assert f"the table is partitioned by {said}, which each unique index of it must contain" in str(
        error
    )
    assert 'PARTITION BY HASH ("id")' in str(error)
    assert "CREATE UNIQUE INDEX" not in str(error)


def test_a_table_that_is_partitioned_by_its_id_is_served(
    with_database: WithDatabase, table: str
) -> None:
    if with_database(dialect_of) != "postgres":
        return
    made = (
        "CREATE TABLE TABLE_ (id bigint NOT NULL, grp text NOT NULL, attempt integer, lease TIME_) "
        "PARTITION BY HASH (id)"
    )
    parts = [
        f'CREATE TABLE "{table} {n}" PARTITION OF TABLE_ FOR VALUES WITH (MODULUS 2, REMAINDER {n})'
        for n in range(2)
    ]
    described = spec(table, group=Column("grp"))
    error = refusal(with_database, described, made, *parts)
    assert error is not None
    cure = str(error).rpartition("; ")[2]
    assert cure.startswith("CREATE UNIQUE INDEX ON")
    assert refusal(with_database, described, cure) is None


@pytest.mark.parametrize("with_database", [("asyncio", "postgres")], ids="-".join, indirect=True)
def test_rows_of_partitions_by_id_are_handled_each_once(
    with_database: WithDatabase, table: str
) -> None:
    async def test(db: Database) -> list[str]:
        await db.execute(f'CREATE SEQUENCE "{table} s"')  # identities of partitions came with 17
        await db.execute(
            f'CREATE TABLE "{table}" (id bigint PRIMARY KEY DEFAULT nextval($q$"{table} s"$q$), '
            "attempt integer NOT NULL DEFAULT 1, lease timestamptz, payload bytea NOT NULL) "
            "PARTITION BY HASH (id)"
        )
        for n in range(3):
            await db.execute(
                f'CREATE TABLE "{table} {n}" PARTITION OF "{table}" '
                f"FOR VALUES WITH (MODULUS 3, REMAINDER {n})"
            )
        described = InboxSpec(
            table,
            id=Column("id", generated=True, type=int),
            attempt=Column("attempt", generated=True),
            locked_until=Column("lease"),
            payload=Column("payload"),
        )
        queue = InboxQueue(described, "jobs", str)
        seen: list[str] = []
        all_seen = anyio.Event()

        @subscriber(queue)
        async def handle(text: str) -> None:
            seen.append(text)
            if len(seen) == 20:
                all_seen.set()

        app = Service("service", Broker(db))
        app.include(handle, workers=4)
        async with app.running():
            for n in range(20):
                await app.broker.publish(queue, str(n))
            with anyio.fail_after(20):
                await all_seen.wait()
        assert await db.fetch_value(f'SELECT count(*) FROM "{table}"') == 0
        return seen

    assert sorted(with_database(test), key=int) == [str(n) for n in range(20)]
