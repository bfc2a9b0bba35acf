from __future__ import annotations

import math
from datetime import timedelta
from random import Random

import pytest

from inboxkit._core.backoff import Backoff
from inboxkit.errors import DeclarationError

SECOND = timedelta(seconds=1)


def delays(backoff: Backoff, attempts: int = 5) -> list[float]:
    return [backoff.delay(n, Random(0)).total_seconds() for n in range(1, attempts + 1)]


def test_exponential_doubles_up_to_its_maximum() -> None:
    assert delays(Backoff.exponential(maximum=10 * SECOND, jitter=0)) == [1, 2, 4, 8, 10]


def test_linear_adds_and_fixed_stays() -> None:
    assert delays(Backoff.linear(2 * SECOND)) == [2, 4, 6, 8, 10]
    assert delays(Backoff.fixed(7 * SECOND)) == [7] * 5
    assert delays(Backoff.immediate()) == [0] * 5


def test_jitter_varies_to_both_sides_and_never_past_the_maximum() -> None:
    random = Random(1)
    backoff = Backoff.exponential(first=100 * SECOND, factor=1, jitter=0.1, maximum=105 * SECOND)
    seen = [backoff.delay(1, random) for _ in range(500)]
    assert min(seen) < 95 * SECOND
    assert max(seen) == 105 * SECOND
    assert min(seen) >= 90 * SECOND


def test_the_same_seed_gives_the_same_delays() -> None:
    backoff = Backoff.exponential()
    one, other = Random(7), Random(7)
    assert [backoff.delay(3, one) for _ in range(9)] == [backoff.delay(3, other) for _ in range(9)]


def test_without_jitter_no_number_is_drawn() -> None:
    random = Random(7)
    before = random.getstate()
    Backoff.fixed(SECOND).delay(1, random)
    assert random.getstate() == before


@pytest.mark.parametrize("attempt", [-5, 0, 1])
def test_attempts_below_one_read_as_one(attempt: int) -> None:
    assert Backoff.exponential(jitter=0).delay(attempt, Random(0)) == SECOND


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff.exponential(),
        Backoff.exponential(factor=1e300, maximum=timedelta.max),
        Backoff.linear(timedelta(days=1), maximum=timedelta.max, jitter=1.0),
        Backoff.fixed(timedelta.max, jitter=1.0),
    ],
)
def test_no_attempt_count_overflows(backoff: Backoff) -> None:
    for attempt in (10**3, 10**9, 10**30):
        delay = backoff.delay(attempt, Random(0))
        assert timedelta(0) <= delay <= backoff.maximum
        assert delay <= timedelta(days=365 * 1000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Backoff.exponential(first=-SECOND), "first must not be negative"),
        (lambda: Backoff.exponential(maximum=-SECOND), "maximum must not be negative"),
        (lambda: Backoff.exponential(first=1), "first must be a timedelta"),  # type: ignore[arg-type]
        (lambda: Backoff.exponential(factor=0.5), "factor must be 1 or more"),
        (lambda: Backoff.exponential(factor=math.nan), "factor must be 1 or more"),
        (lambda: Backoff.exponential(factor=math.inf), "factor must be 1 or more"),
        (lambda: Backoff.exponential(jitter=1.5), "jitter must lie between 0 and 1"),
        (lambda: Backoff.exponential(jitter=-0.1), "jitter must lie between 0 and 1"),
        (lambda: Backoff.fixed(SECOND, jitter=math.nan), "jitter must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()  # type: ignore[operator]
