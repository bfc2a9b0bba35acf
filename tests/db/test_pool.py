"""The pool over a driver of the test's own: who is served, and what becomes of connections."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from inboxkit._db import pool as pool_module
from inboxkit._db.pool import Pool
from inboxkit._db.turnstile import Turnstile
from inboxkit._sql.statement import Answer, Script, Statement
from inboxkit.abc import DialectName
from inboxkit.database import Database
from inboxkit.errors import (
    ClosedError,
    ConnectError,
    DatabaseBusyError,
    DatabaseError,
    PoolTimeoutError,
)


class FakeConnection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closed = False
        self.in_transaction = False
        self.calls: list[str] = []

    async def execute(self, statement: Statement) -> Answer:
        await anyio.lowlevel.checkpoint()
        return Answer(("number",), [(self.number,)], -1)

    async def run(self, script: Script[Any]) -> Any:
        raise NotImplementedError

    async def begin(self, *, hold: bool = False) -> None:
        self.in_transaction = True

    async def commit(self) -> None:
        self.in_transaction = False

    async def rollback(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        self.calls.append("rollback")
        self.in_transaction = False

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        self.calls.append("close")
        self.is_closed = True

    def terminate(self) -> None:
        self.calls.append("terminate")
        self.is_closed = True


class FakeDriver:
    name = "fake"
    dialect: DialectName = "postgres"
    max_connections: int | None = None

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.fails = False
        self.is_closed = False

    async def connect(self) -> FakeConnection:
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise ConnectError("no server")
        self.connections.append(FakeConnection(len(self.connections)))
        return self.connections[-1]

    async def aclose(self) -> None:
        self.is_closed = True


Main = Callable[[Pool, FakeDriver], Awaitable[None]]


@pytest.fixture
def run(backend: str) -> Callable[..., None]:
    def run(main: Main, *, size: int = 2) -> None:
        async def opened() -> None:
            driver = FakeDriver()
            with anyio.fail_after(5):
                await main(Pool(driver, size=size), driver)

        anyio.run(opened, backend=backend)

    return run


def test_grows_lazily_and_prefers_the_one_used_last(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        first = await pool.acquire()
        second = await pool.acquire()
        await pool.release(first)
        await pool.release(second)
        assert [await pool.acquire() for _ in range(2)] == [second, first]
        assert len(driver.connections) == 2

    run(main, size=5)


def test_who_waits_longest_is_served_first(run: Callable[..., None]) -> None:
    served: list[int] = []

    async def main(pool: Pool, driver: FakeDriver) -> None:
        async def use(number: int) -> None:
            async with pool.connection():
                served.append(number)
                await anyio.lowlevel.checkpoint()

        async def give_up() -> None:
            with anyio.move_on_after(0):
                await use(99)

        held = await pool.acquire()
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(use, number)
                group.start_soon(give_up)
                await anyio.wait_all_tasks_blocked()
            await pool.release(held)
        assert len(driver.connections) == 1

    run(main, size=1)

    assert served == [0, 1, 2, 3, 4]


def test_a_release_does_not_let_a_newcomer_overtake(run: Callable[..., None]) -> None:
    served: list[str] = []

    async def main(pool: Pool, driver: FakeDriver) -> None:
        async def use(name: str) -> None:
            async with pool.connection():
                served.append(name)

        held = await pool.acquire()
        async with anyio.create_task_group() as group:
            group.start_soon(use, "waiting")
            await anyio.wait_all_tasks_blocked()
            await pool.release(held)
            await use("newcomer")

    run(main, size=1)

    assert served == ["waiting", "newcomer"]


def test_who_is_urgent_goes_before_all_others_that_wait(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        first = await pool.acquire()
        order: list[str] = []

        async def use(name: str, *, is_urgent: bool) -> None:
            connection = await pool.acquire(is_urgent=is_urgent)
            order.append(name)
            await pool.release(connection)

        async with anyio.create_task_group() as group:
            for name, is_urgent in (("a", False), ("b", False), ("c", True), ("d", True)):
                group.start_soon(partial(use, name, is_urgent=is_urgent))
                await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(partial(use, "e", is_urgent=True))
                await anyio.wait_all_tasks_blocked()
                given_up.cancel_scope.cancel()
            await pool.release(first)
        assert order == ["c", "d", "a", "b"]
        assert len(driver.connections) == 1

    run(main, size=1)


def test_waiting_too_long(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_PATIENCE", 0.01)

    async def main(pool: Pool, driver: FakeDriver) -> None:
        async def wait() -> None:
            with pytest.raises(PoolTimeoutError, match="all 1 of the pool are in use"):
                await pool.acquire()

        async with pool.connection(), anyio.create_task_group() as group:
            group.start_soon(wait)
        async with pool.connection():
            assert pool.in_use == 1

    run(main, size=1)


def test_waiting_for_oneself_is_said_at_once(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        async with pool.connection(), pool.connection():
            with pytest.raises(DatabaseError, match="already holds all 2 connections"):
                await pool.acquire()
        assert pool.in_use == 0

    run(main, size=2)


def test_closed_connections_are_replaced(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        async with pool.connection() as connection:
            connection.terminate()
        async with pool.connection() as connection:
            assert connection is driver.connections[1]
        driver.connections[1].is_closed = True  # while it was idle
        async with pool.connection() as connection:
            assert connection is driver.connections[2]

    run(main, size=1)


def test_a_connection_inside_a_transaction_is_rolled_back(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        with anyio.CancelScope() as scope:
            async with pool.connection() as connection:
                await connection.begin()
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert driver.connections[0].calls == ["rollback"]
        assert pool.in_use == 0

    run(main, size=1)


def test_a_failed_connect_leaks_no_place(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        driver.fails = True
        for _ in range(3):
            with pytest.raises(DatabaseBusyError, match="no server"):
                await pool.acquire()
        driver.fails = False
        async with pool.connection():
            assert pool.in_use == 1

    run(main, size=1)


def test_cancelled_anywhere_nothing_leaks(run: Callable[..., None]) -> None:
    """Each of several tasks is cancelled after each number of its steps."""

    async def main(pool: Pool, driver: FakeDriver) -> None:
        async def use() -> None:
            async with pool.connection() as connection:
                await connection.execute(Statement("s", "SELECT 1"))
            async with pool.connection():
                await anyio.lowlevel.checkpoint()

        async def cancelled_after(steps: int) -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(use)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()

        for steps in itertools.product(range(7), repeat=3):
            async with anyio.create_task_group() as group:
                for number in steps:
                    group.start_soon(cancelled_after, number)
            assert pool.in_use == 0
        assert sum(not connection.is_closed for connection in driver.connections) <= 2

    run(main, size=2)


def test_closing(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_GRACE", 0.01)

    async def main(pool: Pool, driver: FakeDriver) -> None:
        kept = await pool.acquire()
        async with pool.connection():
            pass
        await pool.aclose()
        assert [connection.calls for connection in driver.connections] == [
            ["terminate"],
            ["close"],
        ]
        await pool.release(kept)
        with pytest.raises(ClosedError):
            await pool.acquire()

    run(main, size=2)


def test_closing_waits_for_connections_in_use(run: Callable[..., None]) -> None:
    async def main(pool: Pool, driver: FakeDriver) -> None:
        back = anyio.Event()

        async def use() -> None:
            async with pool.connection():
                await back.wait()

        async def wait() -> None:
            with pytest.raises(ClosedError):
                await pool.acquire()

        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(pool.aclose)
            await anyio.wait_all_tasks_blocked()
            back.set()
        assert driver.connections[0].calls == ["close"]

    run(main, size=1)


def test_a_database_over_a_driver(backend: str) -> None:
    async def main() -> None:
        driver = FakeDriver()
        driver.max_connections = 1
        async with Database.over(driver, pool_size=7) as db:
            assert (db.driver_name, db.dialect, db.pool_size) == ("fake", "postgres", 1)
            assert await db.fetch_value("SELECT 1") == 0
            async with db.transaction() as tx:
                await tx.fetch("SELECT 1")
        assert driver.is_closed

    anyio.run(main, backend=backend)


def test_a_turnstile_serves_several_loops(backend: str) -> None:
    turnstile = Turnstile()

    async def main() -> None:
        order: list[int] = []

        async def enter(number: int) -> None:
            assert await turnstile.enter(timeout=5)
            order.append(number)
            await anyio.lowlevel.checkpoint()
            turnstile.leave()

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(enter, number)
        assert sorted(order) == [0, 1, 2, 3]
        assert turnstile.enter_nowait()
        assert not await turnstile.enter(timeout=0)
        assert (turnstile.inside, turnstile.waiting) == (1, 0)
        turnstile.leave()

    anyio.run(main, backend="trio")
    anyio.run(main, backend=backend)
