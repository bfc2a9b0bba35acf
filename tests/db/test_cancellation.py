"""Cancelled anywhere, a connection is right or closed, and what is committed is what was finished."""

# ruff: noqa: B023 - what is defined in a loop is awaited in it
from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.database import Database
from inboxkit.errors import DatabaseError

RUNS = 60


async def _table(db: Database) -> None:
    await db.execute("CREATE TABLE t (x int PRIMARY KEY)")


async def _rows(db: Database) -> set[int]:
    return {row.x for row in await db.fetch("SELECT x FROM t")}


async def _cancelled_after(seconds: float, work: Callable[[], Awaitable[object]]) -> bool:
    with anyio.move_on_after(seconds) as scope:
        await work()
    return scope.cancelled_caught


async def _natively_cancelled_after(seconds: float, work: Callable[[], Awaitable[object]]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work()
    except TimeoutError:
        return True
    return False


def _ways(cell: Any) -> list[Any]:
    if cell.backend == "asyncio":
        return [_cancelled_after, _natively_cancelled_after]
    return [_cancelled_after]


def test_a_statement_in_flight_is_stopped_and_the_connection_goes_on(cell: Any) -> None:
    async def main(db: Database) -> None:
        for cancelled_after in _ways(cell):
            async with db.connection() as connection:
                assert await cancelled_after(0.05, lambda: connection.fetch(cell.slow))
                assert cell.clock.in_flight == []
                assert await connection.fetch_value("SELECT 7") == 7

    cell.run(main)


def test_a_statement_cancelled_in_a_transaction_aborts_it_on_postgres(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        for cancelled_after in _ways(cell):
            with pytest.raises(DatabaseError, match="abort") if cell.is_postgres else nullcontext():
                async with db.transaction() as tx:
                    await tx.execute("INSERT INTO t VALUES (1)")
                    assert await cancelled_after(0.05, lambda: tx.fetch(cell.slow))
            async with db.transaction() as tx:
                rows = set() if cell.is_postgres else {1}
                assert {row.x for row in await tx.fetch("SELECT x FROM t")} == rows
                await tx.execute("DELETE FROM t")

    cell.run(main, pool_size=1)


def test_a_cancelled_statement_ends_on_the_server(postgres_cell: Any) -> None:
    async def main(db: Database) -> None:
        for cancelled_after in _ways(postgres_cell):
            async with db.connection() as connection:
                pid = await connection.fetch_value("SELECT pg_backend_pid()")
                assert await cancelled_after(0.05, lambda: connection.fetch("SELECT pg_sleep(20)"))
                state = await db.fetch_value(
                    "SELECT state FROM pg_stat_activity WHERE pid = $1", pid
                )
                assert state == "idle"
                assert await connection.fetch_value("SELECT pg_backend_pid()") == pid

    postgres_cell.run(main)


def test_nothing_is_sent_in_a_cancelled_scope(cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.connection() as connection:
            cell.clock.labels.clear()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await connection.execute("INSERT INTO t VALUES (1)")
            assert cell.clock.labels == []
        assert await _rows(db) == set()

    cell.run(main)


def test_finished_blocks_are_the_committed_rows(cell: Any) -> None:
    """Cancelled at random moments: in BEGIN, statements, COMMIT, acquire and release."""
    choice = random.Random(1)
    finished: set[int] = set()

    async def main(db: Database) -> None:
        await _table(db)
        for way, cancelled_after in enumerate(_ways(cell)):

            async def block(x: int) -> None:
                async with db.transaction() as tx:
                    tx.after_commit(lambda: finished.add(x))
                    await tx.execute("INSERT INTO t VALUES ($1)", x)
                    async with tx.transaction() as nested:
                        await nested.fetch("SELECT 1")

            async def run(x: int) -> None:
                seconds = choice.random() * 0.006 if x % 7 else 10
                await cancelled_after(seconds, lambda: block(x))

            for round_ in range(RUNS // 3):
                async with anyio.create_task_group() as group:
                    for n in range(3):
                        group.start_soon(run, way * 100_000 + round_ * 3 + n)
        assert await _rows(db) == finished
        assert db._pool is not None
        assert db._pool.in_use == 0

    cell.run(main, pool_size=2)

    assert 0 < len(finished) < 2 * RUNS


def test_scripts_cancelled_at_random_are_whole_or_not_there(cell: Any) -> None:
    choice = random.Random(2)
    returned: set[int] = set()

    def two(x: int) -> Script[int]:
        def steps(reading: Reading) -> Generator[Statement, Answer, int]:
            for value in (2 * x, 2 * x + 1):
                yield Statement("insert", "INSERT INTO t VALUES ($1)", (value,), False)
            return x

        return Script("two", steps)

    async def main(db: Database) -> None:
        await _table(db)
        for way, cancelled_after in enumerate(_ways(cell)):

            async def run(x: int) -> None:
                returned.add(await db.run(two(x)))

            for n in range(RUNS):
                await cancelled_after(
                    choice.random() * 0.003 if n % 7 else 10, lambda: run(way * 100_000 + n)
                )
        rows = await _rows(db)
        assert {x // 2 for x in rows if x % 2} == {x // 2 for x in rows if not x % 2}
        assert returned <= {x // 2 for x in rows}
        assert await db.fetch_value("SELECT 1") == 1

    cell.run(main, pool_size=1)

    assert returned


def test_lone_statements_cancelled_at_random(cell: Any) -> None:
    choice = random.Random(3)
    returned: set[int] = set()

    async def main(db: Database) -> None:
        await _table(db)
        for way, cancelled_after in enumerate(_ways(cell)):

            async def run(x: int) -> None:
                row = await db.fetch_one("INSERT INTO t VALUES ($1) RETURNING x", x)
                assert row == (x,)
                returned.add(x)

            for n in range(RUNS):
                await cancelled_after(choice.random() * 0.002, lambda: run(way * 100_000 + n))
        assert returned <= await _rows(db)
        assert db._pool is not None
        assert db._pool.in_use == 0

    cell.run(main, pool_size=1)


def test_opening_and_closing_cancelled_at_random(cell: Any) -> None:
    choice = random.Random(4)

    async def main() -> None:
        for cancelled_after in _ways(cell):
            for _ in range(15):
                db = cell.database(pool_size=2)

                async def use() -> None:
                    async with db, db.connection(), db.connection() as second:
                        await second.fetch("SELECT 1")

                await cancelled_after(choice.random() * 0.02, use)
                assert cell.clock.in_flight == []
                await db.aclose()

    cell.start(main)


def test_a_wait_for_a_lock_of_another_process_is_cancelled(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        other = sqlite3.connect(sqlite_cell.url.partition("///")[2], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        async def begin() -> None:
            async with db.transaction():
                raise AssertionError

        def steps(reading: Reading) -> Generator[Statement, Answer, None]:
            yield Statement("select", "SELECT 1")

        for work in (
            begin,
            lambda: db.execute("INSERT INTO t VALUES (1)"),
            lambda: db.run(Script("script", steps)),
        ):
            for cancelled_after in _ways(sqlite_cell):
                started = anyio.current_time()
                assert await cancelled_after(0.03, work)
                assert anyio.current_time() - started < 1
        other.execute("COMMIT")
        other.close()
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (2)")
        assert await _rows(db) == {2}

    sqlite_cell.run(main, pool_size=1)


def test_a_row_lock_of_another_transaction_is_cancelled(server_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        await db.execute("INSERT INTO t VALUES (1)")
        async with db.transaction() as holder:
            await holder.execute("UPDATE t SET x = 2")
            for cancelled_after in _ways(server_cell):
                assert await cancelled_after(0.05, lambda: db.execute("UPDATE t SET x = 3"))
        assert await _rows(db) == {2}

    server_cell.run(main)


def test_after_commit_runs_although_cancelled_meanwhile(cell: Any) -> None:
    called: list[int] = []

    async def main(db: Database) -> None:
        await _table(db)
        with anyio.CancelScope() as scope:
            cell.clock.on_enter = lambda label: scope.cancel() if label == "commit" else None
            async with db.transaction() as tx:
                tx.after_commit(lambda: called.append(1))
                tx.after_commit(anyio.lowlevel.checkpoint)
                tx.after_commit(lambda: called.append(2))
                await tx.execute("INSERT INTO t VALUES (1)")
        assert scope.cancelled_caught
        assert await _rows(db) == {1}

    cell.run(main)

    assert called == [1, 2]
