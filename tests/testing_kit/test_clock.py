"""Time moves at once to what is due next, exactly, and by hand where it is frozen."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone

import anyio
import anyio.lowlevel
import pytest

from inboxkit.abc import Clock
from inboxkit.errors import ClosedError
from inboxkit_testing import VirtualClock, run
from inboxkit_testing.backends import BackendName

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_the_clock_is_a_clock() -> None:
    clock = VirtualClock()
    assert isinstance(clock, Clock)
    assert isinstance(clock.at("b"), Clock)


def test_all_sleeps_are_of_one_time(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> list[object]:
        await clock.sleep(1)
        await anyio.sleep(2)
        with anyio.move_on_after(3):
            await anyio.sleep_forever()
        return [clock.now() - START, clock.monotonic(), anyio.current_time()]

    assert run(main, backend=backend, clock=clock) == [timedelta(seconds=6), 6.0, 6.0]


def test_asyncio_timers_are_of_the_same_time() -> None:
    clock = VirtualClock()

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(2, future.set_result, None)
        await future
        return clock.monotonic()

    assert run(main, clock=clock) == 7.0


def test_a_day_of_short_sleeps_ends_on_the_second(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> datetime:
        for _ in range(8_640):
            await clock.sleep(10)
        return clock.now()

    assert run(main, backend=backend, clock=clock) == START + timedelta(days=1)
    assert clock.jumps == 8_640


def test_sleep_until_is_exact_to_the_microsecond_over_forty_years(backend: BackendName) -> None:
    chance = random.Random(2030)
    span = timedelta(days=365 * 40) // timedelta(microseconds=1)
    targets = sorted(START + timedelta(microseconds=chance.randrange(span)) for _ in range(3_000))
    clock = VirtualClock()

    async def main() -> list[datetime]:
        reached = []
        for target in targets:
            await clock.sleep_until(target)
            reached.append(clock.now())
        return reached

    assert run(main, backend=backend, clock=clock) == targets


def test_simultaneous_sleepers_wake_at_their_own_instants_years_later(backend: BackendName) -> None:
    chance = random.Random(7)
    clock = VirtualClock()
    year = 365 * 86_400.0
    targets = [START + timedelta(seconds=20 * year + chance.random() * 10) for _ in range(300)]
    reached: dict[datetime, datetime] = {}

    async def sleeper(target: datetime) -> None:
        await clock.sleep_until(target)
        reached[target] = clock.now()

    async def main() -> None:
        async with anyio.create_task_group() as sleepers:
            for target in targets:
                sleepers.start_soon(sleeper, target)

    run(main, backend=backend, clock=clock)
    assert all(target == at for target, at in reached.items())
    assert len(reached) == 300


def test_sleep_until_takes_any_time_zone(backend: BackendName) -> None:
    clock = VirtualClock()
    target = datetime(2030, 1, 1, 3, tzinfo=timezone(timedelta(hours=2)))

    async def main() -> datetime:
        await clock.sleep_until(target)
        return clock.now()

    assert run(main, backend=backend, clock=clock) == target


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_a_sleep_of_nothing_is_a_checkpoint(backend: BackendName, seconds: float) -> None:
    clock = VirtualClock()

    async def main() -> list[str]:
        log: list[str] = []

        async def other() -> None:
            log.append("other")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await clock.sleep(seconds)
            await clock.sleep_until(START)
            await anyio.lowlevel.checkpoint()
            log.append("main")
            with anyio.CancelScope() as scope:
                scope.cancel()
                await clock.sleep(seconds)
            assert scope.cancelled_caught
        return log

    assert run(main, backend=backend, clock=clock) == ["other", "main"]
    assert clock.monotonic() == 0.0


def test_advance_settles_each_instant_before_the_next(backend: BackendName) -> None:
    clock = VirtualClock(frozen=True)
    log: list[tuple[str, float]] = []

    async def ticker(name: str, seconds: float) -> None:
        while True:
            await clock.sleep(seconds)
            for _ in range(5):  # takes several turns of the loop, and no time
                await anyio.lowlevel.checkpoint()
            log.append((name, clock.monotonic()))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ticker, "a", 2.0)
            tasks.start_soon(ticker, "b", 3.0)
            await clock.advance(timedelta(seconds=5))
            log.append(("advanced", clock.monotonic()))
            await clock.advance(timedelta(seconds=1))
            assert {name for name, at in log if at == 6.0} == {"a", "b"}
            assert clock.now() == START + timedelta(seconds=6)
            tasks.cancel_scope.cancel()

    run(main, backend=backend, clock=clock)
    assert log[:4] == [("a", 2.0), ("b", 3.0), ("a", 4.0), ("advanced", 5.0)]


def test_what_is_due_at_the_end_of_an_advance_has_happened_however_it_was_waited_for(
    backend: BackendName,
) -> None:
    """An instant that was reached by a sum of floats may lie a hair behind the one that it is meant for."""
    clock = VirtualClock(frozen=True)
    pieces = random.Random(7)
    done: list[datetime] = []

    async def visit(instants: list[datetime]) -> None:
        for instant in instants:
            while (left := (instant - clock.now()).total_seconds()) > 0:  # noqa: ASYNC110
                await anyio.sleep(min(left, pieces.uniform(0.9, 1.0)))
            done.append(clock.now())

    async def main() -> None:
        instants = [START + timedelta(seconds=10.1 * n) for n in range(1, 200)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(visit, instants)
            for count in range(1, 200):
                await clock.advance(timedelta(seconds=10.1))
                assert done == instants[:count]

    run(main, backend=backend, clock=clock)


def test_sleeps_and_the_loops_own_timers_that_are_due_together_end_at_one_instant(
    backend: BackendName,
) -> None:
    clock = VirtualClock()

    async def main() -> list[float]:
        ends: list[float] = []

        async def wait(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
            for _ in range(3):
                await sleep(seconds)
                ends.append(clock.monotonic())

        async with anyio.create_task_group() as tasks:
            for sleep in (clock.sleep, anyio.sleep, clock.at("b").sleep):
                for seconds in (0.7, 2.1):
                    tasks.start_soon(wait, sleep, seconds)
        return ends

    ends = run(main, backend=backend, clock=clock)
    assert [round(end, 6) for end in ends] == [0.7] * 3 + [1.4] * 3 + [2.1] * 6 + [4.2] * 3 + [
        6.3
    ] * 3


def test_a_cancelled_sleep_no_longer_moves_the_time(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> float:
        for _ in range(1_000):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(clock.sleep, 3600)
                    tasks.start_soon(clock.sleep, 0.001)
                    await clock.sleep(0.002)
                    scope.cancel()
        await clock.sleep(1)
        return clock.monotonic()

    assert run(main, backend=backend, clock=clock) == pytest.approx(3.0)
    assert clock.jumps == 2_001
    assert len(clock.keeper.alarms) < 200, "sleeps that nobody waits for pile up"


def test_a_sleep_that_is_over_when_it_is_cancelled_has_ended(backend: BackendName) -> None:
    """Whoever else is due at that instant may cancel it: it ends once, one way or the other."""
    clock = VirtualClock()

    async def main() -> int:
        ends = 0
        for _ in range(50):
            with anyio.CancelScope() as scope:

                async def cancel(scope: anyio.CancelScope = scope) -> None:
                    await clock.sleep(1)
                    scope.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel)
                    await clock.sleep(1)
            ends += 1
        await clock.sleep(1)
        return ends

    assert run(main, backend=backend, clock=clock) == 50
    assert clock.monotonic() == 51


def test_advance_without_anything_due_moves_the_time(backend: BackendName) -> None:
    clock = VirtualClock(frozen=True)

    async def main() -> None:
        for _ in range(100):
            await clock.advance(timedelta(milliseconds=100))
        await clock.advance(timedelta(0))
        assert clock.now() == START + timedelta(seconds=10)
        with pytest.raises(ValueError, match="back"):
            await clock.advance(timedelta(seconds=-1))

    run(main, backend=backend, clock=clock)


def test_two_advances_at_once_end_in_order_of_their_instants(backend: BackendName) -> None:
    clock = VirtualClock(frozen=True)
    log: list[tuple[float, float]] = []

    async def advance(seconds: float) -> None:
        await clock.advance(timedelta(seconds=seconds))
        log.append((seconds, clock.monotonic()))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for seconds in (3.0, 1.0, 2.0):
                tasks.start_soon(advance, seconds)

    run(main, backend=backend, clock=clock)
    assert log == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


def test_a_cancelled_advance_no_longer_moves_a_frozen_clock(backend: BackendName) -> None:
    clock = VirtualClock(frozen=True)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.advance, timedelta(hours=1))
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await clock.settle()
        assert clock.monotonic() == 0.0

    run(main, backend=backend, clock=clock)


def test_settle_returns_when_all_is_done_and_no_time_has_passed(backend: BackendName) -> None:
    clock = VirtualClock()
    log: list[str] = []

    async def worker() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(log.append, "thread")
        log.append("worker")
        await clock.sleep(1)
        log.append("later")

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker)
            await clock.settle()
            assert log == ["thread", "worker"]
            assert clock.monotonic() == 0.0

    run(main, backend=backend, clock=clock)
    assert log == ["thread", "worker", "later"]


def test_freeze_and_autojump_in_a_run_are_for_that_run(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> float:
        clock.freeze()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.sleep, 10)
            await clock.advance(timedelta(seconds=3))
            assert clock.monotonic() == 3.0
            assert clock.is_frozen
            clock.autojump()
        return clock.monotonic()

    assert run(main, backend=backend, clock=clock) == 10.0
    clock.freeze()

    async def second() -> bool:
        return clock.is_frozen

    assert run(second, backend=backend, clock=clock)


def test_each_run_starts_anew(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> list[object]:
        before = [clock.now(), clock.jumps]
        await clock.sleep(5)
        return before

    for _ in range(2):
        assert run(main, backend=backend, clock=clock) == [START, 0]
    assert clock.now() == START + timedelta(seconds=5)


def test_a_clock_serves_one_run_at_a_time(backend: BackendName) -> None:
    clock = VirtualClock()

    async def nested() -> None:
        raise AssertionError("not reached")

    async def main() -> None:
        with pytest.raises(ClosedError, match="in use"):
            run(nested, backend=backend, clock=clock)
        await clock.sleep(1)

    run(main, backend=backend, clock=clock)
    assert clock.monotonic() == 1.0


def test_a_clock_without_a_run_says_so() -> None:
    clock = VirtualClock()
    assert clock.now() == START
    with pytest.raises(ClosedError, match="no run drives"):
        anyio.run(clock.sleep, 1)
    with pytest.raises(ValueError, match="aware"):
        VirtualClock(datetime(2030, 1, 1))  # noqa: DTZ001


def test_importing_the_kit_imports_no_loop_and_no_hypothesis() -> None:
    code = (
        "import sys, inboxkit_testing, inboxkit_testing.clock, inboxkit_testing.gate\n"
        "print([name for name in ('trio', 'hypothesis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_asyncio_runs_need_no_trio() -> None:
    code = (
        "import sys; sys.modules['trio'] = None\n"
        "from inboxkit_testing import run, VirtualClock\n"
        "clock = VirtualClock()\n"
        "run(clock.sleep, 3, clock=clock); print(clock.monotonic())\n"
        "try: run(clock.sleep, 3, clock=clock, backend='trio')\n"
        "except Exception as error: print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3.0", "MissingExtraError"]


def test_asyncio_reads_a_socket_while_a_task_turns_without_a_pause() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            reading = asyncio.create_task(asyncio.get_running_loop().sock_recv(ours, 5))
            await asyncio.sleep(0)
            theirs.send(b"hello")
            while not reading.done():  # noqa: ASYNC110 - turning is what is tested
                await asyncio.sleep(0)
            return reading.result()

    assert run(main, backend="asyncio", clock=VirtualClock()) == b"hello"
