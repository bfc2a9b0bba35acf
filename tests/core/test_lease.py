from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from inboxkit._core.lease import (
    LATEST,
    ExpirySteps,
    add,
    expiry,
    fit,
    hold_end,
    margin,
    renewed_expiry,
    whole_seconds,
)
from inboxkit.errors import DeclarationError

NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LEASE = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("given", "seconds"), [(0.4, 1), (1, 1), (1.000001, 2), (29.5, 30), (30, 30)]
)
def test_leases_are_rounded_up_to_whole_seconds(given: float, seconds: int) -> None:
    assert whole_seconds(timedelta(seconds=given)) == timedelta(seconds=seconds)


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(seconds=-1)])
def test_a_lease_is_longer_than_zero(lease: timedelta) -> None:
    with pytest.raises(DeclarationError, match="longer than zero"):
        whole_seconds(lease)


def test_a_lease_is_a_timedelta() -> None:
    with pytest.raises(DeclarationError, match="must be a timedelta, not 30"):
        whole_seconds(30)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "microsecond"), [(6, 123456), (4, 123500), (3, 123000), (2, 120000), (0, 0)]
)
def test_instants_are_rounded_as_the_column_would(precision: int, microsecond: int) -> None:
    assert fit(NOW, precision).microsecond == microsecond


def test_rounding_up_carries() -> None:
    last = datetime(2029, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    assert fit(last, 3) == datetime(2030, 1, 1, tzinfo=UTC)


def test_instants_saturate() -> None:
    assert add(NOW, timedelta.max) == LATEST
    assert add(LATEST, timedelta(microseconds=1)) == LATEST
    assert expiry(LATEST, LEASE, steps=ExpirySteps(0), precision=6) == LATEST
    assert LATEST.astimezone(timezone(timedelta(hours=14))).year == 9999


def test_expiries_at_one_instant_differ_by_steps() -> None:
    steps = ExpirySteps(998)
    ends = [expiry(NOW, LEASE, steps=steps, precision=6) - NOW - LEASE for _ in range(3)]
    assert ends == [timedelta(microseconds=n) for n in (999, 0, 1)]


def test_a_coarse_column_takes_no_steps() -> None:
    steps = ExpirySteps(500)
    assert expiry(NOW, LEASE, steps=steps, precision=3) == fit(NOW + LEASE, 3)
    assert steps.step == 500


def test_a_clock_that_was_set_back_does_not_shorten_a_lease() -> None:
    old = NOW + LEASE
    back = NOW - timedelta(hours=1)
    renewed = renewed_expiry(back, LEASE, old=old, elapsed=15.0, steps=ExpirySteps(0), precision=6)
    # But for the token's step, at most a millisecond, which is not carried along.
    assert renewed > old + timedelta(seconds=15) - timedelta(milliseconds=1)


def test_a_hold_ends_a_tenth_of_the_lease_early() -> None:
    assert margin(LEASE) == pytest.approx(3.0)
    assert hold_end(100.0, LEASE) == pytest.approx(127.0)
