"""Letting time pass until nothing is left to do, or until it is plain that nothing will be done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inboxkit import events
from inboxkit.errors import ClosedError, DatabaseBusyError

from ._facts import key_of
from ._queues import queues_of
from ._unfinished import Unfinished, unfinished
from .errors import InvariantViolation
from .marks import Ended

if TYPE_CHECKING:
    from inboxkit import Service

    from .world import World

__all__ = ["drain"]

_LONGEST_STEP = 15.0
_LONG_WAIT = timedelta(minutes=1)
"""Waits longer than this are worth a stop and a start."""
_MOST_DELIVERIES = 12
"""In calm weather, where nothing says how often a row may be handed out."""


async def drain(world: World, outside: Service, within: timedelta, *, skip_waits: bool) -> None:
    """See `World.drain`."""
    run = _Drain(world, outside, within, skip_waits)
    await world.settle()
    while left := await run.look():
        if not world.running:
            raise _nobody_runs(world)
        await run.go_on(left)


@dataclass(slots=True)
class _Drain:
    world: World
    outside: Service
    within: timedelta
    skip_waits: bool
    _spent: timedelta = timedelta(0)
    _step: float = 1.0
    _looked_at: int = -1
    _deliveries: Counter[Any] = field(default_factory=Counter)
    _last_end: dict[Any, str] = field(default_factory=dict)

    async def look(self) -> list[Unfinished]:
        """What is left. A lock of a transaction that is held back is waited for."""
        while True:
            before = self.world.clock.now()
            try:
                return await unfinished(self.outside, self.world.database)
            except DatabaseBusyError:
                if self._spent >= self.within:
                    raise
            await self.world.advance(timedelta(seconds=1))
            self._spent += self.world.clock.now() - before

    async def go_on(self, left: list[Unfinished]) -> None:
        if self.skip_waits:
            self._count()
            for row in left:
                self._check_ends(row)
            if (wait := self._wait(left)) is not None:
                await _wait_without_instances(self.world, wait)
                self._step = 1.0
                return
        if self._spent >= self.within:
            self._give_up(left)
        step = min(timedelta(seconds=self._step), self.within - self._spent)
        await self.world.advance(step)
        self._spent += step
        self._step = min(self._step * 2, _LONGEST_STEP)

    def _wait(self, left: list[Unfinished]) -> timedelta | None:
        """How long nothing is due; None: not long enough to be worth anything."""
        instants = [row.not_before for row in left]
        if any(instant is None for instant in instants):
            return None
        now = self.world.clock.now()
        wait = min(instant for instant in instants if instant is not None) - now
        return wait if wait > _LONG_WAIT else None

    def _count(self) -> None:
        timeline = self.world.timeline.events
        if self._looked_at < 0:  # what was before the calm does not count
            self._looked_at = len(timeline)
        for event in timeline[self._looked_at :]:
            if isinstance(event, events.Claimed):
                self._deliveries[key_of(event)] += 1
            elif isinstance(event, Ended):
                self._last_end[key_of(event)] = event.outcome
        self._looked_at = len(timeline)

    def _check_ends(self, row: Unfinished) -> None:
        for key, count in self._deliveries.items():
            if key.id != row.id or key.queue != row.queue or count <= self._most(row.queue):
                continue
            ended = self._last_end.get(key, "nothing that is known")
            raise _violation(
                self.world,
                f"row {row.id!r} of queue {row.queue!r} was handed out {count} times while nothing "
                f"went wrong, and is not finished; its handler last ended with {ended}. Give the "
                "subscription max_attempts and a dead_letter, or drop what can never succeed",
                row,
            )

    def _most(self, queue: str) -> int:
        known = queues_of(self.outside).get(queue)
        cap = None if known is None else known.cap
        return max(_MOST_DELIVERIES, (cap or 0) + 1)

    def _give_up(self, left: list[Unfinished]) -> None:
        names = ", ".join(f"row {row.id!r} of queue {row.queue!r}" for row in left[:5])
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        raise _violation(self.world, f"{names}{more} unfinished after {self.within}", left[0])


def _nobody_runs(world: World) -> ClosedError:
    errors = {name: instance.error for name, instance in world.instances.items() if instance.error}
    if not errors:
        return ClosedError(
            "drain: no instance runs, and rows are left: start one, such as start('a')"
        )
    told = ", ".join(f"{name!r} by {error!r}" for name, error in errors.items())
    closed = ClosedError(f"drain: rows are left, and no instance runs; ended by itself: {told}")
    closed.__cause__ = next(iter(errors.values()))
    return closed


async def _wait_without_instances(world: World, wait: timedelta) -> None:
    names = [name for name in world.running if world.instances[name].state == "running"]
    for name in names:
        await world.stop(name)
    await world.advance(wait)
    for name in names:
        await world.start(name)
    await world.settle()


def _violation(world: World, text: str, row: Unfinished) -> InvariantViolation:
    tail = "\n".join(world.timeline.lines()[-15:])
    return InvariantViolation(
        f"nothing_lost: {text}; the last events:\n{tail}",
        rule="nothing_lost",
        queue=row.queue,
        id=row.id,
    )
