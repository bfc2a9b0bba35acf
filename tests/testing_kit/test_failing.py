"""How a run ends: with the main's value or exception, or with what the clock found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from inboxkit_testing import (
    ClockStalledError,
    SleepInTransactionError,
    VirtualClock,
    VirtualRunner,
    run,
)
from inboxkit_testing.backends import BackendName

SOON = 0.02
"""Real seconds of a stall in these tests."""


def stalled(main: Callable[[VirtualClock], Awaitable[object]], backend: BackendName) -> str:
    clock = VirtualClock(stall=SOON)
    began = time.monotonic()
    with pytest.raises(ClockStalledError) as caught:
        run(main, clock, backend=backend, clock=clock)
    assert SOON * 0.9 <= time.monotonic() - began < SOON + 5
    return str(caught.value)


def test_exceptions_of_the_main_pass_as_they_are(backend: BackendName) -> None:
    error = ValueError("mine")

    async def main() -> None:
        await anyio.sleep(1)
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        run(main, backend=backend)
    assert caught.value is error


def test_a_group_of_exceptions_passes_as_it_is(backend: BackendName) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            await anyio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        run(main, backend=backend)
    assert [str(error) for error in caught.value.exceptions] == ["mine"]


def test_keyboard_interrupt_ends_a_run(backend: BackendName) -> None:
    async def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(main, backend=backend)


def test_a_clock_serves_again_after_a_failed_run(backend: BackendName) -> None:
    clock = VirtualClock(stall=SOON)
    with pytest.raises(ClockStalledError):
        run(anyio.sleep_forever, backend=backend, clock=clock)
    run(clock.sleep, 3, backend=backend, clock=clock)
    assert clock.monotonic() == 3.0


def test_cancellation_of_sleepers(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> None:
        with anyio.move_on_after(5) as scope:
            await clock.sleep(100)
        assert scope.cancelled_caught
        assert clock.monotonic() == 5.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.sleep, 50)
            tasks.start_soon(clock.settle)
            tasks.cancel_scope.cancel()

    run(main, backend=backend, clock=clock)
    assert clock.monotonic() == 5.0


def test_a_deadlock_is_reported(backend: BackendName) -> None:
    async def main(_: VirtualClock) -> None:
        await anyio.Event().wait()

    assert "deadlock" in stalled(main, backend)


@pytest.mark.parametrize("wait", [anyio.sleep_forever, lambda: asyncio.Event().wait()])
def test_a_wait_for_ever_is_a_deadlock_on_asyncio(wait: Callable[[], Awaitable[object]]) -> None:
    async def main(_: VirtualClock) -> None:
        await wait()

    assert "deadlock" in stalled(main, "asyncio")


def test_a_stall_names_what_is_in_flight_and_for_how_long(backend: BackendName) -> None:
    clock = VirtualClock(stall=SOON)

    async def main() -> None:
        with clock.external("claim"), clock.external("connect"):
            await anyio.sleep(1)

    with pytest.raises(
        ClockStalledError, match=r"'claim' \(for 0\.\d real s\), 'connect'"
    ) as caught:
        run(main, backend=backend, clock=clock)
    assert caught.value.in_flight == ("claim", "connect")


def test_a_stall_counts_threads_and_names_transactions(backend: BackendName) -> None:
    async def main(clock: VirtualClock) -> None:
        with clock.block("a transfer"):
            await anyio.to_thread.run_sync(time.sleep, 5 * SOON)

    message = stalled(main, backend)
    assert "1 worker thread" in message
    assert "'a transfer', opened at " in message


def test_a_thread_that_waits_for_virtual_time_is_a_stall(backend: BackendName) -> None:
    async def main(_: VirtualClock) -> None:
        await anyio.to_thread.run_sync(anyio.from_thread.run, anyio.sleep, 1)

    assert "thread" in stalled(main, backend)


def test_a_frozen_clock_that_all_wait_for_says_how_to_move_it(backend: BackendName) -> None:
    async def main(clock: VirtualClock) -> None:
        clock.freeze()
        await anyio.sleep(7)

    message = stalled(main, backend)
    assert "frozen" in message
    assert "due in 7 s" in message
    assert "await clock.advance(...)" in message


def test_io_that_comes_puts_a_stall_off(backend: BackendName) -> None:
    clock = VirtualClock(stall=10 * SOON)

    async def main() -> None:
        with clock.external("slow work by and by"):
            for _ in range(4):
                await anyio.to_thread.run_sync(time.sleep, 4 * SOON)

    run(main, backend=backend, clock=clock)


def test_bounded_shields_end_after_a_stall(backend: BackendName) -> None:
    log: list[float] = []

    async def main(clock: VirtualClock) -> None:
        with anyio.move_on_after(5, shield=True), clock.external("a hung COMMIT"):
            await anyio.sleep_forever()
        log.append(clock.monotonic())

    assert "a hung COMMIT" in stalled(main, backend)
    assert log == [5.0]


def test_a_sleep_in_a_block_of_its_own_is_refused_where_it_stands(backend: BackendName) -> None:
    clock = VirtualClock()

    async def handler() -> None:
        with clock.block("a transfer"):
            await clock.sleep(0)
            await clock.sleep(3)

    async def main() -> None:
        try:
            await handler()
        except Exception:  # noqa: BLE001 - as a runtime that logs what a handler raises
            await anyio.sleep(1)

    with pytest.raises(
        SleepInTransactionError, match=r"3 s would pass.*test_failing.py:\d+"
    ) as caught:
        run(main, backend=backend, clock=clock)
    assert "handler" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_jump_in_a_block_ends_the_run(backend: BackendName, frozen: bool) -> None:
    clock = VirtualClock(frozen=frozen)
    cleaned: list[str] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.advance, timedelta(seconds=5))
            with clock.block("a transfer"):
                try:
                    await anyio.Event().wait()
                finally:
                    cleaned.append("rolled back")

    with pytest.raises(SleepInTransactionError, match="a transfer"):
        run(main, backend=backend, clock=clock)
    assert cleaned == ["rolled back"]
    assert clock.monotonic() == 0.0


def test_another_task_may_sleep_until_after_a_block(backend: BackendName) -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            with clock.block("short"):
                tasks.start_soon(clock.sleep, 5)
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                await anyio.to_thread.run_sync(time.sleep, 0.002)

    run(main, backend=backend, clock=clock)
    assert clock.monotonic() == 5.0


def test_what_a_hook_raises_is_raised_by_run(backend: BackendName) -> None:
    clock = VirtualClock()

    class Stop(BaseException):
        pass

    def hook() -> bool:
        raise Stop

    async def main() -> None:
        clock.keeper.idle_hooks.append(hook)
        await clock.sleep(1)

    with pytest.raises(Stop):
        run(main, backend=backend, clock=clock)


def test_the_order_of_ready_tasks_is_seeded_on_asyncio() -> None:
    async def main() -> str:
        log: list[str] = []

        async def step(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                log.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(step(name))
        return "".join(log)

    by_seed = {seed: {run(main, seed=seed) for _ in range(5)} for seed in range(8)}
    assert all(len(logs) == 1 for logs in by_seed.values())
    assert len(set.union(*by_seed.values())) > 4
    assert run(main) == "abcabcabc"


def test_seeded_runs_do_real_work(backend: BackendName) -> None:
    async def main() -> int:
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(anyio.sleep, n)
            await anyio.to_thread.run_sync(time.sleep, 0.001)
        return 3

    assert [run(main, backend=backend, seed=seed) for seed in range(5)] == [3] * 5


def test_a_runner_keeps_time_and_tasks_between_calls(backend: BackendName) -> None:
    clock = VirtualClock(stall=SOON)
    ticks: list[float] = []
    groups: list[anyio.abc.TaskGroup] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    async def begin() -> None:
        group = anyio.create_task_group()
        await group.__aenter__()
        groups.append(group)
        group.start_soon(ticker)

    async def end() -> None:
        groups[0].cancel_scope.cancel()
        await groups[0].__aexit__(None, None, None)

    async def fail() -> None:
        raise ValueError("mine")

    with VirtualRunner(backend=backend, clock=clock) as runner:
        runner.call(begin)
        runner.call(clock.settle)
        time.sleep(2 * SOON)
        assert ticks == []
        runner.call(clock.sleep, 2.5)
        assert ticks == [1.0, 2.0]
        with pytest.raises(ValueError, match="mine"):
            runner.call(fail)
        runner.call(end)
        with pytest.raises(ClockStalledError):
            runner.call(anyio.sleep_forever)
        with pytest.raises(ClockStalledError):
            runner.call(clock.settle)
    assert not clock.is_running
