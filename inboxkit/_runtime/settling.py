"""Writes the ends of deliveries: those that are ready together go out together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import anyio

from inboxkit._core.settlement import Settlement
from inboxkit.abc import ClaimForm, Clock, Settled
from inboxkit.errors import (
    ConnectError,
    ConstraintError,
    DatabaseBusyError,
    OutcomeUnknownError,
    PoolTimeoutError,
)

from .held import Held, Release, Stage
from .reporting import GONE, Reporter
from .timing import Notice

__all__ = ["Settler"]

_FIRST_REPEAT = 1.0
_LONGEST_REPEAT = 30.0
_FIRST_SHARE, _LONGEST_SHARE = 0.05, 0.2
"""Of the lease: shorter ones are repeated sooner. Where renewals work, a hold never has less than 0.4
of its lease left, so a repeat always comes in time."""
_PATIENCE_SHARE = 0.1
_SHORTEST_PATIENCE = 1.0
"""Of the lease, at least a second: how long a group of settlements is waited for. One row that somebody
keeps locked would hold up all, and none of them could be renewed meanwhile."""
_TRANSIENT = (
    ConnectError,
    DatabaseBusyError,
    OutcomeUnknownError,
    PoolTimeoutError,
    TimeoutError,
)


class Settler:
    """One task that writes the settlements and releases of one subscription.

    A lone settlement waits for nothing; those that become ready while one is in flight go out
    together. A settlement and a renewal of one row are never in flight together: whoever comes second
    waits for the other's answer (`notify` tells of a round's end).

    Args:
        form: Writes.
        clock: Times the repeats.
        random: The service's seeded source, for jitter.
        report: The log.
        ended: Called when a delivery has come to its end, which is to be written.
        settled: Called once for each delivery for which nothing more will be written.
        due: Called with the group's name (None: the queue's own) and the instant (None: now) from
            which a row can be claimed again.
    """

    def __init__(
        self,
        form: ClaimForm,
        clock: Clock,
        random: Random,
        report: Reporter,
        *,
        ended: Callable[[], None],
        settled: Callable[[Held], None],
        due: Callable[[Settlement | Release, Settled], None],
    ) -> None:
        self._form = form
        self._clock = clock
        self._random = random
        self._report = report
        self._ended = ended
        self._settled = settled
        self._due = due
        self._unsettled: set[Held] = set()
        self._pending: list[Held] = []
        self._notice = Notice()

    @property
    def unsettled(self) -> int:
        """How many deliveries have ended whose settlement or release has not been answered."""
        return len(self._unsettled)

    def add(self, held: Held, ending: Settlement | Release) -> None:
        """The delivery has ended: write this."""
        held.ending = ending
        held.stage = Stage.ENDED
        self._unsettled.add(held)
        self._pending.append(held)
        self.notify()
        self._ended()

    async def end(self, held: Held, ending: Settlement | Release) -> None:
        """The same, for a worker: its delivery is written by the settling task."""
        self.add(held, ending)

    async def end_all(self, endings: Sequence[tuple[Held, Settlement | Release]]) -> None:
        """The same for a batch: its settlements go out together."""
        for held, ending in endings:
            self.add(held, ending)

    def take(self, held: Held, ending: Settlement, answer: Settled) -> None:
        """A worker has written this itself, in its handler's transaction: what became of it."""
        held.ending = ending
        self._take_answer(held, ending, answer)

    def let_go(self, held: Held) -> None:
        """Its hold is lost: nothing is written."""
        self._end(held)

    def notify(self) -> None:
        """A round of renewals is over, or something is to be written: look again."""
        self._notice.set()

    async def run(self) -> None:
        """Write until cancelled; what is pending then stays unwritten."""
        while True:
            self._notice.clear()
            ready = self._take()
            if not ready:
                await self._notice.wait(self._clock, self._next_repeat())
                continue
            await self._write(ready)

    def _take(self) -> list[Held]:
        """What can be written now; of two deliveries of one row one, since answers name rows.

        Those of a group that was not answered in time go one by one, and after all others.
        """
        now = self._clock.monotonic()
        ready: dict[Any, Held] = {}
        later: list[Held] = []
        for held in sorted(self._pending, key=lambda held: held.is_suspect):
            if (
                held.in_round
                or held.repeat_at > now
                or held.id in ready
                or (held.is_suspect and ready)
            ):
                later.append(held)
            elif isinstance(held.ending, Release) and held.has_unknown_renewal:
                # It could give a row to somebody else's renewed lease.
                self._end(held)
                self._report.unsettled(
                    held,
                    f"row {held.id!r} was not released, since a renewal's answer was lost; it comes "
                    "back when its lease ends",
                )
            else:
                ready[held.id] = held
        self._pending = later
        return list(ready.values())

    def _next_repeat(self) -> float | None:
        waits = [held.repeat_at for held in self._pending if not held.in_round]
        return min(waits) - self._clock.monotonic() if waits else None

    async def _write(self, ready: list[Held]) -> None:
        for held in ready:
            held.is_settling = True
        try:
            settlements = [
                (held, held.ending) for held in ready if isinstance(held.ending, Settlement)
            ]
            if settlements:
                answers = await self._settle(settlements)
                for (held, ending), answer in zip(settlements, answers, strict=True):
                    held.is_settling = False
                    self._take_answer(held, ending, answer)
            releases = [(held, held.ending) for held in ready if isinstance(held.ending, Release)]
            if releases:
                answers = await self._form.release([(h.fence, r.give_back) for h, r in releases])
                for (held, release), answer in zip(releases, answers, strict=True):
                    held.is_settling = False
                    self._take_release(held, release, answer)
        finally:
            for held in ready:
                held.is_settling = False

    async def _settle(self, settlements: list[tuple[Held, Settlement]]) -> list[Settled]:
        with anyio.move_on_after(self._patience()) as scope:
            return await self._form.settle([(held.fence, ending) for held, ending in settlements])
        assert scope.cancelled_caught
        for held, _ in settlements:
            held.is_suspect = True
        error = TimeoutError(f"no answer within {self._patience():g} s; a lock may be in the way")
        return [Settled("unknown", error=error)] * len(settlements)

    def _patience(self) -> float:
        if self._form.lease is None:
            return math.inf
        return max(self._form.lease.total_seconds() * _PATIENCE_SHARE, _SHORTEST_PATIENCE)

    def _take_answer(self, held: Held, ending: Settlement, answer: Settled) -> None:
        match answer.result:
            case "written":
                self._end(held)
                self._due(ending, answer)
                self._report.settled(held, ending, answer.due)
            case "gone" if held.may_be_settled:
                # Ours, or taken over by somebody who finished it: either way it is over.
                self._end(held)
                self._due(ending, answer)
                self._report.outcome_unknown(held, is_gone=True)
            case "lost" if held.may_be_settled:
                self._end(held)
                self._due(ending, answer)
                self._report.outcome_unknown(held, is_gone=False)
            case "gone":
                self._lose(held, GONE, is_gone=True)
            case "lost":
                self._lose(held, "the row holds another lease")
            case "failed" | "unknown":
                self._repeat(held, answer)

    def _take_release(self, held: Held, release: Release, answer: Settled) -> None:
        self._end(held)
        if answer.result == "written":
            self._due(release, answer)
            self._report.released(held, release.give_back)
        elif answer.result in ("failed", "unknown"):
            # Never repeated: an unknown one may have given the row to somebody else already.
            self._report.unsettled(
                held,
                f"row {held.id!r} was not released; it comes back when its lease ends",
                answer.error,
            )
        else:
            self._report.unsettled(held, "it has another holder, or is gone", is_told=False)

    def _repeat(self, held: Held, answer: Settled) -> None:
        held.may_be_settled = held.may_be_settled or answer.result == "unknown"
        is_definite = answer.result == "failed" and not isinstance(answer.error, _TRANSIENT)
        if is_definite:
            held.is_renewed = False
        held.repeats += 1
        # The others of a group that was held up need no rest before each is tried by itself.
        is_first_suspicion = held.is_suspect and held.repeats == 1
        wait = 0.0 if is_first_suspicion else self._wait(held)
        held.repeat_at = self._clock.monotonic() + wait
        # A constraint refuses the same again, and a spent row needs no handler to be moved later:
        # neither is worth a worker's place until the lease ends.
        is_hopeless = answer.result == "failed" and (
            held.claimed.spent or isinstance(answer.error, ConstraintError)
        )
        if is_hopeless or held.has_ended(held.repeat_at):
            self._end(held)
            self._report.unsettled(
                held,
                f"row {held.id!r} could not be settled; it comes back when its lease ends",
                answer.error,
            )
            return
        if held.repeats == 1:
            tell = self._report.trouble if is_definite else self._report.outage
            tell(
                f"the settlement of row {held.id!r} failed and is repeated while its lease holds",
                answer.error,
                held=held,
            )
        self._pending.append(held)

    def _wait(self, held: Held) -> float:
        first, longest = _FIRST_REPEAT, _LONGEST_REPEAT
        if held.lease is not None:
            lease = held.lease.total_seconds()
            first, longest = min(first, lease * _FIRST_SHARE), min(longest, lease * _LONGEST_SHARE)
        wait = min(first * 2.0 ** min(held.repeats - 1, 10), longest)
        return wait * self._random.uniform(0.9, 1.0)

    def _lose(self, held: Held, reason: str, *, is_gone: bool = False) -> None:
        held.lose()
        self._end(held)
        self._report.lost(held, reason, is_gone=is_gone)

    def _end(self, held: Held) -> None:
        held.stage = Stage.GONE
        self._unsettled.discard(held)
        self._settled(held)
