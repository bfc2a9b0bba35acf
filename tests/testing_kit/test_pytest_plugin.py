"""The plugin's fixtures, as any test suite uses them: this file is such a suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.abc
import pytest
import sniffio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inboxkit.clock import SystemClock
from inboxkit.database import Database
from inboxkit_testing import VirtualClock, run
from inboxkit_testing.databases import ObservedDatabase
from inboxkit_testing.servers import PostgresServer

YEAR = timedelta(days=365)


async def test_time_jumps(virtual_clock: VirtualClock) -> None:
    start = virtual_clock.now()
    await anyio.sleep(YEAR.total_seconds())
    assert virtual_clock.now() - start == YEAR


async def test_frozen_time_moves_by_advance_alone(frozen_clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 10)
        await frozen_clock.settle()
        assert frozen_clock.monotonic() == 0
        await frozen_clock.advance(timedelta(seconds=10))
    assert frozen_clock.monotonic() == 10


async def test_the_loop_is_the_one_that_the_id_names(inbox_backend: str) -> None:
    assert sniffio.current_async_library() == inbox_backend
    await anyio.sleep(YEAR.total_seconds())


@pytest.mark.inbox
async def test_the_marker_is_enough() -> None:
    with anyio.move_on_after(YEAR.total_seconds()) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.fixture
async def table(inbox_database: Database) -> str:
    await inbox_database.execute("CREATE TABLE things (id INTEGER)")
    return "things"


async def test_the_database_is_fresh_open_and_in_the_tests_time(
    inbox_database: Database, virtual_clock: VirtualClock, table: str, inbox_db: str
) -> None:
    assert inbox_database.clock is virtual_clock
    assert inbox_database.dialect == inbox_db.replace("mariadb", "mysql")
    with anyio.fail_after(1):  # no virtual time passes while the database works
        for number in range(20):
            await inbox_database.execute(f"INSERT INTO {table} VALUES ($1)", number)
    assert await inbox_database.fetch_value(f"SELECT count(*) FROM {table}") == 20
    assert virtual_clock.monotonic() == 0


async def test_a_database_without_a_clock_is_in_real_time(
    inbox_database: Database, table: str
) -> None:
    assert isinstance(inbox_database.clock, SystemClock)
    await inbox_database.execute(f"INSERT INTO {table} VALUES ($1)", 1)


@pytest.mark.inbox(seed=3)
async def test_the_marker_makes_a_databases_time_virtual(inbox_database: Database) -> None:
    assert isinstance(inbox_database.clock, VirtualClock)
    await inbox_database.clock.sleep(YEAR.total_seconds())


async def test_without_a_seed_nothing_is_gated(virtual_clock: VirtualClock) -> None:
    assert virtual_clock.gate is None


@pytest.mark.inbox(seed=3)
async def test_the_markers_seed_gates_the_statements(
    virtual_clock: VirtualClock, inbox_database: Database
) -> None:
    assert isinstance(inbox_database, ObservedDatabase)
    assert virtual_clock.gate is not None


@pytest.mark.parametrize("inbox_db", ["sqlite-inloop"])
async def test_sqlite_may_run_in_the_loops_thread(
    virtual_clock: VirtualClock, inbox_database: Database, table: str
) -> None:
    assert inbox_database.driver_name == "inloop"
    await inbox_database.execute(f"INSERT INTO {table} VALUES ($1)", 1)


def test_the_server_makes_databases_for_other_tests(inbox_postgres: PostgresServer) -> None:
    with inbox_postgres.database() as one, inbox_postgres.database() as two:
        assert one != two


def test_a_sync_test_opens_the_database_itself(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_backend: str
) -> None:
    async def main() -> object:
        async with inbox_database:
            return await inbox_database.fetch_value("SELECT 1")

    assert not inbox_database.is_open
    assert run(main, clock=virtual_clock, backend=inbox_backend) == 1  # type: ignore[arg-type]


@settings(max_examples=5)
@given(number=st.integers())
async def test_each_example_has_a_run_of_its_own(
    number: int, inbox_database: Database, table: str, virtual_clock: VirtualClock
) -> None:
    assert virtual_clock.monotonic() == 0
    await inbox_database.execute(f"INSERT INTO {table} VALUES ($1)", number % 100)
    assert await inbox_database.fetch_value(f"SELECT count(*) FROM {table}") == 1
    await anyio.sleep(1)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("most", [3, 4])
async def test_examples_draw_inside_the_loop_and_share_a_path(
    data: st.DataObject, most: int, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    await anyio.sleep(data.draw(st.integers(0, most)))
    assert tmp_path.name
    assert virtual_clock.monotonic() <= most


log: list[str] = []
variable = ContextVar("variable", default="unset")


@pytest.fixture
def outermost() -> Iterator[None]:
    log.clear()
    yield
    assert log == ["async up", "sync up", "test", "sync down", "async down"]


@pytest.fixture
async def in_loop(outermost: None, virtual_clock: VirtualClock) -> AsyncIterator[VirtualClock]:
    variable.set("by a fixture")
    await anyio.sleep(5)
    log.append("async up")
    yield virtual_clock
    await anyio.sleep(5)
    assert virtual_clock.monotonic() == 111
    log.append("async down")


@pytest.fixture
def made_of_async(in_loop: VirtualClock) -> Iterator[float]:
    log.append("sync up")
    yield in_loop.monotonic()
    assert in_loop.monotonic() == 106
    log.append("sync down")


async def test_async_fixtures_and_their_dependents_share_the_tests_run(
    made_of_async: float, virtual_clock: VirtualClock
) -> None:
    assert made_of_async == virtual_clock.monotonic() == 5
    assert variable.get() == "by a fixture"
    await anyio.sleep(101)
    log.append("test")


@pytest.fixture
async def group() -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


async def test_a_task_group_may_be_a_fixture(
    group: anyio.abc.TaskGroup, virtual_clock: VirtualClock
) -> None:
    started = anyio.Event()

    async def background() -> None:
        started.set()
        await anyio.sleep_forever()

    group.start_soon(background)
    await started.wait()


class TestMethods:
    """Tests and fixtures in classes; an autouse fixture that nobody names."""

    @pytest.fixture(autouse=True)
    async def prepared(self) -> None:
        await anyio.sleep(1)
        self.value = 1

    @pytest.fixture
    async def itself(self) -> TestMethods:
        return self

    async def test_method(self, itself: TestMethods, virtual_clock: VirtualClock) -> None:
        assert itself is self
        assert self.value == virtual_clock.monotonic() == 1

    @staticmethod
    async def test_static_method(virtual_clock: VirtualClock) -> None:
        await virtual_clock.sleep(1)


@pytest.mark.parametrize("inbox_backend", ["trio"])
@pytest.mark.parametrize("inbox_db", ["sqlite-memory"])
async def test_a_test_may_choose_its_cell(
    inbox_database: Database, inbox_backend: str, request: pytest.FixtureRequest
) -> None:
    assert request.node.name.endswith("[sqlite-memory-trio]")
    assert sniffio.current_async_library() == "trio"
    assert inbox_database.dialect == "sqlite"
