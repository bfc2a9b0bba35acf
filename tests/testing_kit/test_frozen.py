"""freezegun and time-machine beside a virtual clock: told, at the start of a run and in its middle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import anyio
import pytest

from inboxkit.errors import DeclarationError
from inboxkit_testing import VirtualClock, run
from inboxkit_testing.backends import BackendName

Freeze = Callable[[], AbstractContextManager[object]]


@pytest.fixture(params=["freezegun", "time-machine"])
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name.replace("-", "_"))
    return name


@pytest.fixture
def freeze(library: str) -> Freeze:
    if library == "freezegun":
        import freezegun

        return lambda: freezegun.freeze_time("2020-02-02")
    import time_machine

    return lambda: time_machine.travel("2020-02-02", tick=False)


async def sleep() -> None:
    await anyio.sleep(1)


async def wait_for_nothing() -> None:
    await anyio.Event().wait()


def test_a_run_does_not_begin_in_frozen_time(
    backend: BackendName, library: str, freeze: Freeze
) -> None:
    clock = VirtualClock()
    with freeze(), pytest.raises(DeclarationError, match=f"^{library} .* VirtualClock.start="):
        run(sleep, backend=backend, clock=clock)
    run(sleep, backend=backend, clock=clock)
    assert clock.monotonic() == 1


@pytest.mark.parametrize("wait", [sleep, wait_for_nothing])
def test_a_run_ends_when_it_waits_in_frozen_time(
    backend: BackendName, library: str, freeze: Freeze, wait: Callable[[], object]
) -> None:
    clock = VirtualClock()

    async def main() -> None:
        await anyio.sleep(1)
        with freeze():
            await wait()  # type: ignore[misc]

    with pytest.raises(DeclarationError, match=f"^{library} "):
        run(main, backend=backend, clock=clock)
    assert clock.monotonic() == 1


def test_sync_code_may_freeze_time(backend: BackendName, freeze: Freeze) -> None:
    async def main() -> None:
        with freeze():
            sum(range(10))
        await anyio.sleep(1)

    run(main, backend=backend)
