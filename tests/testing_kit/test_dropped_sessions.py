"""A session whose connection is dropped keeps nothing from what is sent after it, by whichever instance."""

from __future__ import annotations

from pathlib import Path

import pytest

from inboxkit.errors import DatabaseError
from inboxkit_testing import ObservedDatabase, VirtualClock, open_test_database, run
from inboxkit_testing.backends import BackendName

from .conftest import url_for

TIMES = 30
"""The server needs a moment for some of them."""


@pytest.fixture(params=["postgres", "mariadb", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return url_for("psycopg", request, tmp_path)
    return f"mysql+pymysql://{request.getfixturevalue(f'emptied_{request.param}')}"


async def drop_while_it_holds_the_row(database: ObservedDatabase) -> None:
    async with database.transaction() as holder:
        await holder.fetch("SELECT n FROM t FOR UPDATE")
        pool = database._pool
        assert pool is not None
        for connection, _ in pool._holders.values():
            connection.terminate()
        await holder.execute("UPDATE t SET n = 1")


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "other instance"])
def test_its_locks_are_free_for_the_next_statement(
    url: str, is_own: bool, backend: BackendName
) -> None:
    clock = VirtualClock(stall=3)

    async def main() -> list[int]:
        free = []
        async with (
            open_test_database(url, clock=clock, instance="a") as mine,
            open_test_database(url, clock=clock, instance="b") as other,
        ):
            await mine.execute("DROP TABLE IF EXISTS t")
            await mine.execute("CREATE TABLE t (n integer)")
            await mine.execute("INSERT INTO t VALUES (0)")
            for _ in range(TIMES):
                with pytest.raises(DatabaseError):
                    await drop_while_it_holds_the_row(mine)
                database = mine if is_own else other
                async with database.transaction() as tx:
                    free += await tx.fetch("SELECT n FROM t FOR UPDATE SKIP LOCKED")
        return [row["n"] for row in free]

    assert run(main, clock=clock, backend=backend) == [0] * TIMES
