"""Generates schedules: small worlds with whole and half seconds, so that instants meet."""

from __future__ import annotations

from dataclasses import replace
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

__all__ = [
    "belated_schedules",
    "calm_schedules",
    "crowd_schedules",
    "late_schedules",
    "rough_schedules",
    "settling_schedules",
]

_ANSWERS: list[Answer] = ["ack", "none", "drop", "retry", "retry after", "raise", "settle ack"]
choices = st.lists(st.integers(0, 7), max_size=12).map(tuple)
delays = st.dictionaries(st.integers(3, 40), st.sampled_from([1.0, 4.0, 9.5, 15.0]), max_size=1)
scripts = st.sampled_from(["claim", "settle", "renew"])
names = st.sampled_from("aab")


# Cached: a strategy that is built anew in each example costs a fifth of its time.
@cache
def acts(longest: float) -> st.SearchStrategy[Act]:
    """One run of a handler, of at most so many seconds."""
    return st.builds(
        Act,
        answer=st.sampled_from(_ANSWERS),
        seconds=st.sampled_from([s for s in (0.0, 1.0, 4.0, 12.0, 30.0) if s <= longest]),
        delay=st.sampled_from([0.0, 1.0, 2.5, 10.0]),
    )


@cache
def jobs(longest: float) -> st.SearchStrategy[Job]:
    """One row, whose handlers take at most so many seconds."""
    return st.builds(
        Job,
        acts=st.lists(acts(longest), min_size=1, max_size=3).map(tuple),
        group=st.sampled_from("aaab"),
        priority=st.sampled_from([0, 0, 1, None]),
        due_in=st.sampled_from([None, None, 0.0, 1.0, 3.0, 20.0, -2.0]),
        key=st.sampled_from("xyz"),
    )


@cache
def publishes(by: tuple[str | None, ...], longest: float) -> st.SearchStrategy[Publish]:
    """One row that is inserted by one of these."""
    return st.builds(
        Publish,
        jobs(longest),
        by=st.sampled_from(by),
        with_next=st.sampled_from([False, False, True]),
    )


advances = st.builds(Advance, st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0, 20.0]))

_FAULTS = [
    ("delay", "settle", 12.0, 1),  # past a lease: the row is in other hands by then
    ("refuse", "renew", 0.0, 40),  # until the hold is over
    ("lose reply", "claim", 0.0, 1),  # counted, and handed to nobody
    ("lose reply", "renew", 0.0, 40),
    ("lose reply", "settle", 0.0, 1),
    ("refuse", "settle", 0.0, 40),
    ("delay", "renew", 12.0, 40),
    ("delay", "claim", 5.0, 1),
    ("refuse", "claim", 0.0, 3),
    ("refuse", "settle", 0.0, 1),
    ("refuse", "renew", 0.0, 1),
]


def _faults(names: st.SearchStrategy[str], count: int) -> st.SearchStrategy[Fault]:
    kinds = st.sampled_from(_FAULTS[:count])
    return st.builds(lambda name, f: Fault(name, f[0], f[1], f[3], f[2]), names, kinds)


faults = _faults(names, len(_FAULTS))

ends: st.SearchStrategy[Step] = st.one_of(
    st.builds(Crash, names),
    st.builds(CrashAt, names, scripts, st.sampled_from(["before", "after"])),
    st.builds(Stop, names, st.booleans()),
    st.builds(Restart, names),
)


@cache
def _shape(shapes: tuple[Shape, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """What the service is."""
    caps = st.sampled_from([None, 1, 1, 2, 3])
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
    rows = publishes(by, longest)
    steps = st.lists(st.one_of(rows, rows, advances), min_size=2, max_size=12)
    return st.builds(
        lambda steps, shape: Schedule(tuple(steps), instances=instances, poll=poll, **shape),
        steps,
        _shape(shapes),
    )


def rough_schedules(
    *, shapes: tuple[Shape, ...] = ("plain", "kept", "fifo", "bare fifo")
) -> st.SearchStrategy[Schedule]:
    """Two instances that are killed, stopped and restarted, and statements that go wrong."""
    rows = publishes(("a", "a", "b", None), 12.0)
    steps = st.lists(st.one_of(rows, advances, advances, faults, ends), min_size=1, max_size=10)
    anything = st.builds(
        lambda faults, rows, steps: (*faults, *rows, *steps),
        st.lists(faults, max_size=2),
        st.lists(rows, min_size=1, max_size=3),
        steps,
    )
    return st.builds(
        lambda steps, shape, delays: Schedule(steps, instances=("a", "b"), delays=delays, **shape),
        anything,
        _shape(shapes),
        delays,
    )


def late_schedules() -> st.SearchStrategy[Schedule]:
    """One instance holds a row when a fault meets it, and another one waits for the row.

    Little else happens: among all that may go wrong, a uniform draw comes here too seldom.
    """
    act = st.builds(
        Act,
        answer=st.sampled_from(["ack", "drop", "retry", "retry after"]),
        seconds=st.sampled_from([12.0, 1.0, 3.0, 12.0]),
        delay=st.sampled_from([0.0, 2.0]),
    )
    job = st.builds(
        Job,
        acts=st.tuples(act, act.map(lambda act: replace(act, seconds=act.seconds * 4))),
        priority=st.sampled_from([0, 1, None]),
    )
    ends = st.sampled_from([(), (), (Crash("a"),), (Stop("a"),), (Stop("a", True),)])
    return st.builds(
        lambda fault, jobs, wait, end, shape, workers, cap: Schedule(
            (fault, *(Publish(job, "a") for job in jobs), Advance(wait), *end, Advance(20.0)),
            shape=shape,
            instances=("a", "b"),
            workers=workers,
            cap=cap,
            lease=4,
            poll=2.0,
        ),
        _faults(st.just("a"), 4),
        st.lists(job, min_size=1, max_size=2),
        st.sampled_from([1.0, 5.0, 9.0]),
        ends,
        st.sampled_from(["plain", "kept"]),
        st.integers(1, 2),
        st.sampled_from([None, 1, 2]),
    )


def belated_schedules() -> st.SearchStrategy[Schedule]:
    """A handler ends just before its hold does, and its settlement is sent just after the lease.

    Renewals fail, and the other instance looks often: it has the row by then.
    """
    act = st.builds(
        Act,
        answer=st.sampled_from(["ack", "drop", "retry", "retry after"]),
        seconds=st.sampled_from([3.5, 3.4, 1.0]),
        delay=st.sampled_from([0.0, 2.0]),
    )
    job = st.builds(
        Job,
        acts=st.tuples(act, act.map(lambda act: replace(act, seconds=3.0))),
        priority=st.sampled_from([0, None]),
    )
    return st.builds(
        lambda jobs, shape, cap: Schedule(
            (
                Fault("a", "refuse", "renew", 40),
                Fault("a", "delay", "settle", 1, 0.9),
                *(Publish(job, "a") for job in jobs),
                Advance(20.0),
            ),
            shape=shape,
            instances=("a", "b"),
            cap=cap,
            lease=4,
            poll=0.25,
        ),
        st.lists(job, min_size=1, max_size=2),
        st.sampled_from(["plain", "kept"]),
        st.sampled_from([None, 2]),
    )


_BUSY = st.sampled_from([1.0, 4.0, 12.0])


def crowd_schedules(
    shapes: tuple[Shape, ...] = ("plain", "kept"), instances: tuple[str, ...] = ("a",)
) -> st.SearchStrategy[Schedule]:
    """Rows that are alike, and wait together while the workers are busy."""
    first = st.builds(lambda seconds: Publish(Job((Act(seconds=seconds),)), "a"), _BUSY)
    job = st.builds(
        Job,
        acts=st.sampled_from([(), (Act(seconds=1.0),), (Act("retry"),)]),
        priority=st.sampled_from([0, 0, 1, None]),
        due_in=st.sampled_from([None, None, 0.0, 20.0]),
        key=st.sampled_from("xy"),
    )
    return st.builds(
        lambda first, jobs, shape, workers, choices: Schedule(
            (*first, *(Publish(job, instances[-1]) for job in jobs), Advance(20.0)),
            shape=shape,
            instances=instances,
            workers=workers,
            choices=choices,
        ),
        st.lists(first, min_size=1, max_size=2),
        st.lists(job, min_size=2, max_size=5),
        st.sampled_from(shapes),
        st.integers(1, 2),
        choices,
    )


_SETTLE_FAULTS = st.builds(
    lambda kind, times, seconds: Fault("a", kind, "settle", times, seconds),
    st.sampled_from(["lose reply", "refuse", "delay"]),
    st.sampled_from([1, 1, 2, 4]),
    st.sampled_from([0.5, 2.0, 12.0]),
)
_SETTLE_ENDS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Stop, st.just("a"), st.booleans()),
    st.builds(CrashAt, st.just("a"), st.just("settle"), st.sampled_from(["before", "after"])),
    st.just(Restart("a")),
)


def settling_schedules(*, shapes: tuple[Shape, ...]) -> st.SearchStrategy[Schedule]:
    """Many rows of short handlers, so that settlements go out in groups, some of which are lost, fail, are
    late, or are cut off by a stop or a crash."""
    act = st.builds(
        Act,
        answer=st.sampled_from([*_ANSWERS, "ack", "ack"]),
        seconds=st.sampled_from([0.0, 0.0, 0.0, 1.0, 4.0]),
        delay=st.sampled_from([0.0, 2.5]),
    )
    job = st.builds(
        Job,
        acts=st.lists(act, min_size=1, max_size=2).map(tuple),
        group=st.sampled_from("ab" if shapes[0].endswith("fifo") else "a"),
        priority=st.sampled_from([0, 0, 1]),
        key=st.sampled_from("xxy"),
    )
    row = st.builds(Publish, job, by=st.sampled_from(["a", None]), with_next=st.just(True))
    steps = st.lists(st.one_of(row, advances, _SETTLE_FAULTS, _SETTLE_ENDS), max_size=6)
    is_plain, is_fifo = "plain" in shapes, "fifo" in shapes
    return st.builds(
        lambda faults, rows, steps, shape, ahead, every: Schedule(
            (*faults, *rows, Advance(1.0), *steps, Advance(20.0)),
            prefetch=ahead,
            every_group=every,
            **shape,
        ),
        st.lists(_SETTLE_FAULTS, min_size=1, max_size=2),
        st.lists(row, min_size=3, max_size=8),
        steps,
        _shape(shapes),
        st.sampled_from([0, 0, 1, 3]) if is_plain else st.just(0),
        st.booleans() if is_fifo else st.just(False),
    )
