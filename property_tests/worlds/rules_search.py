"""Every state of a small world, by breadth-first search, and traces that cover its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from .rules_oracle import broken_by, broken_in
from .rules_world import Action, Done, State, World

__all__ = ["BrokenRuleError", "Graph", "Step", "explore"]

Step = tuple[State, Action, Done]
_NEAR = 3
"""Steps that a way goes on for the sake of a new one."""


class BrokenRuleError(AssertionError):
    """An invariant does not hold; the message has the shortest way there."""


@dataclass
class Graph:
    """All states in reach, and all steps."""

    world: World
    steps: dict[State, list[tuple[Action, Done]]] = field(default_factory=dict)
    parents: dict[State, tuple[State, Action, Done]] = field(default_factory=dict)

    @property
    def transitions(self) -> int:
        return sum(map(len, self.steps.values()))

    def way_to(self, state: State) -> list[Step]:
        """The shortest way from the start."""
        way: list[Step] = []
        while state in self.parents:
            before, action, done = self.parents[state]
            way.append((before, action, done))
            state = before
        return way[::-1]

    def covering(self, situation: Callable[[Step], Hashable], *, longest: int) -> list[list[Step]]:
        """Traces that together take a step of every situation.

        Each goes the shortest way to a step that none took before, and on to the next such step that is
        near, up to so many steps.
        """
        taken: set[Hashable] = set()
        ways: list[list[Step]] = []
        for state, steps in self.steps.items():  # in the order of their distance
            for action, done in steps:
                if situation((state, action, done)) in taken:
                    continue
                way = [*self.way_to(state), (state, action, done)]
                taken |= {situation(step) for step in way}
                while len(way) < longest and (
                    more := self._near(way[-1][2].state, situation, taken)
                ):
                    way += more
                    taken |= {situation(step) for step in more}
                ways.append(way)
        return ways

    def _near(
        self, start: State, situation: Callable[[Step], Hashable], taken: set[Hashable]
    ) -> list[Step]:
        """The shortest way to a new step, where it is near."""
        ways: list[list[Step]] = [[]]
        for _ in range(_NEAR):
            longer = []
            for way in ways:
                state = way[-1][2].state if way else start
                for action, done in self.steps[state]:
                    step = state, action, done
                    if situation(step) not in taken:
                        return [*way, step]
                    longer.append([*way, step])
            ways = longer
        return []


def explore(world: World) -> Graph:
    """See everything.

    Raises:
        BrokenRuleError: At the first state or step that breaks an invariant.
    """
    graph = Graph(world)
    start = world.initial()
    seen = {start}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        taken = graph.steps[state] = []
        for action in world.actions(state):
            done = world.step(state, action)
            taken.append((action, done))
            is_new = done.state not in seen
            if is_new:
                seen.add(done.state)
                graph.parents[done.state] = state, action, done
                waiting.append(done.state)
            broken = [*broken_by(world, state, action, done)]
            broken += broken_in(world, done.state) if is_new else []
            if broken:
                way = [*graph.way_to(state), (state, action, done)]
                lines = [f"{n}. {act}: {end.answer}" for n, (_, act, end) in enumerate(way, 1)]
                raise BrokenRuleError("\n".join([f"{broken[0]} ({world.name})", *lines]))
    return graph
