"""A statement that waits for a lock of an idle transaction holds up neither the gate nor the time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import psycopg
import pymysql
import pytest

from inboxkit._db.mysql_url import read_target
from inboxkit._sql.statement import Statement
from inboxkit_testing import (
    ClockStalledError,
    ObservedDatabase,
    SleepInTransactionError,
    StatementGate,
    VirtualClock,
    open_test_database,
    run,
)
from inboxkit_testing.backends import BackendName

from .conftest import url_for


@pytest.fixture(params=["postgres", "mariadb", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return url_for("psycopg", request, tmp_path)
    return f"mysql+pymysql://{request.getfixturevalue(f'emptied_{request.param}')}"


async def make(url: str, clock: VirtualClock) -> None:
    async with open_test_database(url, clock=clock) as database:
        await database.execute("DROP TABLE IF EXISTS t")
        await database.execute("CREATE TABLE t (n integer)")
        await database.execute("INSERT INTO t VALUES (0)")


@pytest.mark.parametrize("choices", [[], [1, 0] * 20, [0, 1, 1] * 20])
def test_row_locks_under_the_gate(url: str, choices: Sequence[int]) -> None:
    def turns(backend: BackendName) -> list[str]:
        clock = VirtualClock(stall=3, gate=StatementGate(choices))

        async def add(instance: str) -> None:
            async with (
                open_test_database(url, clock=clock, instance=instance) as database,
                database.transaction() as reading,  # has no locks, and so is in nobody's way
            ):
                await reading.fetch("SELECT n FROM t")
                for _ in range(2):
                    async with database.transaction() as tx:
                        await tx.execute("UPDATE t SET n = n + 1")
                        await tx.fetch("SELECT n FROM t")

        async def main() -> list[str]:
            await make(url, clock)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(add, "a")
                tasks.start_soon(add, "b")
            async with open_test_database(url, clock=clock) as database:
                assert await database.fetch_value("SELECT n FROM t") == 4
            assert clock.gate is not None
            return clock.gate.turns

        return run(main, backend=backend, clock=clock)

    assert len({repr(turns(backend)) for backend in ("asyncio", "trio") for _ in range(2)}) == 1


def test_a_sleep_in_a_transaction_is_found_although_a_rival_waits(
    url: str, backend: BackendName
) -> None:
    clock = VirtualClock(stall=3)

    async def main() -> None:
        await make(url, clock)
        async with open_test_database(url, clock=clock) as database:

            async def rival(database: ObservedDatabase) -> None:
                await database.execute("UPDATE t SET n = 7")

            async with anyio.create_task_group() as tasks, database.transaction() as tx:
                await tx.execute("UPDATE t SET n = 1")
                tasks.start_soon(rival, database)
                await anyio.sleep(5)

    with pytest.raises(SleepInTransactionError):
        run(main, backend=backend, clock=clock)


def test_time_passes_for_who_waits_however_often_others_only_sleep(
    url: str, backend: BackendName
) -> None:
    """Who wakes and sleeps again sends nothing: time that has moved is progress enough."""
    clock = VirtualClock(stall=1)

    async def main() -> int:
        await make(url, clock)
        async with open_test_database(url, clock=clock) as database:
            assert database._pool is not None
            async with (
                anyio.create_task_group() as tasks,
                database._pool.connection() as holder,
            ):
                await holder.begin(hold=True)
                await holder.execute(Statement("hold", "UPDATE t SET n = 1", (), False))
                tasks.start_soon(database.execute, "UPDATE t SET n = n + 1")
                for _ in range(12):
                    await clock.sleep(1)
                await holder.commit()
            return int(await database.fetch_value("SELECT n FROM t"))

    assert run(main, backend=backend, clock=clock) == 2


def test_time_passes_for_who_waits_for_a_hold_and_the_wait_can_end(
    url: str, backend: BackendName
) -> None:
    clock = VirtualClock(stall=3)

    async def main() -> None:
        await make(url, clock)
        async with open_test_database(url, clock=clock) as database:
            assert database._pool is not None
            async with database._pool.connection() as holder:
                await holder.begin(hold=True)
                await holder.execute(Statement("hold", "UPDATE t SET n = 1", (), False))
                with anyio.move_on_after(5) as scope:
                    await database.execute("UPDATE t SET n = 2")
                assert (scope.cancelled_caught, clock.monotonic()) == (True, 5)
                await holder.commit()
            assert await database.fetch("SELECT n FROM t") == [(1,)]

    run(main, backend=backend, clock=clock)


def test_a_lock_of_somebody_else_is_a_stall_that_names_him(
    url: str, backend: BackendName, request: pytest.FixtureRequest
) -> None:
    clock = VirtualClock(stall=0.05)
    numbers = []

    async def main() -> None:
        await make(url, clock)
        with foreign_session(url) as (foreign, number):
            numbers.append(number)
            foreign("UPDATE t SET n = 9")
            try:
                async with open_test_database(url, clock=clock) as database:
                    await database.execute("UPDATE t SET n = 7")
            finally:
                foreign("ROLLBACK")

    with pytest.raises(ClockStalledError) as caught:
        run(main, backend=backend, clock=clock)
    found = re.search(
        r"'execute' waits for a lock of somebody else, (?:pid|session) ([0-9]+) \(\w+, (.+)\): (\S.*?)\. A",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    assert [int(found[1])] == numbers
    assert found[2] in ("idle in transaction", "Sleep")
    # MariaDB keeps no account of what an idle session ran last.
    is_mariadb = request.node.callspec.params["url"] == "mariadb"
    assert found[3] == ("'(not known)'" if is_mariadb else "'UPDATE t SET n = 9'")


@contextmanager
def foreign_session(url: str) -> Iterator[tuple[Callable[[str], object], int]]:
    """What executes in a session that is not the kit's, and the server's number of it."""
    if url.startswith("postgresql"):
        with psycopg.connect(url.replace("+psycopg", "")) as session:
            yield session.execute, session.info.backend_pid
        return
    target = read_target(url.replace("+pymysql", ""))
    with pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=target.database,
        ssl_disabled=True,
    ) as other:
        yield other.cursor().execute, other.thread_id()
