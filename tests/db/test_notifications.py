"""A session that listens: what comes, what a cancellation leaves, and how its end is seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from inboxkit import Database, DatabaseError, SystemClock
from inboxkit._db.drivers import make_driver
from inboxkit._db.url import parse_url
from inboxkit._sql.statement import Statement
from inboxkit.abc import Listening, Notification

Run = Callable[[Callable[[Any, Database], Awaitable[None]]], None]


@pytest.fixture(
    params=[("asyncio", "asyncpg"), ("asyncio", "psycopg"), ("trio", "psycopg")], ids=str
)
def with_ear(request: pytest.FixtureRequest, postgres_database: str) -> Run:
    backend, name = request.param
    url = f"postgresql+{name}://{postgres_database}"

    def run(test: Callable[[Any, Database], Awaitable[None]]) -> None:
        async def main() -> None:
            driver = make_driver(parse_url(url), clock=SystemClock(), timeout=30)
            async with Database(url) as db:
                ear = await driver.connect()
                assert isinstance(ear, Listening)
                with anyio.fail_after(20):
                    await test(ear, db)
                await ear.close()

        anyio.run(main, backend=backend)

    return run


SELECT = Statement("select", "SELECT 1")
NAME = 'a "Channel" 💌'


def tell(db: Database, payload: str) -> Awaitable[Any]:
    return db.execute("SELECT pg_notify($1, $2)", NAME, payload)


def test_what_is_told_is_heard_once_and_in_order(with_ear: Run) -> None:
    async def test(ear: Any, db: Database) -> None:
        await ear.listen(NAME)
        assert ear.notifications() == []
        await tell(db, "1")
        async with db.transaction() as tx:
            await tx.execute("SELECT pg_notify($1, $2)", NAME, "2")
            await tx.execute("SELECT pg_notify($1, $2)", NAME, "2")
            await tx.execute("SELECT pg_notify($1, $2)", "another", "")
        await tell(db, "3 ü")
        await ear.execute(SELECT)  # what comes beside an answer counts too
        await ear.notified()
        assert ear.notifications() == [Notification(NAME, p) for p in ("1", "2", "3 ü")]
        assert ear.notifications() == []
        # A cancelled wait leaves the session as it was.
        with anyio.move_on_after(0.01):
            await ear.notified()
        assert (await ear.execute(SELECT)).rows == [(1,)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ear.notified)
            await anyio.lowlevel.checkpoint()
            await tell(db, "4")
        assert ear.notifications() == [Notification(NAME, "4")]
        await ear.execute(Statement("unlisten", "UNLISTEN *", returns_rows=False))
        await tell(db, "5")
        await ear.execute(SELECT)
        assert ear.notifications() == []

    with_ear(test)


@pytest.mark.parametrize("how", ["killed", "terminated"])
def test_the_end_of_the_session_wakes_who_listens(with_ear: Run, how: str) -> None:
    async def test(ear: Any, db: Database) -> None:
        await ear.listen(NAME)
        pid = (await ear.execute(Statement("pid", "SELECT pg_backend_pid()"))).rows[0][0]
        ended: list[DatabaseError] = []

        async def hear() -> None:
            with pytest.raises(DatabaseError) as raised:
                await ear.notified()
            ended.append(raised.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            await anyio.lowlevel.checkpoint()
            if how == "killed":
                await db.fetch("SELECT pg_terminate_backend($1::int)", pid)
            else:
                ear.terminate()
        assert ended
        assert ear.is_closed
        for attempt in (ear.notified, lambda: ear.listen("more")):
            with pytest.raises(DatabaseError, match="closed"):
                await attempt()

    with_ear(test)
