"""Time never overtakes an answer in flight or a thread at work: no false ticks."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio
import trio.testing
from anyio import wait_all_tasks_blocked

from inboxkit_testing import VirtualClock, open_test_database, run
from inboxkit_testing.backends import BackendName

A_MOMENT = 0.003
"""Real seconds that a thread takes, so that the loop has time to run away."""


def ticks_during(work: Callable[[VirtualClock], Awaitable[object]], backend: BackendName) -> float:
    """Virtual seconds that pass beside a ticker while `work` is done."""
    clock = VirtualClock()

    async def ticker() -> None:
        while True:
            await clock.sleep(1)

    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ticker)
            await work(clock)
            passed = clock.monotonic()
            tasks.cancel_scope.cancel()
        return passed

    return run(main, backend=backend, clock=clock)


def test_threads_of_the_default_limiter(backend: BackendName) -> None:
    async def work(_: VirtualClock) -> None:
        for _ in range(20):
            await anyio.to_thread.run_sync(time.sleep, A_MOMENT)

    assert ticks_during(work, backend) == 0.0


def test_trio_threads() -> None:
    async def work(_: VirtualClock) -> None:
        for _ in range(20):
            await trio.to_thread.run_sync(time.sleep, A_MOMENT)

    assert ticks_during(work, "trio") == 0.0


def test_asyncio_executors() -> None:
    async def work(_: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            for _ in range(5):
                await asyncio.to_thread(time.sleep, A_MOMENT)
                await loop.run_in_executor(None, time.sleep, A_MOMENT)
                await loop.run_in_executor(executor, time.sleep, A_MOMENT)
        await loop.getaddrinfo("localhost", 80)

    assert ticks_during(work, "asyncio") == 0.0


def test_a_cancelled_executor_call_holds_time_until_its_thread_ends() -> None:
    async def work(clock: VirtualClock) -> None:
        ended = threading.Event()

        def slow() -> None:
            time.sleep(5 * A_MOMENT)
            ended.set()

        task = asyncio.create_task(asyncio.to_thread(slow))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await clock.settle()
        assert ended.is_set()

    assert ticks_during(work, "asyncio") == 0.0


def test_a_private_limiter_once_it_is_watched(backend: BackendName) -> None:
    async def work(clock: VirtualClock) -> None:
        limiter = anyio.CapacityLimiter(1)
        clock.watch(limiter)
        for _ in range(10):
            await anyio.to_thread.run_sync(time.sleep, A_MOMENT, limiter=limiter)

    assert ticks_during(work, backend) == 0.0


def test_external_brackets(backend: BackendName) -> None:
    async def work(clock: VirtualClock) -> None:
        limiter = anyio.CapacityLimiter(1)  # seen by nobody
        for _ in range(10):
            with clock.external("something slow"):
                await anyio.to_thread.run_sync(time.sleep, A_MOMENT, limiter=limiter)

    assert ticks_during(work, backend) == 0.0


def test_a_result_that_comes_from_a_thread_by_the_loops_own_means(backend: BackendName) -> None:
    async def work(clock: VirtualClock) -> None:
        def thread() -> None:
            time.sleep(A_MOMENT)
            anyio.from_thread.run_sync(seen.set)
            time.sleep(A_MOMENT)

        seen = anyio.Event()
        await anyio.to_thread.run_sync(thread)
        assert seen.is_set()

    assert ticks_during(work, backend) == 0.0


def test_sockets_of_this_process_need_no_bracket(backend: BackendName) -> None:
    async def work(_: VirtualClock) -> None:
        async def echo(client: anyio.abc.SocketStream) -> None:
            async with client:
                async for data in client:
                    await client.send(data)

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as serving:
            serving.start_soon(listener.serve, echo)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                for _ in range(200):
                    await stream.send(b"x")
                    await stream.receive(1)
            serving.cancel_scope.cancel()

    assert ticks_during(work, backend) == 0.0


def test_statements_of_every_driver(cell: tuple[str, BackendName]) -> None:
    url, backend = cell

    async def work(clock: VirtualClock) -> None:
        async with open_test_database(url, clock=clock) as database:
            await database.execute("CREATE TABLE t (n integer)")
            for n in range(30):
                await database.execute("INSERT INTO t VALUES ($1)", n)
                async with database.transaction() as tx:
                    await tx.fetch("SELECT n FROM t")

            async def insert(n: int) -> None:
                await database.execute("INSERT INTO t VALUES ($1)", n)

            async with anyio.create_task_group() as tasks:
                for n in range(5):
                    tasks.start_soon(insert, n)
            assert await database.fetch_value("SELECT count(*) FROM t") == 35

    assert ticks_during(work, backend) == 0.0


def test_a_statement_that_takes_long_outlasts_no_virtual_timeout(
    request: pytest.FixtureRequest, backend: BackendName
) -> None:
    location = request.getfixturevalue("postgres_database")
    driver = "asyncpg" if backend == "asyncio" else "psycopg"

    async def work(clock: VirtualClock) -> None:
        async with open_test_database(f"postgresql+{driver}://{location}", clock=clock) as database:
            with anyio.fail_after(1):
                await database.fetch("SELECT pg_sleep(0.02)")

    assert ticks_during(work, backend) == 0.0


@pytest.mark.parametrize("handler", [300.0, 301.0])
def test_a_lease_is_renewed_beside_a_rival(backend: BackendName, handler: float) -> None:
    """A handler of five minutes under a lease of one, renewed each 30 s; nobody steals it."""

    async def main(clock: VirtualClock) -> list[tuple[float, str]]:
        log: list[tuple[float, str]] = []
        limiter = anyio.CapacityLimiter(1)
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute("CREATE TABLE job (id integer primary key, owner text, until real)")
        connection.execute("INSERT INTO job VALUES (1, NULL, NULL)")

        async def changed(label: str, sql: str, *parameters: object) -> bool:
            def statement() -> bool:
                return connection.execute(sql, parameters).rowcount == 1

            with clock.external(label):
                return await anyio.to_thread.run_sync(statement, limiter=limiter)

        async def claim(owner: str) -> bool:
            now = clock.monotonic()
            sql = "UPDATE job SET owner = ?, until = ? WHERE until IS NULL OR until < ?"
            return await changed("claim", sql, owner, now + 60, now)

        async def rival() -> None:
            while True:
                await clock.sleep(5)
                if await claim("rival"):
                    log.append((clock.monotonic(), "stolen"))

        async def renew() -> None:
            while True:
                await clock.sleep(30)
                sql = "UPDATE job SET until = ? WHERE owner = 'worker'"
                assert await changed("renew", sql, clock.monotonic() + 60)
                log.append((clock.monotonic(), "renewed"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rival)
            assert await claim("worker")
            async with anyio.create_task_group() as work:
                work.start_soon(renew)
                await clock.sleep(handler)
                work.cancel_scope.cancel()
            log.append((clock.monotonic(), "done"))
            tasks.cancel_scope.cancel()
        connection.close()
        return log

    logs = []
    for _ in range(5):
        clock = VirtualClock()
        logs.append(run(main, clock, backend=backend, clock=clock))
    expected = [(30.0 * n, "renewed") for n in range(1, 11)] + [(handler, "done")]
    for log in logs:
        if handler == 300.0:  # a tie at 300 s: the last renewal may have been cancelled
            log = [entry for entry in log if entry != (300.0, "renewed")]  # noqa: PLW2901
            assert log == [entry for entry in expected if entry != (300.0, "renewed")]
        else:
            assert log == expected


def test_wait_all_tasks_blocked_on_trio_takes_no_time() -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.sleep, 100)
            for _ in range(5):
                await trio.testing.wait_all_tasks_blocked()
                await wait_all_tasks_blocked()
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert clock.monotonic() == 0.0
            await clock.sleep(1)
            assert clock.monotonic() == 1.0

    run(main, backend="trio", clock=clock)
    assert clock.monotonic() == 100.0


def test_wait_all_tasks_blocked_on_asyncio_returns() -> None:
    """anyio asks again after a sleep of 100 ms there, which are virtual: `settle` takes none."""
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.sleep, 100)
            await wait_all_tasks_blocked()
            return clock.monotonic()
        raise AssertionError

    assert run(main, backend="asyncio", clock=clock) < 1.0


def test_the_default_executor_is_shut_down_in_no_time(recwarn: pytest.WarningsRecorder) -> None:
    clock = VirtualClock()
    ended = threading.Event()

    def slow() -> None:
        time.sleep(10 * A_MOMENT)
        ended.set()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, slow)

    run(main, clock=clock)
    assert ended.is_set()  # joined, not given up after 300 virtual seconds
    assert clock.monotonic() == 0.0
    assert not recwarn.list


def test_aiosqlite_by_itself_needs_a_bracket(tmp_path: Path) -> None:
    import aiosqlite

    async def work(clock: VirtualClock) -> None:
        with clock.external("connect"):
            connection = await aiosqlite.connect(tmp_path / "own.db")
        for _ in range(50):
            with clock.external("select"):
                await connection.execute_fetchall("SELECT 1")
        with clock.external("close"):
            await connection.close()

    assert ticks_during(work, "asyncio") == 0.0


def test_time_moves_on_after_a_bracket(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> None:
        with clock.external("a"), clock.external("b"):
            await anyio.lowlevel.checkpoint()
        await clock.sleep(1)

    run(main, backend=backend, clock=clock)
    assert clock.monotonic() == 1.0
    assert timedelta(seconds=1) == clock.now() - clock.start


def test_no_thread_is_left(backend: BackendName) -> None:
    before = threading.enumerate()
    clock = VirtualClock()

    async def main() -> None:
        await anyio.to_thread.run_sync(time.sleep, 0)
        if backend == "asyncio":
            await asyncio.to_thread(time.sleep, 0)

    for _ in range(3):
        run(main, backend=backend, clock=clock)
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left if backend == "asyncio" else ():
        thread.join(5)  # it has been told to end
    # trio keeps an idle one for a while.
    assert sum(thread.is_alive() for thread in left) <= (backend == "trio")
    assert sys.exc_info() == (None, None, None)
