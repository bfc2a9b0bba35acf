"""Claims of the forms whose rows are held by sessions: a row or a batch each, several side by side."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, Final

import anyio

from inboxkit._core.lease import add as later
from inboxkit.abc import Claim, ClaimForm, Clock, GroupsRest, RowsRest
from inboxkit.errors import DatabaseError, StartupError

from .batches import Sizes
from .claiming import LONGEST_CLAIM, Failures
from .held import Held
from .reporting import Reporter
from .room import Room
from .timing import wait_for
from .waking import Waker

__all__ = ["Lanes"]

_EARLY: Final = 0.01
"""Seconds by which a group's rest ends before its time: who wakes at it may be that early by the
monotonic clock, and would not look again before the next poll."""


class Lanes:
    """Tasks that claim side by side, as many at once as workers and pool have room for.

    After a claim that took nothing only one lane looks again, until a claim takes a row: a queue that
    is empty is asked once a poll interval, not once for each worker.

    Args:
        form: Claims.
        clock: Times the waits after failed claims, and the pauses.
        random: The service's seeded source, for jitter.
        waker: What the lane that looks sleeps on.
        report: The log.
        count: How many claims may be in flight.
        is_ordered: Whether a row that was given back keeps those behind it waiting.
        sizes: How many rows a claim is to take. Where each has a session of its own, the first waits
            for its place in the pool, and the others are taken only as far as places are free.
        room: How many rows, or batches, may be taken now, claims in flight not counted.
        places: The pool's.
        accept: Takes over what a claim brought, and whether it is to be given back. A claim that
            brought rows has taken one place for each session, which are then the receiver's.
    """

    def __init__(
        self,
        form: ClaimForm,
        clock: Clock,
        random: Random,
        waker: Waker,
        report: Reporter,
        *,
        count: int,
        is_ordered: bool,
        sizes: Sizes,
        room: Callable[[], int],
        places: Room,
        accept: Callable[[Claim, bool], None],
        ended: Callable[[], None],
    ) -> None:
        self._form = form
        self._clock = clock
        self._waker = waker
        self._count = count
        self._is_ordered = is_ordered
        self._sizes = sizes
        self._room = room
        self._places = places
        self._accept = accept
        self._report = report
        self._failures = Failures(random, report)
        self._changed = anyio.Event()
        self._stopping = anyio.Event()
        self._tell_ended = ended
        self.has_ended = False
        """Whether no claim is in flight and none will be."""
        self._claiming = 0
        """Lanes that claim, or wait for a place to."""
        self._in_flight: dict[anyio.CancelScope, None] = {}
        self._prober: int | None = None
        """The lane that alone looks whether rows have come; None: all may claim."""
        self._paused_until = 0.0
        self._resting: dict[Any, float] = {}
        """Rows that failed, with the monotonic second before which no handler gets them."""

    def room_made(self) -> None:
        """A row left work here."""
        self._tell_lanes()

    def pause(self, held: Held, seconds: float) -> None:
        """A row came back at once because it failed: claim nothing for so long, and then look. Where all
        groups of a table are served, only its own rests.

        A claim in flight may bring the same row: it is given back.
        """
        now = self._clock.monotonic()
        group = held.claimed.group
        if isinstance(self._form, GroupsRest) and group is not None:
            # One end for both: a row that the form hands out must not be found to rest here.
            end = now + seconds - _EARLY
            self._leave(held, end)
            self._form.rest(group, end)
        else:
            self._leave(held, now + seconds)
            self._paused_until = max(self._paused_until, now + seconds)
        self._waker.wake(later(self._clock.now(), timedelta(seconds=seconds)))

    def rest(self, held: Held, seconds: float) -> None:
        """A row came back at once because its session ended: hand it out no sooner than after so long.

        The others have done nothing to wait for: they go on, where no order is lost by it.
        """
        form = self._form
        if self._is_ordered or isinstance(form, GroupsRest) or not isinstance(form, RowsRest):
            self.pause(held, seconds)
            return
        end = self._clock.monotonic() + seconds - _EARLY
        self._leave(held, end)
        form.rest_row(held.id, end)
        self._waker.wake(later(self._clock.now(), timedelta(seconds=seconds)))

    def stop(self) -> None:
        """Claim no more; rows of claims in flight are still accepted."""
        self._stopping.set()
        self._waker.wake()
        self._places.give_up(self)
        self._tell_lanes()

    def abandon(self) -> None:
        """Wait no longer for claims in flight; their sessions are given back, and the rows with them."""
        for scope in self._in_flight:
            scope.cancel()

    async def run(self) -> None:
        """Claim until `stop`."""
        self._prober = 0
        try:
            async with anyio.create_task_group() as lanes:
                for lane in range(self._count):
                    lanes.start_soon(self._run_lane, lane)
        finally:
            self.has_ended = True
            self._tell_ended()

    async def _run_lane(self, lane: int) -> None:
        while not self._stopping.is_set():
            pause = self._paused_until - self._clock.monotonic()
            if self._prober not in (None, lane) or self._room() <= self._claiming:
                await self._changed.wait()
            elif pause > 0:
                await wait_for(self._changed, self._clock, pause)
            else:
                await self._claim(lane)

    async def _claim(self, lane: int) -> None:
        self._claiming += 1
        error: Exception | None = None
        claim: Claim | None = None
        since = 0.0
        try:
            if not await self._places.enter(self):
                return
            taken = 1
            try:
                if self._is_held_up():
                    return
                limit = self._sizes.next
                if not self._form.holds_together:
                    while taken < limit and self._places.enter_nowait():
                        taken += 1
                    limit = taken
                since = self._clock.monotonic()
                claim = await self._claim_shielded(limit)
            except (DatabaseError, StartupError, TimeoutError) as met:
                error = met
            finally:
                sessions = {row.fence.hold for row in claim.rows} if claim is not None else ()
                for _ in range(taken - len(sessions)):
                    self._places.leave()
            if claim is not None:
                self._failures.end()
                self._accept(claim, self._stopping.is_set() or self._is_resting(claim))
            answer = claim if claim is not None else error
            if self._report.is_heard and answer is not None:
                self._report.claim_ended(since, answer)
        finally:
            self._claiming -= 1
            self._tell_lanes()
        if error is not None:
            await self._rest(lane, error)
        elif claim is not None:
            await self._go_on(lane, claim)

    def _leave(self, held: Held, until: float) -> None:
        """A claim in flight may bring the row, which is given back until then."""
        now = self._clock.monotonic()
        self._resting = {id: end for id, end in self._resting.items() if end > now}
        self._resting[held.id] = until

    def _is_held_up(self) -> bool:
        """Whether a stop or a pause began while this waited for its place."""
        is_paused = self._room() <= 0 or self._paused_until > self._clock.monotonic()
        return self._stopping.is_set() or is_paused

    def _is_resting(self, claim: Claim) -> bool:
        now = self._clock.monotonic()
        return any(self._resting.get(row.fence.id, now) > now for row in claim.rows)

    async def _claim_shielded(self, limit: int) -> Claim:
        """A cancelled claim may have taken effect: so its answer is waited for, within a bound."""
        self._waker.start_claim()
        with anyio.move_on_after(LONGEST_CLAIM, shield=True) as scope:
            self._in_flight[scope] = None
            try:
                return await self._form.claim(limit=limit)
            finally:
                self._in_flight.pop(scope, None)
        raise TimeoutError(f"a claim was not answered within {LONGEST_CLAIM:g} s")

    async def _go_on(self, lane: int, claim: Claim) -> None:
        if claim.rows:
            self._prober = None
            self._tell_lanes()
        elif (
            not claim.undecodable
            and not claim.more
            and self._is_prober(lane)
            and not self._stopping.is_set()
        ):
            await self._waker.wait()

    async def _rest(self, lane: int, error: Exception) -> None:
        if self._is_prober(lane):
            await wait_for(self._stopping, self._clock, self._failures.add(error))
        else:
            self._waker.wake()  # this claim may have been the one that was to see what woke it

    def _is_prober(self, lane: int) -> bool:
        """Whether this lane is the one that looks, now that a claim took nothing."""
        if self._prober is None:
            self._prober = lane
        return self._prober == lane

    def _tell_lanes(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
