"""A killed instance reaches its database no more, whatever its clean-up tries."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit_testing import (
    CrashedError,
    ObservedDatabase,
    StatementGate,
    VirtualClock,
    open_test_database,
    run,
)
from inboxkit_testing.backends import BackendName

from .conftest import CELLS, url_for

Cell = tuple[str, BackendName]


class Two:
    """Two instances over one database: one to be killed, one to see what is left."""

    def __init__(self, cell: Cell, *, gated: bool = False) -> None:
        self.url, self.backend = cell
        self.clock = VirtualClock(stall=2, gate=StatementGate() if gated else None)
        self.log: list[str] = []

    def database(self, instance: str) -> ObservedDatabase:
        return open_test_database(self.url, clock=self.clock, instance=instance)

    async def make(self) -> None:
        async with self.database("admin") as database:
            await database.execute("CREATE TABLE t (n integer primary key)")

    async def left(self) -> list[int]:
        async with self.database("observer") as database:
            return [row[0] for row in await database.fetch("SELECT n FROM t ORDER BY n")]


# The gate stands before the driver, so that it is enough to see it before one of each kind.
PLACES = [
    pytest.param((cell, gated), id=f"{'-'.join(cell)}-{'gated' if gated else 'free'}")
    for cell in CELLS
    for gated in (False, True)
    if not gated or cell[0] in {"inloop", "psycopg"}
]


@pytest.fixture(params=PLACES)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Two:
    (driver, backend), gated = request.param
    return Two((url_for(driver, request, tmp_path), backend), gated=gated)


def test_clean_up_cannot_write(two: Two) -> None:
    async def main() -> list[int]:
        await two.make()
        async with anyio.create_task_group() as instance:
            database = two.database("killed")
            await instance.start(serve, database)
            await two.clock.sleep(1)
            await database.crash()
            instance.cancel_scope.cancel()
        assert two.clock.monotonic() == 1.0
        return await two.left()

    async def serve(database: ObservedDatabase, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with database:
            await database.execute("INSERT INTO t VALUES (1)")
            task_status.started()
            try:
                await two.clock.sleep(100)
            except BaseException:  # noqa: BLE001
                two.log.append("except BaseException")
                try:
                    await database.execute("INSERT INTO t VALUES (2)")
                finally:
                    two.log.append("finally")
                    async with database.transaction() as tx:
                        await tx.execute("INSERT INTO t VALUES (3)")
                two.log.append("went on")

    assert run(main, backend=two.backend, clock=two.clock) == [1]
    assert two.log == ["except BaseException", "finally"]


def test_an_open_transaction_is_undone_and_its_locks_are_free(two: Two) -> None:
    async def main() -> list[int]:
        await two.make()
        database = two.database("killed")
        is_open = anyio.Event()
        async with anyio.create_task_group() as instance:

            async def serve() -> None:
                async with database, database.transaction() as tx:
                    await tx.execute("INSERT INTO t VALUES (1)")
                    is_open.set()
                    await anyio.Event().wait()

            instance.start_soon(serve)
            await is_open.wait()
            await database.crash()
            instance.cancel_scope.cancel()
        assert database.is_crashed
        async with two.database("other") as other:
            await other.execute("INSERT INTO t VALUES (1)")  # would wait for a lock
        return await two.left()

    assert run(main, backend=two.backend, clock=two.clock) == [1]
    assert two.clock.monotonic() == 0.0


def test_a_statement_of_a_dead_instance_never_returns(two: Two) -> None:
    async def main() -> list[int]:
        await two.make()
        async with anyio.create_task_group() as instance, two.database("killed") as database:

            async def late() -> None:
                try:
                    await database.execute("INSERT INTO t VALUES (5)")
                    two.log.append("returned")
                except Exception:  # noqa: BLE001
                    two.log.append("raised")

            database.crash_nowait()
            instance.start_soon(late)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            instance.cancel_scope.cancel()
        return await two.left()

    assert run(main, backend=two.backend, clock=two.clock) == []
    assert two.log == []


def test_a_shielded_or_forgotten_statement_raises_when_nothing_else_can_happen(two: Two) -> None:
    async def main() -> list[int]:
        await two.make()
        async with two.database("killed") as database:
            database.crash_nowait()
            with pytest.raises(CrashedError):
                await database.execute("INSERT INTO t VALUES (5)")
            with anyio.CancelScope() as scope:
                scope.cancel()
                with anyio.CancelScope(shield=True), pytest.raises(CrashedError):
                    await database.fetch("SELECT 1")
        return await two.left()

    assert run(main, backend=two.backend, clock=two.clock) == []
    assert two.clock.monotonic() == 0.0


def script(*numbers: int) -> Script[None]:
    def steps(reading: Reading) -> Steps[None]:
        for n in numbers:
            yield Statement(f"insert {n}", "INSERT INTO t VALUES ($1)", (n,), returns_rows=False)

    return Script("settle", steps)


@pytest.mark.parametrize(
    ("matching", "when", "left"),
    [
        ("settle", "before", []),
        ("insert 1", "before", []),
        ("insert 2", "before", []),
        ("insert 2", "after", []),
        ("commit", "before", []),
        ("commit", "after", [1, 2]),
        ("settle", "after", [1, 2]),
    ],
)
def test_crashes_at_chosen_statements(two: Two, matching: str, when: str, left: list[int]) -> None:
    async def main() -> list[int]:
        await two.make()
        database = two.database("killed")

        async def serve() -> None:
            async with database:
                if when == "before":
                    database.faults.crash(matching, when="before")
                else:
                    database.faults.crash(matching, when="after")
                try:
                    await database.run(script(1, 2))
                    two.log.append("returned")
                except Exception:  # noqa: BLE001
                    two.log.append("raised")
                finally:
                    await database.run(script(7))

        async with anyio.create_task_group() as instance:
            instance.start_soon(serve)
            # The observer settles before the dead may fail: it sees the crash, then cancels them.
            await two.clock.settle()
            assert database.is_crashed
            await database.crash()
            instance.cancel_scope.cancel()
        return await two.left()

    assert run(main, backend=two.backend, clock=two.clock) == left
    assert two.log == []


def test_the_nth_of_a_kind(two: Two) -> None:
    async def main() -> list[int]:
        await two.make()
        async with two.database("killed") as database:
            database.faults.crash("settle", nth=3)
            await database.run(script(0))
            await database.run(script(1))
            with pytest.raises(CrashedError):
                await database.run(script(2))
            await database.crash()
        return await two.left()

    assert run(main, backend=two.backend, clock=two.clock) == [0, 1]


def test_a_crash_while_statements_are_in_flight_leaves_no_bracket_open(cell: Cell) -> None:
    two = Two(cell)
    slow = (
        "SELECT pg_sleep(0.2)"
        if two.url.startswith("postgres")
        else "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000) "
        "SELECT count(*) FROM c"
    )

    async def main() -> None:
        await two.make()
        database = two.database("killed")
        async with anyio.create_task_group() as instance:

            async def ask() -> None:
                await database.fetch(slow)
                two.log.append("returned")

            await database.open()
            for _ in range(3):
                instance.start_soon(ask)
            while not database.recording.statements("fetch"):
                await anyio.lowlevel.checkpoint()
            await database.crash()
            instance.cancel_scope.cancel()
        await database.aclose()
        assert not two.clock.keeper.is_busy()
        await two.clock.sleep(1)

    run(main, backend=two.backend, clock=two.clock)
    assert two.clock.monotonic() == 1.0
