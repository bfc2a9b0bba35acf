"""Inserts: ids in the order of the rows, and values that are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from inboxkit._core.rows import NewRow
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import ColumnInfo, TableInfo
from inboxkit._sql.insert import insert, insert_statements
from inboxkit.database import Database
from inboxkit.errors import ConstraintError, EncodeError

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Bench:
    def __init__(self, db: Database, spec: InboxSpec) -> None:
        self.db = db
        self.spec = spec
        self.dialect = get_dialect(db.dialect)
        self.name = self.dialect.table(spec.table, None)
        self.info: TableInfo | None = None

    async def create(self, *extra: str) -> None:
        for statement in create_table(self.dialect, self.spec):
            await self.db.execute(statement)
        for statement in extra:
            await self.db.execute(statement.format(table=self.name))
        self.info = await self.db.run(self.dialect.describe(self.spec))

    async def insert(
        self, *values: dict[str, Any], ignore: bool = False, described: bool = True
    ) -> list[Any]:
        script = insert(
            self.dialect,
            self.spec,
            self.info if described else None,
            [NewRow(self.spec, row) for row in values],
            on_conflict="ignore" if ignore else "error",
            now=NOW,
        )
        ids: list[Any] = await self.db.run(script)
        return ids


def generated(table: str) -> InboxSpec:
    return InboxSpec(
        table,
        id=Column("id", generated=True, type=int),
        attempt=Column("tries", generated=True),
        columns=(Column("a", type=int), Column("b", type=str)),
    )


@pytest.mark.parametrize("described", [True, False])
def test_ids_come_in_the_order_of_the_rows(
    with_database: WithDatabase, table: str, described: bool
) -> None:
    async def test(db: Database) -> None:
        bench = Bench(db, generated(table))
        await bench.create()
        rows = [{"a": n, "b": "x"} if n % 10 < 7 else {"b": str(n)} for n in range(3000)]
        ids = await bench.insert(*rows, described=described)
        assert ids == sorted(ids)
        kept = {
            row[0]: (row[1], row[2]) for row in await db.fetch(f"SELECT id, a, b FROM {bench.name}")
        }
        assert [kept[id] for id in ids] == [(row.get("a"), row["b"]) for row in rows]

    with_database(test)


def test_thousand_rows_are_one_statement() -> None:
    spec = generated("t")
    rows = [NewRow(spec, {"a": n, "b": "x"}) for n in range(1000)]
    for name in ("postgres", "sqlite", "mysql"):
        made = insert_statements(get_dialect(name), spec, None, rows, on_conflict="error", now=None)
        assert [one.count for one in made] == [1000]


def test_rows_beyond_the_databases_limits_are_split(
    with_database: WithDatabase, table: str
) -> None:
    async def test(db: Database) -> None:
        bench = Bench(db, generated(table))
        await bench.create()
        ids = await bench.insert(*({"a": n, "b": None} for n in range(33_000)), described=False)
        assert ids == sorted(set(ids))
        assert len(ids) == 33_000

    with_database(test)


def test_rows_without_any_value(with_database: WithDatabase, table: str) -> None:
    async def test(db: Database) -> None:
        bench = Bench(db, generated(table))
        await bench.create()
        ids = await bench.insert({}, {}, {})
        assert len(set(ids)) == 3
        rows = await db.fetch(f"SELECT tries FROM {bench.name}")
        assert [row[0] for row in rows] == [1, 1, 1]

    with_database(test)


def test_ignored_rows_have_no_id(with_database: WithDatabase, table: str) -> None:
    async def test(db: Database) -> None:
        bench = Bench(db, generated(table))
        index = bench.dialect.quote(f"{table} u")
        await bench.create(f"CREATE UNIQUE INDEX {index} ON {{table}} (a)")
        first, second = await bench.insert({"a": 1}, {"a": 2})
        assert first < second
        ids = await bench.insert({"a": 3}, {"a": 1}, {"a": 4}, {"a": 3}, ignore=True)
        assert [id is None for id in ids] == [False, True, False, True]
        with pytest.raises(ConstraintError):
            await bench.insert({"a": 9}, {"a": 1})
        assert len(await db.fetch(f"SELECT id FROM {bench.name}")) == 4

    with_database(test)


def test_ignored_rows_are_told_by_their_given_ids(with_database: WithDatabase, table: str) -> None:
    async def test(db: Database) -> None:
        bench = Bench(db, InboxSpec(table, id=Column("id", type=UUID)))
        await bench.create()
        one, two, three = uuid4(), uuid4(), uuid4()
        assert await bench.insert({"id": two}) == [two]
        given = [{"id": id} for id in (three, two, one, three)]
        assert await bench.insert(*given, ignore=True) == [three, None, one, None]

    with_database(test)


def test_absent_due_time_is_now_and_on_foreign_connections_null(
    with_database: WithDatabase, table: str
) -> None:
    async def test(db: Database) -> None:
        spec = InboxSpec(
            table, id=Column("id", generated=True), retry_after=Column("due", default=None)
        )
        bench = Bench(db, spec)
        await bench.create()
        later = NOW + timedelta(days=1)
        await bench.insert({}, {"due": None}, {"due": later})
        row = NewRow(spec, {"due": None})
        await db.run(insert(bench.dialect, spec, None, [row], on_conflict="error", now=None))
        dues = [row[0] for row in await db.fetch(f"SELECT due FROM {bench.name} ORDER BY id")]
        now = bench.dialect.instant(NOW)
        assert dues == [now, now, bench.dialect.instant(later), None]

    with_database(test)


ROUND = [
    (int, -(2**63)),
    (int, 2**63 - 1),
    (str, ""),
    (str, "'\"`$1?%s\\ \N{GRINNING FACE}"),
    (bytes, bytes(range(256))),
    (bool, False),
    (float, 0.1),
    (Decimal, Decimal("12345678901234567890.1234567890")),
    (UUID, UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")),
    (datetime, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (datetime, datetime(1, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (dict[str, Any], {"a": [1, None, 0.5, "é"]}),
    (list[int], [1, 2]),
    (int | None, None),
    (str | None, "x"),
]


@pytest.mark.parametrize(("kind", "value"), ROUND)
@pytest.mark.parametrize("count", [1, 2])
def test_values_come_back_as_they_were_given(
    with_database: WithDatabase, table: str, kind: Any, value: Any, count: int
) -> None:
    async def test(db: Database) -> None:
        spec = InboxSpec(table, id=Column("id", generated=True), columns=(Column("it", type=kind),))
        bench = Bench(db, spec)
        if kind == list[int] and db.dialect == "postgres":
            await db.execute(f"CREATE TABLE {bench.name} (id serial PRIMARY KEY, it integer[])")
            bench.info = await db.run(bench.dialect.describe(spec))
        else:
            await bench.create()
        await bench.insert(*[{"it": value}] * count)
        assert bench.info is not None
        column = spec.columns[0]
        info = bench.info.column("it")
        from inboxkit._sql.table import bind

        bound = bind(bench.dialect, spec, bench.info).columns[1]
        assert (bound.column, bound.info) == (column, info)
        rows = await db.fetch(f"SELECT it FROM {bench.name}")
        assert [bound.decode(row[0]) for row in rows] == [value] * count

    with_database(test)


WRONG = [
    (int, "bigint", "INT", True),
    (int, "bigint", "INT", "1"),
    (int, "bigint", "INT", 1.0),
    (int, "bigint", "INT", 2**63),
    (int, "smallint", "", 2**15),
    (int, "integer", "", -(2**31) - 1),
    (str, "text", "TEXT", b"x"),
    (str, "text", "TEXT", 7),
    (str, "text", "TEXT", "lone \ud800"),
    (str, "text", "", "a\0b"),
    (bytes, "bytea", "BLOB", "secret"),
    (bool, "boolean", "INT", 1),
    (float, "double precision", "REAL", "1"),
    (Decimal, "numeric", "TEXT", 0.5),
    (UUID, "uuid", "TEXT", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    (UUID, "uuid", "BLOB", 7),
    (datetime, "timestamp with time zone", "TEXT", datetime(2030, 1, 1)),  # noqa: DTZ001
    (datetime, "timestamp with time zone", "TEXT", "2030-01-01T00:00:00Z"),
    (dict, "jsonb", "JSON", {1, object()}),
]


MYSQL_FAMILIES = {
    "bigint": "bigint",
    "smallint": "smallint",
    "integer": "int",
    "text": "longtext",
    "bytea": "longblob",
    "boolean": "tinyint",
    "double precision": "double",
    "numeric": "decimal",
    "uuid": "char",
    "timestamp with time zone": "datetime",
    "jsonb": "json",
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["postgres", "sqlite", "mysql"])
@pytest.mark.parametrize("described", [True, False])
def test_wrong_values_are_refused_before_anything_is_sent(
    case: tuple[Any, str, str, Any], name: str, described: bool
) -> None:
    kind, postgres, sqlite, value = case
    by_name = {"postgres": postgres, "sqlite": sqlite, "mysql": MYSQL_FAMILIES[postgres]}
    family = "" if name == "mysql" and value == "a\0b" else by_name[name]
    if not family or (not described and postgres in ("smallint", "integer")):
        pytest.skip("this database takes it, or nothing tells")
    spec = InboxSpec("jobs", id=Column("id", generated=True), columns=(Column("it", type=kind),))
    info = TableInfo("jobs", columns=(ColumnInfo("it", family, family, cast=family),))
    with pytest.raises(EncodeError) as caught:
        insert_statements(
            get_dialect(name),
            spec,
            info if described else None,
            [NewRow(spec, {"it": value})],
            on_conflict="error",
            now=None,
        )
    assert (caught.value.table, caught.value.where) == ("jobs", "it")
    assert "'jobs'" in str(caught.value)
    assert "'it'" in str(caught.value)
    assert not isinstance(value, str) or value not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "family", "longest", "more", "value", "said"),
    [
        (int, "tinyint", None, {}, 128, "from -128 to 127"),
        (int, "mediumint", None, {"unsigned": True}, -1, "from 0 to 16777215"),
        (int, "bigint", None, {"unsigned": True}, 2**64, "from 0 to 18446744073709551615"),
        (
            bytes,
            "blob",
            65535,
            {},
            b"x" * 65536,
            "takes 65535 bytes, and this has 65536; use longblob",
        ),
        (bytes, "binary(16)", 16, {}, b"x", "pads with zeros"),
        (str, "text", 65535, {}, "é" * 32768, "takes 65535 bytes, and this has 65536"),
        (str, "varchar", 3, {"charset": "utf8mb4"}, "éééé", "takes 3 characters, and this has 4"),
        (str, "varchar", 3, {"charset": "utf8mb3"}, "\U0001f600", "utf8mb4"),
        (str, "char", 9, {"charset": "utf8mb4"}, "a ", "drops the spaces"),
        (dict, "tinytext", 255, {}, {"a": "x" * 255}, "takes 255 bytes, and this has 263"),
    ],
)
def test_mysql_is_sent_no_value_that_it_might_cut(
    kind: Any, family: str, longest: int | None, more: dict[str, Any], value: Any, said: str
) -> None:
    """A session out of strict mode cuts it, with a warning that nobody reads."""
    spec = InboxSpec("jobs", id=Column("id", generated=True), columns=(Column("it", type=kind),))
    column = ColumnInfo("it", family, family, longest=longest, **more)
    with pytest.raises(EncodeError, match=said):
        insert_statements(
            get_dialect("mysql"),
            spec,
            TableInfo("jobs", columns=(column,)),
            [NewRow(spec, {"it": value})],
            on_conflict="error",
            now=None,
        )


@pytest.mark.parametrize("headers", ["x", [1], {"a": 1}, {1: "a"}, {"a": None}])
@pytest.mark.parametrize("name", ["postgres", "sqlite", "mysql"])
def test_headers_are_texts_by_name(name: str, headers: Any) -> None:
    spec = InboxSpec("jobs", id=Column("id", generated=True), headers=Column("heads"))
    with pytest.raises(EncodeError, match=r"dict\[str, str\]"):
        insert_statements(
            get_dialect(name),
            spec,
            None,
            [NewRow(spec, {"heads": headers})],
            on_conflict="error",
            now=None,
        )


def test_column_that_is_not_described_is_refused() -> None:
    spec = InboxSpec("jobs", id=Column("id", generated=True))
    with pytest.raises(EncodeError, match="describes no column 'x'"):
        insert_statements(
            get_dialect("sqlite"),
            spec,
            None,
            [NewRow(spec, {"x": 1})],
            on_conflict="error",
            now=None,
        )
