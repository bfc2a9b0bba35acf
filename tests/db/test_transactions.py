# ruff: noqa: PT012 - what raises is the end of a block
from collections.abc import Generator
from typing import Any

import anyio
import pytest

from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.database import Database
from inboxkit.errors import ClosedError, ConstraintError, DatabaseError


async def _table(db: Database) -> None:
    await db.execute("CREATE TABLE t (x int PRIMARY KEY)")


async def _rows(db: Database) -> list[int]:
    return [row.x for row in await db.fetch("SELECT x FROM t ORDER BY x")]


def test_commit_and_rollback(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            assert await tx.execute("INSERT INTO t VALUES ($1)", 1) == 1
        with pytest.raises(KeyError):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES ($1)", 2)
                raise KeyError
        async with db.connection() as connection, connection.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (3)")
        assert await _rows(db) == [1, 3]

    cell.run(main)


def test_a_transaction_is_over_after_its_block(cell: Any) -> None:
    async def main(db: Database) -> None:
        async with db.transaction() as tx:
            async with tx.transaction() as nested:
                pass
            with pytest.raises(ClosedError, match="this transaction is over"):
                await nested.fetch("SELECT 1")
        for use in (tx.fetch("SELECT 1"), tx.execute("SELECT 1")):
            with pytest.raises(ClosedError, match="this transaction is over"):
                await use
        with pytest.raises(ClosedError):
            tx.after_commit(print)

    cell.run(main)


def test_nested_transactions_roll_back_alone(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(ConstraintError):
                async with tx.transaction() as nested:
                    await nested.execute("INSERT INTO t VALUES (2)")
                    await nested.execute("INSERT INTO t VALUES (1)")
            async with tx.transaction() as nested:
                await nested.execute("INSERT INTO t VALUES (3)")
                with pytest.raises(KeyError):
                    async with nested.transaction() as deeper:
                        await deeper.execute("INSERT INTO t VALUES (4)")
                        raise KeyError
            await tx.execute("INSERT INTO t VALUES (5)")
        assert await _rows(db) == [1, 3, 5]

    cell.run(main)


def test_after_commit(cell: Any, caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []

    async def main(db: Database) -> None:
        await _table(db)

        async def asynchronous() -> None:
            # the pool's only connection is free again
            called.append(f"{await _rows(db)}")

        def broken() -> None:
            called.append("broken")
            raise ValueError("mine")

        async with db.transaction() as tx:
            tx.after_commit(lambda: called.append("first"))
            tx.after_commit(broken)
            with pytest.raises(KeyError):
                async with tx.transaction() as nested:
                    nested.after_commit(lambda: called.append("never"))
                    raise KeyError
            async with tx.transaction() as nested:
                nested.after_commit(lambda: called.append("nested"))
                await nested.execute("INSERT INTO t VALUES (1)")
            tx.after_commit(asynchronous)
            assert called == []
        assert called == ["first", "broken", "nested", "[1]"]
        with pytest.raises(KeyError):
            async with db.transaction() as tx:
                tx.after_commit(lambda: called.append("never"))
                raise KeyError
        async with db.connection() as connection, connection.transaction() as tx:
            tx.after_commit(lambda: called.append("last"))

    cell.run(main, pool_size=1)

    assert called == ["first", "broken", "nested", "[1]", "last"]
    assert [record.message for record in caplog.records if record.name == "inboxkit"] == [
        "a function given to after_commit raised; the commit stands"
    ]


def test_an_aborted_transaction_is_not_believed_committed(postgres_cell: Any) -> None:
    called: list[str] = []

    async def main(db: Database) -> None:
        await _table(db)
        with pytest.raises(DatabaseError, match="already aborted by an earlier error; nothing was"):
            async with db.transaction() as tx:
                tx.after_commit(lambda: called.append("never"))
                await tx.execute("INSERT INTO t VALUES (1)")
                with pytest.raises(ConstraintError):
                    await tx.execute("INSERT INTO t VALUES (1)")
        assert await _rows(db) == []
        assert called == []

    postgres_cell.run(main)


def test_sqlite_goes_on_after_an_error_in_a_transaction(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(ConstraintError):
                await tx.execute("INSERT INTO t VALUES (1)")
        assert await _rows(db) == [1]

    sqlite_cell.run(main)


def test_what_sqlite_rolled_back_by_itself_does_not_go_on_outside(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        with pytest.raises(DatabaseError, match="already aborted"):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (1)")
                with pytest.raises(ConstraintError):
                    await tx.execute("INSERT OR ROLLBACK INTO t VALUES (1)")
                with pytest.raises(DatabaseError, match="already rolled back"):
                    await tx.execute("INSERT INTO t VALUES (2)")
        assert await _rows(db) == []

    sqlite_cell.run(main)


def test_a_deferred_constraint_that_fails_the_commit(cell: Any) -> None:
    if cell.is_mysql:
        pytest.skip("MariaDB and MySQL check constraints at once")
    deferred = "REFERENCES p DEFERRABLE INITIALLY DEFERRED"

    async def main(db: Database) -> None:
        if not cell.is_postgres:
            await db.execute("PRAGMA foreign_keys = on")
        await db.execute("CREATE TABLE p (x int PRIMARY KEY)")
        await db.execute(f"CREATE TABLE c (x int {deferred})")
        with pytest.raises(ConstraintError):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO c VALUES (1)")
        assert await db.fetch_value("SELECT count(*) FROM c") == 0
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO p VALUES (1)")

    cell.run(main, pool_size=1)


def test_transactions_by_hand_do_not_get_back_into_the_pool(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.connection() as connection:
            await connection.execute("BEGIN")
            await connection.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(DatabaseError, match="open on this connection already"):
                async with connection.transaction():
                    pass
        assert await _rows(db) == []

    cell.run(main, pool_size=1)


def _insert(x: int) -> Statement:
    return Statement("insert", "INSERT INTO t VALUES ($1) RETURNING x", (x,))


def test_scripts_commit_or_roll_back(cell: Any) -> None:
    readings: list[Reading] = []

    def add(reading: Reading) -> Generator[Statement, Answer, int]:
        readings.append(reading)
        first = yield _insert(1)
        second = yield _insert(first.rows[0][0] + 1)
        assert (second.columns, second.rowcount) == (("x",), 1)
        return int(second.rows[0][0])

    def fail(reading: Reading) -> Generator[Statement, Answer, None]:
        yield _insert(3)
        raise KeyError

    def collide(reading: Reading) -> Generator[Statement, Answer, None]:
        yield _insert(4)
        yield _insert(1)

    def alone(reading: Reading) -> Generator[Statement, Answer, int]:
        answer = yield _insert(9)
        return answer.rowcount

    def read(reading: Reading) -> Generator[Statement, Answer, list[Any]]:
        answer = yield Statement("read", "SELECT x FROM t ORDER BY x")
        return [*answer.rows]

    async def main(db: Database) -> None:
        await _table(db)
        before = db.clock.now()
        assert await db.run(Script("add", add)) == 2
        assert before <= readings[0].now <= db.clock.now()
        with pytest.raises(KeyError):
            await db.run(Script("fail", fail))
        with pytest.raises(ConstraintError) as caught:
            await db.run(Script("collide", collide))
        assert caught.value.statement == "insert"
        assert await db.run(Script("alone", alone, "none")) == 1
        assert await db.run(Script("read", read, "read")) == [(1,), (2,), (9,)]

    cell.run(main, pool_size=1)


def test_a_script_inside_a_transaction_is_part_of_it(cell: Any) -> None:
    def add(reading: Reading) -> Generator[Statement, Answer, None]:
        yield _insert(1)
        yield _insert(2)

    async def main(db: Database) -> None:
        await _table(db)
        with pytest.raises(KeyError):
            async with db.transaction() as tx:
                await tx.run(Script("add", add))
                raise KeyError
        assert await _rows(db) == []
        async with db.transaction() as tx:
            await tx.run(Script("add", add, "none"))
        assert await _rows(db) == [1, 2]

    cell.run(main)


def test_a_script_is_told_of_an_error_and_may_go_on(sqlite_cell: Any) -> None:
    def careful(reading: Reading) -> Generator[Statement, Answer, str]:
        yield _insert(1)
        try:
            yield _insert(1)
        except ConstraintError:
            yield _insert(2)
        return "done"

    async def main(db: Database) -> None:
        await _table(db)
        assert await db.run(Script("careful", careful)) == "done"
        assert await _rows(db) == [1, 2]

    sqlite_cell.run(main)


def test_a_script_of_sqlite_is_one_hop(sqlite_cell: Any) -> None:
    def three(reading: Reading) -> Generator[Statement, Answer, None]:
        for x in range(3):
            yield _insert(x)

    async def main(db: Database) -> None:
        await _table(db)
        sqlite_cell.clock.labels.clear()
        await db.run(Script("three", three))
        assert sqlite_cell.clock.labels == ["three"]

    sqlite_cell.run(main, pool_size=1)


def test_a_script_of_postgres_is_read_committed(postgres_cell: Any) -> None:
    def isolation(reading: Reading) -> Generator[Statement, Answer, str]:
        answer = yield Statement("isolation", "SHOW transaction_isolation")
        return str(answer.rows[0][0])

    async def main(db: Database) -> None:
        await db.execute("SET default_transaction_isolation = 'serializable'")
        assert await db.run(Script("isolation", isolation)) == "read committed"
        assert await db.run(Script("isolation", isolation, "read")) == "read committed"
        async with db.transaction() as tx:
            assert await tx.fetch_value("SHOW transaction_isolation") == "serializable"

    postgres_cell.run(main, pool_size=1)


def test_transactions_side_by_side(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)

        async def add(x: int) -> None:
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES ($1)", x)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as many:
            for x in range(30):
                many.start_soon(add, x)
        assert await _rows(db) == [*range(30)]

    cell.run(main, pool_size=5)
