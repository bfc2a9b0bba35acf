"""Generates schedules: small worlds with whole and half seconds, so that instants meet."""

from __future__ import annotations

from collections.abc import Sequence

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

__all__ = ["acts", "calm_schedules", "jobs", "rough_schedules"]

_ANSWERS: list[Answer] = ["ack", "none", "drop", "retry", "retry after", "raise", "settle ack"]
choices = st.lists(st.integers(0, 7), max_size=12).map(tuple)
delays = st.dictionaries(st.integers(3, 40), st.sampled_from([1.0, 4.0, 9.5, 15.0]), max_size=2)
scripts = st.sampled_from(["claim", "settle", "renew"])


def acts(*, longest: float = 4.0) -> st.SearchStrategy[Act]:
    """One run of a handler."""
    return st.builds(
        Act,
        answer=st.sampled_from(_ANSWERS),
        seconds=st.sampled_from([s for s in (0.0, 0.5, 1.0, 4.0, 12.0, 30.0) if s <= longest]),
        delay=st.sampled_from([0.0, 1.0, 2.5, 10.0]),
    )


def jobs(*, longest: float = 4.0) -> st.SearchStrategy[Job]:
    """One row."""
    return st.builds(
        Job,
        acts=st.lists(acts(longest=longest), max_size=3).map(tuple),
        group=st.sampled_from("aab"),
        priority=st.sampled_from([0, 1, 2, None]),
        due_in=st.sampled_from([None, None, 0.0, 1.0, 3.0, -2.0]),
        key=st.sampled_from("xyz"),
    )


def _publishes(by: Sequence[str | None], longest: float) -> st.SearchStrategy[Step]:
    return st.builds(Publish, jobs(longest=longest), by=st.sampled_from(by))


_advances = st.builds(Advance, st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0, 20.0]))


@st.composite
def calm_schedules(
    draw: st.DrawFn,
    *,
    shapes: Sequence[Shape] = ("plain", "kept"),
    instances: tuple[str, ...] = ("a",),
    by: Sequence[str | None] = ("a", None),
    poll: float = 5.0,
    longest: float = 12.0,
) -> Schedule:
    """Rows come, time passes, and nothing goes wrong."""
    steps = draw(st.lists(st.one_of(_publishes(by, longest), _advances), min_size=1, max_size=9))
    shape = draw(st.sampled_from(shapes))
    return Schedule(
        tuple(steps),
        shape=shape,
        instances=instances,
        workers=draw(st.integers(1, 3)),
        cap=None if shape == "keyed" else draw(st.sampled_from([None, 1, 2, 3])),
        lease=draw(st.sampled_from([4, 10])),
        poll=poll,
        choices=draw(choices),
    )


@st.composite
def rough_schedules(
    draw: st.DrawFn, *, shapes: Sequence[Shape] = ("plain", "kept", "fifo", "bare fifo")
) -> Schedule:
    """Two instances that are killed, stopped and restarted, and statements that go wrong."""
    names = st.sampled_from("ab")
    step = st.one_of(
        _publishes(("a", "b", None), 30.0),
        _advances,
        _advances,
        st.builds(
            Fault,
            names,
            st.sampled_from(["lose reply", "refuse", "delay"]),
            scripts,
            times=st.integers(1, 3),
            seconds=st.sampled_from([1.0, 5.0, 12.0]),
        ),
        st.one_of(
            st.builds(Crash, names),
            st.builds(CrashAt, names, scripts, st.sampled_from(["before", "after"])),
            st.builds(Stop, names, st.booleans()),
            st.builds(Restart, names),
        ),
    )
    first = draw(st.lists(_publishes(("a", "b", None), 30.0), min_size=1, max_size=3))
    steps = first + draw(st.lists(step, min_size=1, max_size=10))
    shape = draw(st.sampled_from(shapes))
    return Schedule(
        tuple(steps),
        shape=shape,
        instances=("a", "b"),
        workers=draw(st.integers(1, 3)),
        cap=None if shape == "keyed" else draw(st.sampled_from([None, 1, 2, 3])),
        lease=draw(st.sampled_from([4, 10])),
        choices=draw(choices),
        delays=draw(delays),
    )
