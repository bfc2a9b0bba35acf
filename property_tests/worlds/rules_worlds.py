"""The small worlds that are explored to the end, and which of their steps are much alike."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Final

from .rules_search import Graph, Step, explore
from .rules_world import STEP, World

__all__ = ["LARGE", "WORLDS", "explored", "itself", "situation"]

ONE: Final = ((0, 0),)
AHEAD: Final = ((1, 0), (0, STEP))
"""The second goes before the first, and may come while that is in work."""
SECOND: Final = frozenset({2})
WORLDS: Final = {
    world.name: world
    for world in (
        World("lease two", "lease", limit=2),
        World("lease one", "lease", rows=ONE, cap=2),
        World("lease fifo", "lease", rows=AHEAD, coming=SECOND, fifo=True),
        World("row lock two", "row lock"),
        World("row lock one", "row lock", rows=ONE, cap=2, losses=2),
        World("row lock fifo", "row lock", rows=AHEAD, coming=SECOND, fifo=True),
        World("advisory two", "advisory lock"),
        World("advisory one", "advisory lock", rows=ONE, cap=2, losses=2),
    )
}
LARGE: Final = {
    world.name: world
    for world in (
        World("lease late", "lease", rows=ONE, cap=2, losses=2, instants=4),
        World("lease caps", "lease", cap=2),
        World("lease losses", "lease", losses=2),
        World("lease fifo late", "lease", rows=AHEAD, coming=SECOND, fifo=True, cap=2),
        World("row lock caps", "row lock", cap=2, losses=2),
        World(
            "row lock fifo late", "row lock", rows=AHEAD, coming=SECOND, fifo=True, cap=2, losses=2
        ),
        World("advisory caps", "advisory lock", cap=2, losses=2),
    )
}
"""For the night."""


@cache
def explored(name: str) -> Graph:
    """All of a world."""
    return explore({**WORLDS, **LARGE}[name])


def situation(step: Step) -> Hashable:
    """What a step is about, whoever takes it and when."""
    state, action, done = step
    one = next((one for one in state.workers[action.worker] if one.row == action.row), None)
    answer = (
        done.answer if isinstance(done.answer, str | None) else [end for _, _, end in done.answer]
    )
    about = one and (one.is_current, bool(one.tried), one.unsure)
    alone = not state.workers[1 - action.worker] or not state.held
    return action.kind, action.verb, action.loss, str(answer), about, alone


def itself(step: Step) -> Hashable:
    """Each step is like no other."""
    return step[0], step[1]
