"""A seed is one run: the same turns, events and rows each time, in each process; other seeds give others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Service,
    StartupError,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import (
    StatementGate,
    TestApp,
    VirtualClock,
    VirtualRunner,
    World,
    open_test_database,
    run,
)
from inboxkit_testing.backends import BackendName

from .conftest import CELLS, url_for

SECOND = timedelta(seconds=1)


class Step(Inbox, table="seeded_steps"):
    id: str = role.id()
    target: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


STEPS = InboxQueue.every_group(Step, bytes, lease=4 * SECOND)


async def create(db: Database) -> None:
    for table in (Step.spec.name, "tally"):
        await db.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in create_table(get_dialect(db.dialect), Step.spec):
        await db.execute(statement)
    await db.execute("CREATE TABLE tally (n integer)")
    await db.execute("INSERT INTO tally VALUES (0)")


def service_noting(log: list[Any]) -> Callable[[Database], Service]:
    """Makes services that count in a row and note in memory, both as one should not."""

    def service(database: Database) -> Service:
        @subscriber(STEPS)
        async def count(message: bytes, delivery: Delivery) -> None:
            log.append((message, delivery.attempt))
            n = await delivery.database.fetch_value("SELECT n FROM tally")
            await delivery.clock.sleep(1)
            if message == b"2" and delivery.attempt == 1:
                raise ValueError("the first time")
            await delivery.database.execute("UPDATE tally SET n = $1", n + 1)

        app = Service("steps", Broker(database, poll_interval=SECOND))
        app.include(count, workers=2)
        return app

    return service


def story(url: str, backend: BackendName, seed: int) -> dict[str, Any]:
    """Two instances with two workers each serve groups, one crashes; all that can be told of it."""
    clock = VirtualClock()
    log: list[Any] = []

    async def main() -> dict[str, Any]:
        async with open_test_database(url, clock=clock, instance="test") as database:
            await create(database)
            async with World(service_noting(log), database) as world:
                await world.start("a")
                await world.start("b")
                for n in range(3):
                    target = "xyx"[n]
                    await world.publish(STEPS.group(target), b"%d" % n, id=f"{n}", by="ab"[n % 2])
                await world.advance(SECOND * 1.5)
                await world.crash("b")
                await world.drain()
                tally = await database.fetch_value("SELECT n FROM tally")
                rows = await database.fetch(f"SELECT * FROM {Step.spec.name} ORDER BY id")
            return {"tally": tally, "rows": rows, "timeline": world.timeline.lines()}

    told = run(main, backend=backend, clock=clock, seed=seed)
    assert clock.gate is not None
    return told | {"log": log, "turns": clock.gate.turns, "schedule": clock.gate.schedule}


@pytest.mark.parametrize(
    ("driver", "backend"),
    [*CELLS, ("mysql", "asyncio"), ("mysql", "trio")],
)
def test_a_seed_gives_the_same_run_again(
    driver: str, backend: BackendName, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if driver == "mysql":
        url = f"mysql://{request.getfixturevalue('emptied_mysql')}"
    else:
        url = url_for(driver, request, tmp_path)
    # In the loop's thread a run is cheap, and what is wrong on a server is mostly wrong there.
    seeds = range(3) if driver == "inloop" else (5,)
    runs = [[story(url, backend, seed) for _ in range(2)] for seed in seeds]
    for first, second in runs:
        for what, told in first.items():
            assert second[what] == told, what
    assert len({repr(first["turns"]) for first, _ in runs}) == len(seeds)


def test_a_seed_gives_the_same_run_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "kit.db"
    told = subprocess.run(
        [sys.executable, "-c", _TELL, str(path)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    here = [story(f"sqlite+inloop:///{path}", backend, 5) for backend in ("asyncio", "trio")]  # type: ignore[arg-type]
    assert told.stdout.splitlines() == [repr(each) for each in here]


_TELL = """
import sys
from tests.testing_kit.test_seeds import story
for backend in ("asyncio", "trio"):
    print(story(f"sqlite+inloop:///{sys.argv[1]}", backend, 5))
"""


def test_a_hundred_seeds_are_many_schedules(backend: BackendName) -> None:
    async def main(clock: VirtualClock) -> tuple[str, ...]:
        gate = clock.gate
        assert gate is not None

        async def work(name: str) -> None:
            for _ in range(4):
                await gate.turn("fetch", instance=name)

        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(work, name)
        return tuple(gate.turns)

    found = {
        run(main, clock, backend=backend, clock=clock, seed=seed)
        for seed, clock in ((seed, VirtualClock()) for seed in range(100))
    }
    assert len(found) >= 98


# Which ready task goes next.


async def race(after: int) -> int:
    """Two tasks add one to a number in memory; the one that writes late must be overtaken by `after` steps."""
    number = 0

    async def add_at_once() -> None:
        nonlocal number
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        number += 1

    async def add_late() -> None:
        nonlocal number
        seen = number
        await anyio.lowlevel.checkpoint()
        number = seen + 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add_at_once)
        tasks.start_soon(add_late)
    return number


@pytest.mark.parametrize("after", [0, 4])
def test_a_race_in_memory_is_found_within_a_few_seeds(backend: BackendName, after: int) -> None:
    numbers = [run(race, after, backend=backend, seed=seed) for seed in range(50)]
    assert set(numbers) == {1, 2}
    assert numbers[:20] == [run(race, after, backend=backend, seed=seed) for seed in range(20)]


def test_a_race_over_rows_is_found_within_a_few_seeds(backend: BackendName, tmp_path: Path) -> None:
    async def add(database: Database) -> None:
        n = await database.fetch_value("SELECT n FROM tally")
        await database.execute("UPDATE tally SET n = $1", n + 1)

    async def main(clock: VirtualClock) -> int:
        async with open_test_database(url, clock=clock) as database:
            await create(database)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(add, database)
                tasks.start_soon(add, database)
            return int(await database.fetch_value("SELECT n FROM tally"))

    url = f"sqlite+inloop:///{tmp_path / 'kit.db'}"
    found = set()
    for seed in range(6):
        clock = VirtualClock()
        found.add(run(main, clock, backend=backend, clock=clock, seed=seed))
    assert found == {1, 2}


def test_ready_tasks_go_by_their_age_and_not_by_a_sets_order(backend: BackendName) -> None:
    """Those whom a cancelled scope lets go on are in sets of both backends."""

    async def main() -> str:
        log: list[str] = []

        async def wait(name: str) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                log.append(name)

        async with anyio.create_task_group() as tasks:
            for name in "abcdefgh":
                tasks.start_soon(wait, name)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        return "".join(log)

    for seed in range(3):
        assert len({run(main, backend=backend, seed=seed) for _ in range(5)}) == 1
    clocks = [VirtualClock(gate=StatementGate()) for _ in range(5)]
    assert {run(main, backend=backend, clock=clock) for clock in clocks} == {"abcdefgh"}


def test_answers_of_threads_come_when_nothing_else_can_happen(backend: BackendName) -> None:
    async def main() -> list[int]:
        log: list[int] = []

        async def work() -> None:
            await anyio.to_thread.run_sync(int)
            log.append(-1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            for n in range(200):
                await anyio.lowlevel.checkpoint()
                log.append(n)
        return log

    assert run(main, backend=backend, seed=1) == [*range(200), -1]


def test_a_task_that_waits_by_turning_gets_its_answer(backend: BackendName) -> None:
    async def main() -> bool:
        done: list[int] = []

        async def work() -> None:
            done.append(await anyio.to_thread.run_sync(int))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            while not done:
                await anyio.lowlevel.checkpoint()
        return True

    assert run(main, backend=backend, seed=1)
    assert run(main, backend=backend, clock=VirtualClock(gate=StatementGate()))


def test_callables_without_a_name_sort_alike_in_each_run_on_trio() -> None:
    class Asks:
        async def __call__(self, gate: StatementGate, label: str) -> None:
            await gate.turn(label)

    async def main(clock: VirtualClock) -> list[str]:
        gate = clock.gate
        assert gate is not None
        asking = sorted([Asks() for _ in range(4)], key=id, reverse=True)
        async with trio.open_nursery() as nursery:
            for each, label in zip(asking, "abcd", strict=True):
                nursery.start_soon(each, gate, label)
        return gate.turns

    # The first to be started lies last in memory.
    clock = VirtualClock(gate=StatementGate())
    assert run(main, clock, backend="trio", clock=clock) == ["/0: a", "/0: b", "/0: c", "/0: d"]


def test_asyncio_transports_are_not_overtaken(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that is called for by one callback comes after the callbacks before that."""
    url = f"mysql+asyncmy://{request.getfixturevalue('emptied_mariadb')}"

    async def main(clock: VirtualClock) -> None:
        async def connect(name: str) -> None:
            async with open_test_database(url, clock=clock, instance=name) as database:
                await database.fetch("SELECT 1")

        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(connect, name)

    for seed in range(5):
        clock = VirtualClock()
        run(main, clock, clock=clock, seed=seed)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_trio_gets_its_own_order_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["trio._core._run"]
    before = module._r, module._ALLOW_DETERMINISTIC_SCHEDULING  # type: ignore[attr-defined]

    async def main() -> object:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
        return module._r  # type: ignore[attr-defined]

    assert run(main, backend="trio", seed=1) is before[0]
    assert before == (module._r, module._ALLOW_DETERMINISTIC_SCHEDULING)  # type: ignore[attr-defined]


def test_a_trio_that_keeps_its_order_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()

    with monkeypatch.context() as patch:
        patch.delattr("trio._core._run._r")
        with pytest.raises(StartupError, match=r"trio .* a seed cannot be honoured"):
            run(main, backend="trio", seed=1)
    # One that has the names, and asks them for nothing.
    with monkeypatch.context() as patch:
        patch.setattr("inboxkit_testing._trio_order._SOURCE", "_elsewhere")
        patch.setattr("trio._core._run._elsewhere", sys.modules["random"].Random(), raising=False)
        with pytest.raises(StartupError, match="a seed cannot be honoured"):
            run(main, backend="trio", seed=1)
    run(main, backend="trio", seed=1)


# The rest of the kit.


def test_a_runner_and_an_app_keep_to_the_seed(backend: BackendName, tmp_path: Path) -> None:
    url = f"sqlite+inloop:///{tmp_path / 'kit.db'}"

    def once(seed: int) -> Any:
        log: list[Any] = []
        clock = VirtualClock()
        with VirtualRunner(backend=backend, clock=clock, seed=seed) as runner:
            database = open_test_database(url, clock=clock)
            runner.call(database.__aenter__)
            runner.call(create, database)
            app = TestApp(service_noting(log)(database))
            runner.call(app.__aenter__)
            for n in range(4):
                publish: Callable[[], Awaitable[Any]] = lambda n=n: app.publish(  # type: ignore[misc]  # noqa: E731
                    STEPS.group("xyz"[n % 3]), b"%d" % n, id=f"{n}"
                )
                runner.call(publish)
            runner.call(app.advance, 10 * SECOND)
            numbers = [call.message for call in app.subscriber("count").runs]
            runner.call(app.__aexit__, None, None, None)
            runner.call(database.__aexit__, None, None, None)
        assert clock.gate is not None
        return clock.gate.turns, log, numbers

    told = [once(seed) for seed in (1, 2, 3)]
    assert told == [once(seed) for seed in (1, 2, 3)]
    assert len({repr(each) for each in told}) > 1


def test_lines_tell_who_sent_what_and_who_waited(backend: BackendName, tmp_path: Path) -> None:
    url = f"sqlite+inloop:///{tmp_path / 'kit.db'}"
    clock = VirtualClock(gate=StatementGate([1]))

    async def ask(database: Database) -> None:
        await database.fetch("SELECT 'a rather long statement of the service, cut off', 1, 2, 3")

    async def main() -> list[str]:
        gate = clock.gate
        assert gate is not None
        async with (
            open_test_database(url, clock=clock) as one,
            open_test_database(url, clock=clock, instance="a") as other,
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, one)
                tasks.start_soon(ask, other)
            return gate.lines()

    text = "fetch SELECT 'a rather long statement of the service, cut off', …"
    assert run(main, backend=backend, clock=clock) == [
        "   1  main/0: connect",
        "   2  a/0: connect",
        f"   3  a/1: {text}    before ask/1: {text}",
        f"   4  ask/1: {text}",
    ]
