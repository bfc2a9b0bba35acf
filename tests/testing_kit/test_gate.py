"""One statement at a time: a schedule is a list of integers, the same wherever it is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit_testing import ObservedDatabase, StatementGate, VirtualClock, open_test_database, run
from inboxkit_testing.backends import BackendName, Choose
from inboxkit_testing.runner import VirtualRunner

from .conftest import CELLS, url_for

Log = list[tuple[str, int]]


def claim(dialect: str) -> Script[int | None]:
    skip = "FOR UPDATE SKIP LOCKED" if dialect == "postgres" else ""

    def steps(reading: Reading) -> Steps[int | None]:
        found = yield Statement(
            "select", f"SELECT id FROM job WHERE owner IS NULL ORDER BY id LIMIT 1 {skip}"
        )
        if not found.rows:
            return None
        taken = found.rows[0][0]
        yield Statement("update", "UPDATE job SET owner = 'me' WHERE id = $1", (taken,), False)
        return int(taken)

    return Script("claim", steps)


def work_through(
    url: str,
    backend: BackendName,
    choices: Choose | Sequence[int] = (),
    *,
    seed: int | None = None,
    delays: dict[int, float] | None = None,
) -> tuple[Log, StatementGate]:
    """Three workers, each with an instance of its own, take twelve jobs."""
    clock = VirtualClock(gate=StatementGate(choices, delays=delays))
    log: Log = []

    async def worker(name: str, database: ObservedDatabase) -> None:
        while True:
            job = await database.run(claim(database.dialect))
            if job is None:
                return
            log.append((name, job))
            await clock.sleep(1 + job % 3)

    async def main() -> StatementGate:
        async with open_test_database(url, clock=clock) as admin:
            await admin.execute("DROP TABLE IF EXISTS job")
            await admin.execute("CREATE TABLE job (id integer primary key, owner text)")
            for n in range(12):
                await admin.execute("INSERT INTO job (id) VALUES ($1)", n)
        async with anyio.create_task_group() as tasks:
            for name in ("w1", "w2", "w3"):
                tasks.start_soon(instance, name)
        assert clock.gate is not None
        return clock.gate

    async def instance(name: str) -> None:
        async with open_test_database(url, clock=clock, instance=name) as database:
            await worker(name, database)

    gate = run(main, backend=backend, clock=clock, seed=seed)
    assert sorted(job for _, job in log) == list(range(12))
    return log, gate


@pytest.fixture(params=["inloop", "thread", "psycopg"])
def portable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database whose driver runs on both backends."""
    return url_for(request.param, request, tmp_path)


def distinct(logs: list[Any]) -> int:
    return len({repr(log) for log in logs})


def test_the_first_each_time_gives_one_log(portable_url: str) -> None:
    logs = [
        work_through(portable_url, backend, lambda count: 0)[0]
        for backend in ("asyncio", "trio")
        for _ in range(4)
    ]
    assert distinct(logs) == 1


def test_the_same_choices_give_the_same_log_on_both_backends(portable_url: str) -> None:
    all_logs = []
    for choices in ([2, 1], [1, 0, 2, 2, 1, 0, 1, 1], [5, 7, 3, 1] * 20):
        runs = [work_through(portable_url, backend, choices) for backend in ("asyncio", "trio")]
        assert distinct([log for log, _ in runs]) == 1
        assert distinct([gate.schedule for _, gate in runs]) == 1
        assert distinct([gate.turns for _, gate in runs]) == 1
        all_logs.append(runs[0][0])
    assert distinct(all_logs) == 3


def test_a_seed_takes_one_schedule_and_a_schedule_can_be_replayed(portable_url: str) -> None:
    logs = []
    for seed in range(2):
        log, gate = work_through(portable_url, "asyncio", seed=seed)
        assert work_through(portable_url, "trio", seed=seed)[0] == log
        replayed, again = work_through(portable_url, "trio", gate.schedule)
        assert replayed == log
        assert again.schedule == gate.schedule
        logs.append(log)
    assert distinct(logs) > 1


@pytest.mark.parametrize("driver", sorted({driver for driver, _ in CELLS}))
def test_every_driver_takes_the_same_turns(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_for(driver, request, tmp_path)
    backends = [backend for name, backend in CELLS if name == driver]
    runs = [work_through(url, backend, [1, 2, 0, 1]) for backend in backends for _ in range(2)]
    assert distinct([log for log, _ in runs]) == 1
    names = {turn.partition(": ")[2] for turn in runs[0][1].turns}
    is_server = not url.startswith("sqlite")
    # A script is one turn on SQLite; on a server each of its statements is one, BEGIN and COMMIT too.
    assert ("update" in names, "commit" in names, "claim" in names) == (
        is_server,
        is_server,
        not is_server,
    )


def test_a_delayed_turn_comes_later(portable_url: str) -> None:
    plain, gate = work_through(portable_url, "asyncio")
    first = gate.turns.index(next(turn for turn in gate.turns if turn.startswith("w1/1"))) + 1
    late = [
        work_through(portable_url, backend, delays={first: 2.5}) for backend in ("asyncio", "trio")
    ]
    assert distinct([log for log, _ in late]) == 1
    assert late[0][0] != plain
    assert [name for name, _ in plain].index("w1") < [name for name, _ in late[0][0]].index("w1")


def test_a_lost_update_is_found_by_one_schedule(backend: BackendName, tmp_path: Path) -> None:
    url = f"sqlite+inloop:///{tmp_path}/kit.db"

    def total(choices: Sequence[int]) -> int:
        clock = VirtualClock(gate=StatementGate(choices))

        async def add(database: ObservedDatabase) -> None:
            number = await database.fetch_value("SELECT n FROM t")
            await database.execute("UPDATE t SET n = $1", number + 1)

        async def main() -> int:
            async with open_test_database(url, clock=clock) as database:
                await database.execute("DROP TABLE IF EXISTS t")
                await database.execute("CREATE TABLE t (n integer)")
                await database.execute("INSERT INTO t VALUES (0)")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(add, database, name="a")
                    tasks.start_soon(add, database, name="b")
                return int(await database.fetch_value("SELECT n FROM t"))

        return run(main, backend=backend, clock=clock)

    assert total([0, 0, 0, 0]) == 2
    assert {total([n >> k & 1 for k in range(4)]) for n in range(16)} == {1, 2}


def test_a_cancelled_waiter_leaves_the_gate(backend: BackendName) -> None:
    clock = VirtualClock(gate=StatementGate())

    async def main() -> list[str]:
        gate = clock.gate
        assert gate is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.turn, "gone")
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await gate.turn("stays")
        return gate.turns

    assert run(main, backend=backend, clock=clock) == ["/0: stays"]


def test_settle_lets_waiting_statements_through_first(backend: BackendName) -> None:
    clock = VirtualClock(gate=StatementGate())

    async def main() -> list[str]:
        async with open_test_database("sqlite-inloop", clock=clock) as database:
            await database.execute("CREATE TABLE t (n integer)")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(database.execute, "INSERT INTO t VALUES (1)")
                await clock.settle()
                return [each.text for each in database.recording.statements()]
        raise AssertionError

    assert len(run(main, backend=backend, clock=clock)) == 2
    assert clock.monotonic() == 0.0


def test_what_the_chooser_raises_ends_the_run(backend: BackendName) -> None:
    class Stop(BaseException):
        pass

    def choose(count: int) -> int:
        raise Stop

    clock = VirtualClock(gate=StatementGate(choose))

    async def main() -> None:
        gate = clock.gate
        assert gate is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.turn, "a")
            tasks.start_soon(gate.turn, "b")

    with pytest.raises(Stop):
        run(main, backend=backend, clock=clock)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_gate_forgets_turns_where_time_begins_anew(backend: BackendName) -> None:
    gate = StatementGate()
    clock = VirtualClock(gate=gate)

    async def take_turns() -> list[str]:
        for label in ("claim", "settle"):
            await gate.turn(label, instance="a")
        return gate.turns

    with VirtualRunner(backend=backend, clock=clock) as runner:
        first = runner.call(take_turns)
        clock.keeper.rewind()
        assert gate.turns == []
        assert runner.call(take_turns) == first == ["a/0: claim", "a/0: settle"]
