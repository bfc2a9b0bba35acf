"""The claim loop of one subscription: as many rows as there is room, then sleep until more are due."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import anyio

from inboxkit.abc import Claim, ClaimForm, Clock
from inboxkit.errors import DatabaseError, StartupError

from .reporting import Reporter
from .timing import wait_for
from .waking import Waker

__all__ = ["LONGEST_CLAIM", "Claimer", "Failures"]

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
LONGEST_CLAIM = 60.0
"""Seconds a claim is shielded: almost every cancelled claim has taken effect, so its rows are awaited."""


class Failures:
    """Claims that failed one after the other: how long to rest, and the one record of them.

    The first is repeated at once: a session that the server has ended, or one statement that it has
    stopped, is no outage.

    Args:
        random: The service's seeded source, for jitter.
        report: The log.
    """

    def __init__(self, random: Random, report: Reporter) -> None:
        self._random = random
        self._report = report
        self._count = 0
        self._was_told = False

    def add(self, error: Exception) -> float:
        """One more; returns the seconds until the next try."""
        doublings = min(self._count - 1, 10)
        wait = min(_FIRST_WAIT * 2.0**doublings, _LONGEST_WAIT) if self._count else 0.0
        self._count += 1
        self._was_told = self._was_told or self._report.outage(
            "a claim failed; claims are repeated, up to 30 s apart", error
        )
        return wait * self._random.uniform(0.9, 1.0)

    def end(self) -> None:
        """A claim was answered."""
        self._count, self._was_told = 0, False
        self._report.recovered()


class Claimer:
    """Claims whenever there is room and a reason to look.

    Args:
        form: Claims.
        clock: Times the waits after failed claims.
        random: The service's seeded source, for jitter.
        waker: What the loop sleeps on.
        report: The log.
        room: How many rows may be taken now.
        accept: Takes over what a claim brought, and whether the subscription is stopping.
        ended: Called when no claim is in flight and none will be.
    """

    def __init__(
        self,
        form: ClaimForm,
        clock: Clock,
        random: Random,
        waker: Waker,
        report: Reporter,
        *,
        room: Callable[[], int],
        accept: Callable[[Claim, bool], None],
        ended: Callable[[], None],
    ) -> None:
        self._form = form
        self._clock = clock
        self._waker = waker
        self._report = report
        self._room = room
        self._accept = accept
        self._has_room = anyio.Event()
        self._stopping = anyio.Event()
        self._tell_ended = ended
        self.has_ended = False
        """Whether no claim is in flight and none will be."""
        self._failures = Failures(random, report)
        self._is_looking = False
        self._in_flight: anyio.CancelScope | None = None
        self._since = 0.0
        """When the claim in flight began, by the monotonic clock; kept for who hears of claims alone."""

    def room_made(self) -> None:
        """A row left work here."""
        self._has_room.set()

    def stop(self) -> None:
        """Claim no more; rows of the claim in flight are still accepted."""
        self._stopping.set()
        self._waker.wake()
        self._has_room.set()

    def abandon(self) -> None:
        """Wait no longer for the claim in flight; rows that it takes come back at their expiry."""
        if self._in_flight is not None:
            self._in_flight.cancel()

    async def run(self) -> None:
        """Claim until `stop`."""
        try:
            while not self._stopping.is_set():
                error = await self._rounds()
                if error is not None:
                    if self._report.is_heard:
                        self._report.claim_ended(self._since, error)
                    await wait_for(self._stopping, self._clock, self._failures.add(error))
        finally:
            self.has_ended = True
            self._tell_ended()

    async def _rounds(self) -> DatabaseError | StartupError | TimeoutError | None:
        """Claim and sleep by turns, until a claim fails or something cancels the scope of both.

        One scope serves many claims, shielded, and the sleeps between them, which a wake cancels: two
        new ones a round would be a good part of what an idle queue costs.
        """
        self._in_flight = None
        with anyio.CancelScope() as scope:
            while not (scope.cancel_called or self._stopping.is_set()):
                room = self._room()
                if room <= 0:
                    await self._wait_for_room()
                    continue
                try:
                    may_sleep = await self._claim(room, scope)
                except (DatabaseError, StartupError, TimeoutError) as error:
                    return error
                if may_sleep:
                    await self._waker.wait(scope)
        if self._in_flight is not None:
            return TimeoutError(f"a claim was not answered within {LONGEST_CLAIM:g} s")
        return None

    async def _wait_for_room(self) -> None:
        if self._has_room.is_set():
            self._has_room = anyio.Event()
            if self._room() > 0:
                return
        await self._has_room.wait()

    async def _claim(self, limit: int, scope: anyio.CancelScope) -> bool:
        """Claim once; whether nothing more is to be had before something wakes the queue."""
        if not self._is_looking:
            self._waker.start_claim()
        self._since = self._clock.monotonic() if self._report.is_heard else 0.0
        claim = await self._claim_shielded(limit, scope)
        self._failures.end()
        self._accept(claim, self._stopping.is_set())
        if self._report.is_heard:
            self._report.claim_ended(self._since, claim)
        # A claim that goes on where the last one stopped does not see what wakes tell of.
        self._is_looking = claim.more
        if claim.more or self._stopping.is_set():
            return False
        if not (claim.rows or claim.undecodable):
            return True
        is_full = len(claim.rows) + claim.undecodable >= limit
        return not is_full and not any(row.spent for row in claim.rows)

    async def _claim_shielded(self, limit: int, scope: anyio.CancelScope) -> Claim:
        """Almost every cancelled claim has taken effect: so its answer is waited for, within a bound."""
        self._in_flight = scope
        scope.shield = True
        scope.deadline = anyio.current_time() + LONGEST_CLAIM
        claim = await self._form.claim(limit=limit)
        # Where it was not answered, or has failed, the scope ends: it needs no putting back.
        scope.deadline = math.inf
        scope.shield = False
        self._in_flight = None
        return claim
