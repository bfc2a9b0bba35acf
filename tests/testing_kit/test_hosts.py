"""Hosts whose clocks are wrong share one true time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from inboxkit_testing import VirtualClock, run
from inboxkit_testing.backends import BackendName

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_host_may_be_ahead_and_behind(backend: BackendName) -> None:
    clock = VirtualClock()
    ahead = clock.at("ahead", timedelta(seconds=5))
    behind = clock.at("behind", timedelta(minutes=-1))

    async def main() -> None:
        assert ahead.now() == START + timedelta(seconds=5)
        await ahead.sleep(10)
        assert clock.monotonic() == 10.0
        assert behind.now() == START + timedelta(seconds=-50)
        await behind.sleep_until(START)
        assert behind.now() == START
        assert clock.monotonic() == 60.0
        await ahead.sleep_until(START)  # long past there
        assert clock.monotonic() == 60.0

    run(main, backend=backend, clock=clock)


@pytest.mark.parametrize("drift", [0.25, -0.5, 1e-4, -3.7e-5])
def test_a_host_sleeps_in_its_own_seconds(backend: BackendName, drift: float) -> None:
    clock = VirtualClock()

    async def main() -> None:
        await clock.sleep(100)
        host = clock.at("host", timedelta(seconds=1), drift)
        assert host.now() == clock.now() + timedelta(seconds=1)
        began, true = host.monotonic(), clock.monotonic()
        await host.sleep(10)
        assert host.monotonic() - began == pytest.approx(10)
        assert clock.monotonic() - true == pytest.approx(10 / (1 + drift))
        for day in range(1, 400):
            target = START + timedelta(days=day, microseconds=day * 7)
            await host.sleep_until(target)
            assert timedelta(0) <= host.now() - target <= timedelta(microseconds=2)

    run(main, backend=backend, clock=clock)


def test_a_host_outlives_a_run(backend: BackendName) -> None:
    clock = VirtualClock()
    host = clock.at("host", drift=1.0)

    async def main() -> datetime:
        await clock.sleep(10)
        return host.now()

    for _ in range(2):
        assert run(main, backend=backend, clock=clock) == START + timedelta(seconds=20)


def test_a_clock_that_stands_still_is_refused() -> None:
    for drift in (-1.0, -2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="drift"):
            VirtualClock().at("host", drift=drift)
