"""Generates schedules: small worlds with whole and half seconds, so that instants meet."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from .schedule import (
    Act,
    Advance,
    Answer,
    Crash,
    CrashAt,
    Fault,
    Job,
    Publish,
    Restart,
    Schedule,
    Shape,
    Step,
    Stop,
)

__all__ = ["calm_schedules", "rough_schedules"]

_ANSWERS: list[Answer] = ["ack", "none", "drop", "retry", "retry after", "raise", "settle ack"]
choices = st.lists(st.integers(0, 7), max_size=12).map(tuple)
delays = st.dictionaries(st.integers(3, 40), st.sampled_from([1.0, 4.0, 9.5, 15.0]), max_size=2)
scripts = st.sampled_from(["claim", "settle", "renew"])
names = st.sampled_from("ab")


# Cached: a strategy that is built anew in each example costs a fifth of its time.
@cache
def acts(longest: float) -> st.SearchStrategy[Act]:
    """One run of a handler, of at most so many seconds."""
    return st.builds(
        Act,
        answer=st.sampled_from(_ANSWERS),
        seconds=st.sampled_from([s for s in (0.0, 0.5, 1.0, 4.0, 12.0, 30.0) if s <= longest]),
        delay=st.sampled_from([0.0, 1.0, 2.5, 10.0]),
    )


@cache
def jobs(longest: float) -> st.SearchStrategy[Job]:
    """One row, whose handlers take at most so many seconds."""
    return st.builds(
        Job,
        acts=st.lists(acts(longest), max_size=3).map(tuple),
        group=st.sampled_from("aab"),
        priority=st.sampled_from([0, 1, 2, None]),
        due_in=st.sampled_from([None, None, 0.0, 1.0, 3.0, -2.0]),
        key=st.sampled_from("xyz"),
    )


@cache
def publishes(by: tuple[str | None, ...], longest: float) -> st.SearchStrategy[Publish]:
    """One row that is inserted by one of these."""
    return st.builds(Publish, jobs(longest), by=st.sampled_from(by))


advances = st.builds(Advance, st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0, 20.0]))

faults = st.builds(
    Fault,
    names,
    st.sampled_from(["lose reply", "refuse", "delay"]),
    scripts,
    times=st.integers(1, 3),
    seconds=st.sampled_from([1.0, 5.0, 12.0]),
)

ends: st.SearchStrategy[Step] = st.one_of(
    st.builds(Crash, names),
    st.builds(CrashAt, names, scripts, st.sampled_from(["before", "after"])),
    st.builds(Stop, names, st.booleans()),
    st.builds(Restart, names),
)


@cache
def _shape(shapes: tuple[Shape, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """What the service is."""
    caps = st.sampled_from([None, 1, 2, 3])
    return st.sampled_from(shapes).flatmap(
        lambda shape: st.fixed_dictionaries(
            {
                "shape": st.just(shape),
                "workers": st.integers(1, 3),
                "cap": st.none() if shape == "keyed" else caps,
                "lease": st.sampled_from([4, 10]),
                "choices": choices,
            }
        )
    )


def calm_schedules(
    *,
    shapes: tuple[Shape, ...] = ("plain", "kept"),
    instances: tuple[str, ...] = ("a",),
    by: tuple[str | None, ...] = ("a", None),
    poll: float = 5.0,
    longest: float = 12.0,
) -> st.SearchStrategy[Schedule]:
    """Rows come, time passes, and nothing goes wrong."""
    steps = st.lists(st.one_of(publishes(by, longest), advances), min_size=1, max_size=9)
    return st.builds(
        lambda steps, shape: Schedule(tuple(steps), instances=instances, poll=poll, **shape),
        steps,
        _shape(shapes),
    )


def rough_schedules(
    *, shapes: tuple[Shape, ...] = ("plain", "kept", "fifo", "bare fifo")
) -> st.SearchStrategy[Schedule]:
    """Two instances that are killed, stopped and restarted, and statements that go wrong."""
    rows = publishes(("a", "b", None), 30.0)
    steps = st.lists(st.one_of(rows, advances, advances, faults, ends), min_size=1, max_size=10)
    return st.builds(
        lambda rows, steps, shape, delays: Schedule(
            (*rows, *steps), instances=("a", "b"), delays=delays, **shape
        ),
        st.lists(rows, min_size=1, max_size=3),
        steps,
        _shape(shapes),
        delays,
    )
