"""What several folders of tests need: databases on a real server, and a table's name of one's own."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pymysql
import pytest

# Tests are imported by path, so their helpers are found by plain names.
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from inboxkit._db.mysql_url import read_target
from inboxkit.database import Database
from inboxkit_testing._plugin.options import Options, read_options
from inboxkit_testing.servers import MysqlServer, PostgresServer


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: a third of the time would go there, and all stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `tests/chaos`: they are known wherever tests are chosen."""
    group = parser.getgroup("chaos", "tests/chaos: processes killed, servers restarted")
    group.addoption(
        "--chaos",
        action="store_true",
        help="the whole of it: 20,000 jobs and 200 kills for each claim form and database",
    )
    group.addoption("--chaos-seed", type=int, default=1, help="of its random moments (default: 1)")
    group.addoption(
        "--chaos-report",
        default=None,
        metavar="FILE",
        help="add what was counted, a JSON line a test",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave `tests/chaos` out unless it is asked for: it runs in real time, beside nothing else."""
    if collection_path != Path(__file__).parent / "chaos" or config.getoption("chaos"):
        return None
    is_named = any("chaos" in argument for argument in config.invocation_params.args)
    return None if is_named else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let also tests that name their databases and backends follow the command line.

    A run that includes SQLite and PostgreSQL, as the project's own does, takes the other databases that
    tests name along, but for what is marked ``if_chosen``.
    """
    options, folder = read_options(config), Path(__file__).parent
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        is_kept = not item.path.is_relative_to(folder) or _is_chosen(item, options)
        (kept if is_kept else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _is_chosen(item: pytest.Item, options: Options) -> bool:
    if item.get_closest_marker("whole_chaos") and not item.config.getoption("chaos"):
        return False
    call = getattr(item, "callspec", None)
    named = {} if call is None else call.params
    if named.get("inbox_backend", options.backends[0]) not in options.backends:
        return False
    if named.get("inbox_db", options.databases[0]) in options.databases:
        return True
    is_full = {"sqlite", "postgres"}.issubset(options.databases)
    return is_full and item.get_closest_marker("if_chosen") is None


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where no bytecode is to be written, the processes that tests start share some outside of the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(shared / "bytecode"))
        yield


@pytest.fixture
def postgres_url(inbox_postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty Postgres database of the test's own."""
    with inbox_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def shared_postgres_url(inbox_postgres: PostgresServer) -> Iterator[str]:
    """The URL of a Postgres database of this process's own, for tests that share it."""
    with inbox_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_database(shared_postgres_url: str) -> str:
    """The same without its scheme, so that a driver can be named."""
    return shared_postgres_url.partition("://")[2]


@pytest.fixture
def emptied_postgres(postgres_database: str) -> str:
    """The same, emptied."""
    with psycopg.connect(f"postgresql://{postgres_database}", autocommit=True) as admin:
        admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return postgres_database


@pytest.fixture(scope="session")
def mariadb_database(inbox_mariadb: MysqlServer) -> Iterator[str]:
    """A MariaDB database of this process's own, for tests that share it; its URL without a scheme."""
    with inbox_mariadb.database() as url:
        yield url.partition("://")[2]


@pytest.fixture(scope="session")
def mysql_database(inbox_mysql: MysqlServer) -> Iterator[str]:
    """The same of MySQL."""
    with inbox_mysql.database() as url:
        yield url.partition("://")[2]


@pytest.fixture(scope="session")
def shared_mariadb_url(mariadb_database: str) -> str:
    """The URL of a MariaDB database of this process's own, for tests that share it."""
    return f"mariadb://{mariadb_database}"


@pytest.fixture(scope="session")
def shared_mysql_url(mysql_database: str) -> str:
    """The same of MySQL."""
    return f"mysql://{mysql_database}"


@pytest.fixture
def emptied_mariadb(mariadb_database: str) -> str:
    """The same, emptied."""
    return _emptied(mariadb_database)


@pytest.fixture
def emptied_mysql(mysql_database: str) -> str:
    """The same, emptied."""
    return _emptied(mysql_database)


def _emptied(location: str) -> str:
    target = read_target(f"mysql://{location}")
    admin: Any = pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        ssl_disabled=True,  # to read the system's certificates takes 20 ms
    )
    with admin, admin.cursor() as cursor:
        cursor.execute(f"DROP DATABASE `{target.database}`")
        cursor.execute(f"CREATE DATABASE `{target.database}` CHARACTER SET utf8mb4")
    return location


@pytest.fixture
def url(request: pytest.FixtureRequest, inbox_db: str, tmp_path: Path) -> str:
    """Where the test's database is, of each kind that was chosen; on a server it is shared."""
    if inbox_db.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'inbox.db'}"
    found: str = request.getfixturevalue(f"shared_{inbox_db}_url")
    return found


@pytest.fixture
def table() -> str:
    """A table's name that no other test uses."""
    return f"jobs {uuid.uuid4().hex[:12]}"


@pytest.fixture
def with_database(
    url: str, inbox_backend: str
) -> Callable[[Callable[[Database], Awaitable[Any]]], Any]:
    """Run an async test with a database, and return what it returns; with either driver."""

    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(url) as db:
                return await test(db)

        return anyio.run(main, backend=inbox_backend)

    return run
