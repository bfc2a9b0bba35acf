"""What the kit sees of a database, and what it can make go wrong, with every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit.errors import (
    ConstraintError,
    DatabaseBusyError,
    DatabaseError,
    OutcomeUnknownError,
)
from inboxkit_testing import (
    ObservedDatabase,
    SleepInTransactionError,
    StatementGate,
    VirtualClock,
    open_test_database,
    run,
)
from inboxkit_testing.backends import BackendName
from inboxkit_testing.faults import Operation

Cell = tuple[str, BackendName]
Main = Callable[[ObservedDatabase], Awaitable[object]]


def with_table(cell: Cell, main: Main, *, clock: VirtualClock | None = None) -> VirtualClock:
    """Run a main on a database with an empty table ``t (n)``, whose making is not recorded."""
    url, backend = cell
    clock = clock or VirtualClock()

    async def opened() -> None:
        async with open_test_database(url, clock=clock) as database:
            await database.execute("CREATE TABLE t (n integer primary key)")
            database.recording.clear()
            await main(database)

    run(opened, backend=backend, clock=clock)
    return clock


def insert(*numbers: int) -> Script[int]:
    def steps(reading: Reading) -> Steps[int]:
        written = 0
        for number in numbers:
            answer = yield Statement(
                f"insert {number}", "INSERT INTO t VALUES ($1)", (number,), returns_rows=False
            )
            written += answer.rowcount
        return written

    return Script("insert", steps)


async def numbers_in(database: ObservedDatabase) -> list[int]:
    return [row[0] for row in await database.fetch("SELECT n FROM t ORDER BY n")]


def test_every_statement_is_recorded_in_order(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        await database.execute("INSERT INTO t VALUES ($1)", 1)
        await database.clock.sleep(5)
        assert await database.run(insert(2, 3)) == 2
        async with database.transaction() as tx:
            assert await tx.fetch_value("SELECT count(*) FROM t") == 3
        sent = [(each.kind, each.name, each.parameters) for each in database.recording]
        assert sent == [
            ("statement", "execute", (1,)),
            ("begin", "begin", ()),
            ("statement", "insert 2", (2,)),
            ("statement", "insert 3", (3,)),
            ("commit", "commit", ()),
            ("begin", "begin", ()),
            ("statement", "fetch", ()),
            ("commit", "commit", ()),
        ]
        first, *_, last = database.recording
        assert first.rowcount == 1
        assert last.at - first.at == timedelta(seconds=5)
        assert all(each.answered_at == each.at for each in database.recording)
        numbers = [each.number for each in database.recording]
        assert numbers == list(range(first.number, first.number + 8))

    with_table(cell, main)


def test_transactions_are_counted_by_name(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        await database.run(insert(1, 2))
        await database.run(insert(3))
        await database.execute("DELETE FROM t")
        with suppress(ZeroDivisionError):
            async with database.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (9)")
                raise ZeroDivisionError
        recording = database.recording
        assert [len(each.statements) for each in recording.transactions("insert")] == [2, 1]
        outcomes = [(each.name, each.outcome) for each in recording.transactions()]
        assert outcomes == [
            ("insert", "committed"),
            ("insert", "committed"),
            ("execute", "committed"),
            ("begin", "rolled back"),
        ]
        assert len(recording.statements("insert")) == 3
        assert len(recording.statements("insert 2")) == 1

    with_table(cell, main)


def test_an_error_is_recorded_and_undoes_the_script(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        with pytest.raises(ConstraintError):
            await database.run(insert(1, 1))
        [transaction] = database.recording.transactions("insert")
        assert transaction.outcome == "rolled back"
        assert isinstance(transaction.statements[1].error, ConstraintError)
        assert await numbers_in(database) == []

    with_table(cell, main)


def test_a_script_may_catch_what_was_refused(cell: Cell) -> None:
    def steps(reading: Reading) -> Steps[str]:
        try:
            yield Statement("probe", "SELECT 1")
        except DatabaseBusyError:
            yield Statement("other", "SELECT 2")
            return "caught"
        return "not refused"

    async def main(database: ObservedDatabase) -> None:
        script = Script("careful", steps)
        fault = database.faults.refuse("probe")
        assert await database.run(script) == "caught"
        assert await database.run(script) == "not refused"
        assert fault.hits == 1
        assert len(database.recording.statements("probe")) == 1  # the other was not sent

    with_table(cell, main)


def test_refusals_by_name_by_function_and_with_an_error_of_the_tests_own(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        database.faults.refuse("insert", times=2)
        for _ in range(2):
            with pytest.raises(DatabaseBusyError, match="refused"):
                await database.run(insert(1))
        assert await database.run(insert(1)) == 1

        def deletes(operation: Operation) -> bool:
            return "DELETE" in operation.text

        database.faults.refuse(deletes, error=lambda operation: DatabaseError(operation.name))
        with pytest.raises(DatabaseError, match="execute"):
            await database.execute("DELETE FROM t")
        assert await numbers_in(database) == [1]

    with_table(cell, main)


def test_a_lost_reply_of_a_commit_leaves_the_work(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        database.faults.lose_reply("insert")
        with pytest.raises(OutcomeUnknownError):
            await database.run(insert(1))
        database.faults.lose_reply("execute")
        with pytest.raises(OutcomeUnknownError):
            await database.execute("INSERT INTO t VALUES (2)")
        database.faults.lose_reply("commit")
        with pytest.raises(OutcomeUnknownError):
            async with database.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (3)")
        assert await numbers_in(database) == [1, 2, 3]

    with_table(cell, main)


def test_a_lost_reply_inside_a_transaction_undoes_it(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        database.faults.lose_reply("execute")
        with pytest.raises(DatabaseBusyError):
            async with database.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (3)")
        assert await numbers_in(database) == []

    with_table(cell, main)


def test_a_delayed_statement_is_not_in_flight(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        database.faults.delay("insert", 15)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.run, insert(1))
            await database.clock.sleep(14)
            assert await numbers_in(database) == []
            await database.clock.sleep(2)
            assert await numbers_in(database) == [1]
        database.faults.delay("fetch", 10)
        async with database.transaction() as tx:  # the test delays it, not the program
            await tx.fetch("SELECT 1")

    assert with_table(cell, main).monotonic() == 26.0


def test_a_sleep_in_a_transaction_ends_the_run(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        async with database.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
            await anyio.sleep(1)

    with pytest.raises(SleepInTransactionError, match=r"test_databases\.py"):
        with_table(cell, main)


def test_time_may_pass_after_a_transaction_however_it_ended(cell: Cell) -> None:
    async def main(database: ObservedDatabase) -> None:
        for error in (None, ZeroDivisionError):
            with suppress(ZeroDivisionError):
                async with database.transaction() as tx:
                    await tx.execute("DELETE FROM t")
                    if error:
                        raise error
            await database.clock.sleep(1)
        with anyio.CancelScope() as scope:
            async with database.transaction() as tx:
                scope.cancel()
                await tx.execute("DELETE FROM t")
        await database.clock.sleep(1)
        database.faults.lose_reply("commit")
        with pytest.raises(OutcomeUnknownError):
            async with database.transaction():
                pass
        await database.clock.sleep(1)

    assert with_table(cell, main).monotonic() == 4.0
    assert with_table_gated(cell, main).monotonic() == 4.0


def with_table_gated(cell: Cell, main: Main) -> VirtualClock:
    async def gated(database: ObservedDatabase) -> None:
        await main(database)

    url, backend = cell
    clock = VirtualClock(gate=StatementGate([3, 1, 2] * 10))

    async def opened() -> None:
        async with open_test_database(url, clock=clock) as database:
            await database.execute("DROP TABLE t")
            await database.execute("CREATE TABLE t (n integer primary key)")
            await gated(database)

    run(opened, backend=backend, clock=clock)
    return clock


def test_writers_of_several_instances_take_turns(cell: Cell) -> None:
    url, backend = cell
    clock = VirtualClock()

    async def main() -> int:
        async with (
            open_test_database(url, clock=clock, instance="a") as a,
            open_test_database(url, clock=clock.at("b", timedelta(hours=1)), instance="b") as b,
        ):
            await a.execute("CREATE TABLE t (n integer primary key)")

            async def work(database: ObservedDatabase, first: int) -> None:
                for n in range(first, first + 10):
                    async with database.transaction() as tx:
                        await tx.execute("INSERT INTO t VALUES ($1)", n)
                        await tx.fetch("SELECT * FROM t")

            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(work, a, number * 10)
                    tasks.start_soon(work, b, 100 + number * 10)
            ahead = [each.at for each in b.recording][-1] - [each.at for each in a.recording][-1]
            assert ahead == timedelta(hours=1)
            return len(await numbers_in(a))

    assert run(main, backend=backend, clock=clock) == 60
    assert clock.monotonic() == 0.0


def test_a_database_serves_one_run_after_another(backend: BackendName, tmp_path: Path) -> None:
    clock = VirtualClock()
    database = open_test_database(f"sqlite+thread:///{tmp_path}/kit.db", clock=clock)

    async def main() -> int:
        async with database:
            await database.execute("CREATE TABLE IF NOT EXISTS t (n integer)")
            await database.execute("INSERT INTO t VALUES (1)")
            return int(await database.fetch_value("SELECT count(*) FROM t"))

    assert [run(main, backend=backend, clock=clock) for _ in range(3)] == [1, 2, 3]


def test_in_memory_and_in_the_loop(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> str:
        async with open_test_database("sqlite-inloop", clock=clock) as database:
            await database.execute("CREATE TABLE t (n integer)")
            assert database.pool_size == 1
            return database.driver_name

    assert run(main, backend=backend, clock=clock) == "inloop"


def test_in_the_loop_a_statement_that_was_done_is_answered_although_it_is_cancelled(
    backend: BackendName,
) -> None:
    clock = VirtualClock()

    async def main() -> list[object]:
        seen: list[object] = []
        async with open_test_database("sqlite-inloop", clock=clock) as database:
            await database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
            async with database.connection() as connection, anyio.create_task_group() as tasks:
                with anyio.CancelScope() as scope:
                    tasks.start_soon(_cancel, scope)
                    seen.append(await connection.execute("INSERT INTO t DEFAULT VALUES"))
                    await anyio.lowlevel.checkpoint()
                    seen.append("not cancelled")
                seen.append(scope.cancelled_caught)
            seen.append(await database.fetch_value("SELECT count(*) FROM t"))
        return seen

    assert run(main, backend=backend, clock=clock) == [1, True, 1]


def test_in_the_loop_a_cancellation_of_asyncios_own_is_not_lost() -> None:
    clock = VirtualClock()

    async def main() -> int:
        async with open_test_database("sqlite-inloop", clock=clock) as database:
            await database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await database.execute("INSERT INTO t DEFAULT VALUES")
            task.uncancel()
            count: int = await database.fetch_value("SELECT count(*) FROM t")
            return count

    assert run(main, backend="asyncio", clock=clock) == 1


async def _cancel(scope: anyio.CancelScope) -> None:
    scope.cancel()
