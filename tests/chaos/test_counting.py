"""The count sees each fault that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chaos_counting import Count, count, finished_after, recoveries
from chaos_publishing import make_tables
from chaos_sql import Outside
from chaos_workers import Kill

WHOLE = [(1, "once"), (2, "plain"), (3, "ordered"), (4, "ordered"), (5, "single"), (6, "single")]


def effect(outside: Outside, number: int, queue: str, *, attempt: int = 1, at: float = 0.0) -> None:
    outside.run(
        "INSERT INTO effects (queue, number, target, sequence, attempt, worker, at) VALUES (?, ?, ?, ?, ?, 7, ?)",
        *(queue, number, queue, number, attempt, at),
    )


def begin(outside: Outside, number: int, attempt: int) -> None:
    outside.run("INSERT INTO begun (number, attempt, worker) VALUES (?, ?, 7)", number, attempt)


@pytest.fixture
def whole(tmp_path: Path) -> Outside:
    """Six jobs that are all done, each once and in order."""
    url = f"sqlite:///{tmp_path / 'chaos.db'}"
    make_tables(url, "lease")
    outside = Outside(url)
    for number, queue in WHOLE:
        values = (queue, number, queue, number)
        outside.run(
            "INSERT INTO published (queue, number, target, sequence) VALUES (?, ?, ?, ?)", *values
        )
        effect(outside, number, queue)
    begin(outside, 2, 1)
    return outside


def counted(outside: Outside) -> Count:
    with outside:
        return count(outside)


def test_nothing_is_found_where_nothing_is(whole: Outside) -> None:
    counted(whole).check(6, counts_crashes=True)


FAULTS: dict[str, Callable[[Outside], object]] = {
    "lost": lambda outside: outside.run("DELETE FROM effects WHERE number = 2"),
    "unknown": lambda outside: effect(outside, 99, "plain"),
    "doubled": lambda outside: effect(outside, 1, "once", attempt=2),
    "unordered": lambda outside: effect(outside, 3, "ordered", attempt=2),
    "overtaken": lambda outside: effect(outside, 5, "single", attempt=2),
    "same_attempt": lambda outside: begin(outside, 2, 1),
    "left": lambda outside: outside.run(
        "INSERT INTO jobs (queue, attempt, payload) VALUES ('once', 1, 'x')"
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(whole: Outside, fault: str) -> None:
    FAULTS[fault](whole)
    found = counted(whole)
    assert getattr(found, fault) == 1
    with pytest.raises(AssertionError, match=fault):
        found.check(6, counts_crashes=True)


def test_a_job_that_was_not_published_is_missed(whole: Outside) -> None:
    with pytest.raises(AssertionError):
        counted(whole).check(7, counts_crashes=True)


def test_a_plain_job_may_be_done_again(whole: Outside) -> None:
    begin(whole, 2, 2)
    effect(whole, 2, "plain", attempt=2)
    found = counted(whole)
    found.check(6, counts_crashes=True)
    assert found.repeated == 1


def test_recoveries_are_timed(whole: Outside) -> None:
    with whole:
        whole.run("INSERT INTO begun (number, attempt, worker) VALUES (2, 1, 8)")
        whole.run("DELETE FROM effects WHERE number = 2")
        effect(whole, 2, "plain", attempt=2, at=1002.5)
        assert recoveries(whole, [Kill(8, 1000.0)]) == [2.5]
        assert recoveries(whole, [Kill(7, 1000.0), Kill(9, 1000.0)]) == []
        assert finished_after(whole, [1001.0]) == [1.5]
        with pytest.raises(AssertionError, match="nothing was done"):
            finished_after(whole, [1003.0])
