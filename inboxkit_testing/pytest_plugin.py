"""The pytest plugin: async tests in virtual time, on asyncio and trio, each with a fresh database.

    async def test_render(inbox_database: Database, virtual_clock: VirtualClock) -> None:
        ...

An async test is run by this plugin if it uses one of the fixtures below, by itself or through other
fixtures, or bears ``@pytest.mark.inbox``. It and its async fixtures then run in one loop, which no
other plugin has a hand in; no mark is needed, and marks of the module are let be. Async fixtures, and
sync ones that use them, must have the scope ``function``.

A failing test that runs services by `inbox_app` or `inbox_world` shows what happened to their rows.

Time is virtual. Only a test that uses `inbox_database`, names neither a clock fixture nor
`inbox_app` or `inbox_world`, and bears no marker, runs in real time, with a `SystemClock`.

``@pytest.mark.inbox(seed=7)`` runs a test in the order of statements and of ready tasks that this seed
chooses, as `run(seed=7)` does. ``@pytest.mark.inbox(seeds=100)`` runs it in those of the seeds 0 to 99,
one after another, until one run fails or is skipped. It is one test to pytest, and each run has
fixtures, a database and an instance of the class of its own; only wider fixtures are shared. A run that
fails shows its seed, its statements in order and its timeline; ``--inbox-seed=7`` runs it again alone,
and ``--inbox-seeds=1000`` explores further, or tests without the marker.

An async test under ``@given`` is a run of its own for each example: its clock, its database and its
async fixtures are made anew. Hypothesis's default deadline, in real time, is off for it.

Nothing is imported here that a run of unrelated tests would have to pay for.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from inboxkit_testing._plugin.chosen import Choice, chosen
from inboxkit_testing._plugin.collect import choose_parameters, is_ours, make_items, plan_for
from inboxkit_testing._plugin.databases import Databases, make_database
from inboxkit_testing._plugin.options import Options, add_options, read_options
from inboxkit_testing._plugin.plan import CLOCKS, OPENED, Plan
from inboxkit_testing._plugin.seeds import explore, seeds_of
from inboxkit_testing._plugin.starters import Starter
from inboxkit_testing._plugin.timelines import told_if_failed

if TYPE_CHECKING:
    from inboxkit import Service
    from inboxkit.database import Database
    from inboxkit_testing import TestApp, VirtualClock, World
    from inboxkit_testing.servers import MysqlServer, PostgresServer

__all__: list[str] = []

# Before a conftest imports it: its tests are asserts, in a package.
pytest.register_assert_rewrite("inboxkit_testing.conformance")

_options = pytest.StashKey[Options]()
_databases = pytest.StashKey[Databases]()
_plan = pytest.StashKey[Plan | None]()
_seed = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "inbox(seed=None, seeds=None): run this async test in virtual time; a seed chooses the order of "
        "statements and tasks, seeds=100 tries those of the seeds 0 to 99 until one fails.",
    )
    config.stash[_options] = read_options(config)
    config.stash[_databases] = Databases()
    chosen.append(Choice(config.stash[_options], config.stash[_databases]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _databases in config.stash:
        chosen.pop()
        config.stash[_databases].close()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Function] | None:
    return make_items(collector, name, obj)


@pytest.hookimpl(tryfirst=True)  # before pytest gives anyio_backend its own values
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    choose_parameters(metafunc, metafunc.config.stash[_options])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not is_ours(item) or item.config.getoption("setuponly", False):
        return None
    try:
        seeds = seeds_of(item, item.config.stash[_options])
    except pytest.fail.Exception:
        return None  # said in its set-up
    if len(seeds) < 2:
        return None
    explore(item, nextitem, seeds, _seed)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_plan] = None
    if is_ours(item):
        seeds = seeds_of(item, item.config.stash[_options])
        seed = item.stash.get(_seed, seeds[0] if seeds else None)
        item.stash[_plan] = plan_for(item, seed)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    plan = request._pyfuncitem.stash.get(_plan, None)
    if plan is None:
        return (yield)
    with plan.deferring(fixturedef, request):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    plan = item.stash.get(_plan, None)
    if plan is None:
        return (yield)
    folder = item.config.stash[_options].timeline
    with plan.current(), told_if_failed(folder, plan):
        return (yield)


@pytest.fixture
def inbox_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that the test runs on: ``"asyncio"`` or ``"trio"``; both, unless chosen."""
    return request.config.stash[_options].backends[0]


@pytest.fixture
def inbox_db(request: pytest.FixtureRequest) -> str:
    """The kind of database of `inbox_database`, such as ``"sqlite"``: each that `--inbox-db` names."""
    return request.config.stash[_options].databases[0]


@pytest.fixture
def virtual_clock(request: pytest.FixtureRequest) -> VirtualClock:
    """The test's time; it jumps to the next instant at which something is due."""
    from inboxkit_testing import VirtualClock  # noqa: PLC0415 - only when a test runs

    _refuse_two_clocks(request)
    return VirtualClock()


@pytest.fixture
def frozen_clock(request: pytest.FixtureRequest) -> VirtualClock:
    """The test's time; it moves only by `advance`."""
    from inboxkit_testing import VirtualClock  # noqa: PLC0415 - only when a test runs

    _refuse_two_clocks(request)
    clock = VirtualClock()
    clock.freeze()
    return clock


@pytest.fixture(scope="session")
def inbox_postgres(request: pytest.FixtureRequest) -> PostgresServer:
    """The Postgres server of this run, for tests that make databases by themselves.

    Skips where there is none, or fails where `INBOXKIT_REQUIRE` lists ``postgres``.
    """
    return request.config.stash[_databases].server("postgres")  # type: ignore[return-value]


@pytest.fixture(scope="session")
def inbox_mariadb(request: pytest.FixtureRequest) -> MysqlServer:
    """As `inbox_postgres`, for MariaDB."""
    return request.config.stash[_databases].server("mariadb")  # type: ignore[return-value]


@pytest.fixture(scope="session")
def inbox_mysql(request: pytest.FixtureRequest) -> MysqlServer:
    """As `inbox_postgres`, for MySQL."""
    return request.config.stash[_databases].server("mysql")  # type: ignore[return-value]


@pytest.fixture
def _inbox_databases(request: pytest.FixtureRequest, inbox_db: str) -> Databases:
    """Before a loop runs, since a server may have to start, or its absence to skip the test."""
    databases = request.config.stash[_databases]
    databases.prepare(inbox_db)
    return databases


def _unopened_database(
    request: pytest.FixtureRequest, inbox_db: str, _inbox_databases: Databases
) -> Iterator[Database]:
    """A `Database` of the test's own, empty: open in an async test, to be opened in a sync one.

    Its clock is the clock fixture that the test names; in virtual time it is one of
    `open_test_database`. The test runs once for each kind of database that
    ``--inbox-db=sqlite,postgres,mariadb,mysql`` lists, on each backend.
    """
    named = [name for name in CLOCKS if name in request.fixturenames]
    clock: VirtualClock | None = request.getfixturevalue(named[0]) if named else None
    with _inbox_databases.fresh(inbox_db) as url:
        yield make_database(url, clock)


async def _opened_database(
    request: pytest.FixtureRequest, inbox_db: str, _inbox_databases: Databases
) -> AsyncIterator[Database]:
    plan = request.node.stash[_plan]
    with _inbox_databases.fresh(inbox_db) as url:
        async with make_database(url, plan.clock) as database:
            yield database


setattr(_unopened_database, OPENED, _opened_database)
inbox_database: Any = pytest.fixture(name="inbox_database")(_unopened_database)


def _no_app(request: pytest.FixtureRequest, inbox_database: Database) -> None:  # noqa: ARG001
    """Starts a service over the test's database, and ends it with the test: ``app = await inbox_app(service)``.

    `service` takes the open database and returns the `Service`; what comes back is its running
    `TestApp`.
    """
    pytest.fail("inbox_app runs a service, so the test that uses it must be async", pytrace=False)


async def _running_app(
    request: pytest.FixtureRequest,  # noqa: ARG001 - as above, since pytest reads the names there
    inbox_database: Database,
) -> AsyncIterator[Callable[[Callable[[Database], Service]], Awaitable[TestApp]]]:
    from inboxkit_testing import TestApp, recorded  # noqa: PLC0415 - only when a test runs

    async with contextlib.AsyncExitStack() as apps:
        apps.enter_context(recorded())

        async def start(service: Callable[[Database], Service]) -> TestApp:
            return await apps.enter_async_context(TestApp(service(inbox_database)))

        yield Starter("inbox_app", "TestApp", start)


setattr(_no_app, OPENED, _running_app)
inbox_app: Any = pytest.fixture(name="inbox_app")(_no_app)


def _no_world(request: pytest.FixtureRequest, inbox_database: Database) -> None:  # noqa: ARG001
    """Opens a `World` over the test's database, and ends it with the test: ``world = await inbox_world(service)``.

    `service` takes a database and returns a `Service`; ``await world.start("a")`` runs one.
    """
    pytest.fail("inbox_world runs services, so the test that uses it must be async", pytrace=False)


async def _open_world(
    request: pytest.FixtureRequest,  # noqa: ARG001 - as above
    inbox_database: Database,
) -> AsyncIterator[Callable[[Callable[[Database], Service]], Awaitable[World]]]:
    from inboxkit_testing import World  # noqa: PLC0415 - only when a test runs

    async with contextlib.AsyncExitStack() as worlds:

        async def open_world(service: Callable[[Database], Service]) -> World:
            return await worlds.enter_async_context(World(service, inbox_database))

        yield Starter("inbox_world", "World", open_world)


setattr(_no_world, OPENED, _open_world)
inbox_world: Any = pytest.fixture(name="inbox_world")(_no_world)


def _refuse_two_clocks(request: pytest.FixtureRequest) -> None:
    if set(CLOCKS) <= set(request.fixturenames):
        pytest.fail(
            "a test has one time: name virtual_clock (it jumps) or frozen_clock (it moves by "
            "advance), not both",
            pytrace=False,
        )
