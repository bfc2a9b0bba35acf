from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import anyio
import pytest

from inboxkit._db.connection import Connection
from inboxkit.database import Database
from inboxkit.errors import (
    ClosedError,
    ConstraintError,
    DatabaseError,
    EncodeError,
)


def test_statements_and_records(cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute(f"CREATE TABLE t (id {cell.serial}, x text, count bigint)")
        assert await db.execute("INSERT INTO t (x, count) VALUES ($1, 1), ($2, 2)", "a", "$1") == 2
        assert await db.execute("UPDATE t SET count = count + 1") == 2
        rows = await db.fetch("SELECT id, x, count FROM t ORDER BY id")

        assert rows == [(1, "a", 2), (2, "$1", 3)]
        row = rows[1]
        assert (row[0], row["x"], row.count, row[-1], row[:2]) == (2, "$1", 3, 3, (2, "$1"))
        assert row.keys() == ("id", "x", "count")
        assert row.as_dict() == {"id": 2, "x": "$1", "count": 3}
        assert repr(row) == "<Record id=2 x='$1' count=3>"
        with pytest.raises(KeyError, match="has the columns"):
            row["y"]
        with pytest.raises(AttributeError):
            row.y  # noqa: B018
        assert await db.fetch_one("SELECT x FROM t WHERE id = 1") == ("a",)
        assert await db.fetch_one("SELECT x FROM t WHERE id = 3") is None
        assert await db.fetch_value("SELECT max(count) FROM t") == 3
        assert await db.fetch_value("SELECT x FROM t WHERE id = 3") is None
        assert await db.fetch("DELETE FROM t RETURNING id") in ([(1,), (2,)], [(2,), (1,)])
        assert await db.fetch("SELECT 1 FROM t") == []

    cell.run(main)


def test_a_connection_sees_its_own_session(cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.connection() as connection:
            await connection.execute("CREATE TEMPORARY TABLE mine (x int)")
            assert await connection.execute("INSERT INTO mine VALUES (1)") == 1
            assert await connection.fetch_value("SELECT x FROM mine") == 1
            assert connection.database is db
            assert connection.clock is db.clock
        with pytest.raises(ClosedError, match="block has ended"):
            await connection.fetch("SELECT 1")

    cell.run(main)


def test_usual_values_are_taken(cell: Any) -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 678, timezone(timedelta(hours=2)))
    values: list[tuple[str, Any, Any]] = [
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("double precision", 1.5, 1.5),
        ("text", "ä€😀", "ä€😀"),
        ("bytea" if cell.is_postgres else "blob", b"\0\xff", b"\0\xff"),
        ("boolean", True, True if cell.is_postgres else 1),
        ("text", None, None),
    ]
    if cell.is_postgres:
        uuid = UUID(int=5)
        values += [
            ("timestamptz", moment, moment),
            ("date", date(2030, 1, 2), date(2030, 1, 2)),
            ("uuid", uuid, uuid),
            ("numeric", Decimal("1.50"), Decimal("1.50")),
            ("timestamptz[]", [moment], [moment]),
            ("text[]", ["a", "b"], ["a", "b"]),
        ]
    elif cell.is_mysql:
        values += [
            ("datetime", moment, moment),
            ("date", date(2030, 1, 2), date(2030, 1, 2)),
            ("text", UUID(int=5), str(UUID(int=5))),
            ("numeric", Decimal("1.50"), Decimal("1.50")),
            ("blob", memoryview(b"'\\\0x"), b"'\\\0x"),
            ("text", "it's \\ \0 $1 %s", "it's \\ \0 $1 %s"),
        ]
    else:
        values += [
            ("text", moment, "2030-01-02T01:04:05.000678+00:00"),
            ("text", date(2030, 1, 2), "2030-01-02"),
            ("text", UUID(int=5), str(UUID(int=5))),
            ("text", Decimal("1.50"), "1.50"),
            ("blob", memoryview(b"x"), b"x"),
        ]

    async def main(db: Database) -> None:
        for kind, given, read in values:
            sql = f"SELECT $1::{kind}" if cell.is_postgres else "SELECT $1"
            value = await db.fetch_value(sql, given)
            assert isinstance(value, type(read))
            assert value == read

    cell.run(main)


def test_naive_datetimes_are_refused_everywhere(cell: Any) -> None:
    async def main(db: Database) -> None:
        for naive in (datetime(2030, 1, 1), datetime.max):  # noqa: DTZ001, DTZ901
            with pytest.raises(EncodeError, match="naive") as caught:
                await db.fetch("SELECT $1", naive)
            assert caught.value.where == "$1"

    cell.run(main)


def test_values_that_sqlite_cannot_hold(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        for value in ({"a": 1}, [1], timedelta(1), object()):
            with pytest.raises(EncodeError, match=r"\$2: SQLite cannot hold a"):
                await db.fetch("SELECT $1, $2", 1, value)
        for value in (2**63, "\ud800"):
            with pytest.raises(DatabaseError, match="SQLite cannot hold") as caught:
                await db.fetch("SELECT $1", value)
            assert str(value) not in str(caught.value).replace("\ud800", "?")
        assert await db.fetch_value("SELECT 1") == 1

    sqlite_cell.run(main)


def test_values_that_postgres_refuses(postgres_cell: Any) -> None:
    async def main(db: Database) -> None:
        for kind, value in (
            ("int", "secret"),
            ("text", "se\0cret"),
            ("text", "secret\ud800"),
            ("uuid", "secret"),
            ("timestamptz", "secret"),
        ):
            with pytest.raises(DatabaseError, match="fetch: ") as caught:
                await db.fetch(f"SELECT $1::{kind}", value)
            assert "secret" not in str(caught.value)
            assert caught.value.statement == "fetch"
        async with db.transaction() as tx:
            with pytest.raises(DatabaseError):
                await tx.fetch("SELECT $1", object())  # refused before sending: nothing is aborted
            assert await tx.fetch_value("SELECT 1") == 1

    postgres_cell.run(main)


def test_postgres_instants_and_json_read_alike(postgres_cell: Any) -> None:
    first = datetime.min.replace(tzinfo=UTC)
    last = datetime.max.replace(tzinfo=UTC)

    async def main(db: Database) -> None:
        await db.execute("SET TIME ZONE 'Asia/Tokyo'")
        for text, expected in (
            ("infinity", last),
            ("-infinity", first),
            ("20000-01-01 00:00+00", last),
            ("0044-03-15 00:00+00 BC", first),
            ("9999-12-31 23:59:59.999999+00", last),
            ("2030-01-01 12:00+09", datetime(2030, 1, 1, 3, tzinfo=UTC)),
        ):
            value = await db.fetch_value(f"SELECT '{text}'::timestamptz")
            assert value == expected
            assert value.tzinfo is UTC
            assert await db.fetch_value(f"SELECT ARRAY['{text}'::timestamptz]") == [expected]
        assert await db.fetch_one("SELECT '{\"a\": 1}'::json, '[1]'::jsonb") == ('{"a": 1}', "[1]")
        assert await db.fetch_value("SELECT $1::jsonb", '{"b": 2}') == '{"b": 2}'
        assert await db.fetch_value("SELECT $1::timestamptz = 'infinity'", last) is False

    postgres_cell.run(main, pool_size=1)


def test_a_wrong_number_of_arguments_is_not_sent(cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.transaction() as tx:
            for arguments in ((), (1, 2)):
                with pytest.raises(DatabaseError, match=r"one placeholder \(\$1\)"):
                    await tx.fetch("SELECT $1", *arguments)
            assert await tx.fetch_value("SELECT 1") == 1

    cell.run(main)


def test_refused_statements(cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute(
            f"CREATE TABLE t (id {cell.serial}, x text, CONSTRAINT never_z CHECK (x <> 'z'))"
        )
        await db.execute("INSERT INTO t (id) VALUES (1)")
        with pytest.raises(ConstraintError) as caught:
            await db.execute("INSERT INTO t (id) VALUES ($1)", 1)
        primary = "PRIMARY" if cell.is_mysql else "t_pkey" if cell.is_postgres else "t.id"
        assert caught.value.constraint == primary
        assert caught.value.statement == "execute"
        assert caught.value.__cause__ is not None
        with pytest.raises(ConstraintError) as caught:
            await db.execute("INSERT INTO t (id, x) VALUES (2, 'z')")
        assert caught.value.constraint == "never_z"
        for wrong in ("SELEKT", "SELECT * FROM missing", "SELECT missing FROM t"):
            with pytest.raises(DatabaseError, match="fetch: "):
                await db.fetch(wrong)
        assert await db.fetch_value("SELECT count(*) FROM t") == 1

    cell.run(main)


def test_two_tasks_on_one_connection_are_told_so(cell: Any) -> None:
    errors: list[str] = []

    async def use(connection: Connection) -> None:
        try:
            await connection.fetch("SELECT 1")
        except DatabaseError as error:
            errors.append(str(error))

    async def main(db: Database) -> None:
        async with db.transaction() as tx:
            async with anyio.create_task_group() as both:
                both.start_soon(use, tx)
                both.start_soon(use, tx)
            assert await tx.fetch_value("SELECT 2") == 2

    cell.run(main)

    assert len(errors) == 1
    assert "in use by another task (fetch)" in errors[0]


def test_all_io_is_inside_the_bracket(cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.transaction() as tx:
            await tx.fetch("SELECT 1")
            async with tx.transaction():
                pass
        with pytest.raises(KeyError):
            async with db.transaction() as tx:
                raise KeyError

    cell.run(main, pool_size=1)

    labels = [label for label in cell.clock.labels if label != "close"]
    assert labels == [
        *("connect", "begin", "fetch", "savepoint", "release", "commit"),
        *("begin", "rollback"),
    ]
    assert "close" in cell.clock.labels


def test_a_statement_that_takes_too_long_is_stopped(cell: Any) -> None:
    async def main(db: Database) -> None:
        with pytest.raises(DatabaseError) as caught:
            await db.fetch(cell.slow)
        assert type(caught.value) is DatabaseError
        assert await db.fetch_value("SELECT 1") == 1

    cell.run(main, statement_timeout=timedelta(seconds=0.2), pool_size=1)


def test_a_table_altered_since_the_statement_was_prepared(postgres_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE t (x int)")
        await db.execute("INSERT INTO t VALUES (1)")
        async with db.connection() as one, db.connection() as other:
            for _ in range(8):
                assert await one.fetch("SELECT * FROM t") == [(1,)]
            await other.execute("ALTER TABLE t ADD y int")
            for _ in range(3):
                assert await one.fetch("SELECT * FROM t") == [(1, None)]

    postgres_cell.run(main)


def test_sqlite_leaves_foreign_keys_and_old_files_alone(sqlite_cell: Any) -> None:
    async def main(db: Database) -> tuple[Any, ...]:
        names = ("journal_mode", "foreign_keys", "busy_timeout")
        return tuple([await db.fetch_value(f"PRAGMA {name}") for name in names])

    assert sqlite_cell.run(main) == ("wal", 0, 30000)

    async def unwal(db: Database) -> None:
        await db.execute("PRAGMA journal_mode = delete")

    sqlite_cell.run(unwal, pool_size=1)
    assert sqlite_cell.run(main, statement_timeout=timedelta(seconds=2)) == ("delete", 0, 2000)


def test_memory_is_one_connection(backend: str) -> None:
    async def main() -> None:
        async with Database("sqlite:///:memory:") as db:
            await db.execute("CREATE TABLE t (x)")
            async with anyio.create_task_group() as several:
                for number in range(5):
                    several.start_soon(db.execute, "INSERT INTO t VALUES ($1)", number)
            assert await db.fetch_value("SELECT count(*) FROM t") == 5
            async with db.transaction():
                with pytest.raises(DatabaseError, match="would wait for itself"):
                    await db.execute("INSERT INTO t VALUES (6)")
            assert await db.fetch_value("SELECT count(*) FROM t") == 5

    anyio.run(main, backend=backend)


def test_both_postgres_drivers_take_several_statements_without_arguments(
    postgres_cell: Any,
) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE a (x int); CREATE TABLE b (x int)")
        assert await db.fetch("SELECT * FROM a, b") == []

    postgres_cell.run(main)


def test_a_long_statement_is_sent_whole(cell: Any) -> None:
    text = "x" * 5_000_000

    async def main(db: Database) -> None:
        sql = "SELECT length($1::text)" if cell.is_postgres else "SELECT length($1)"
        assert await db.fetch_value(sql, text) == len(text)
        assert len(await db.fetch_value(f"SELECT '{text}'")) == len(text)

    cell.run(main)
