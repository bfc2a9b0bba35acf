"""Keeps leases: one statement for all of a subscription's, each half lease; and ends holds in time."""

from __future__ import annotations

from collections.abc import Callable, Collection

from anyio.abc import TaskGroup

from inboxkit.abc import ClaimForm, Clock, Renewal

from .held import Held, Stage
from .reporting import Reporter
from .timing import Notice

__all__ = ["Renewer"]

_FIRST_SKIP = 0.05
_MOST_DOUBLINGS = 10
_LONGEST_SKIP = 1.0
"""Seconds between two looks at a row that others keep locked: it may be free just before its hold ends."""


class Renewer:
    """A task that ends the holds that were not renewed in time, and begins the rounds of renewals.

    A round is a task of its own, so that a renewal that hangs cannot keep a handler running past its hold;
    there is never more than one.

    Args:
        form: Renews.
        clock: Times the rounds.
        report: The log.
        holds: All deliveries of the subscription, at any time.
        lost: Called once for each delivery whose hold is lost, with the reason.
        round_over: Called after each round: settlements may have waited for it.
    """

    def __init__(
        self,
        form: ClaimForm,
        clock: Clock,
        report: Reporter,
        *,
        holds: Callable[[], Collection[Held]],
        lost: Callable[[Held, str], None],
        round_over: Callable[[], None],
    ) -> None:
        self._form = form
        self._clock = clock
        self._report = report
        self._holds = holds
        self._lost = lost
        self._round_over = round_over
        self._lease = form.lease.total_seconds() if form.lease is not None else 0.0
        self._notice = Notice()
        self._is_in_round = False
        self._is_in_trouble = False

    def notify(self) -> None:
        """Rows were claimed: their rounds may come before what the task sleeps for."""
        self._notice.set()

    def start(self, tasks: TaskGroup) -> None:
        """Renew leases and end holds in `tasks`, until they are cancelled."""
        tasks.start_soon(self._keep, tasks)

    async def _keep(self, rounds: TaskGroup) -> None:
        while True:
            self._notice.clear()
            now = self._clock.monotonic()
            next_at = self.end_holds(now)
            due_at = None if self._is_in_round else self.next_round()
            if due_at is not None and due_at <= now:
                self._is_in_round = True
                rounds.start_soon(self._round, now)
            elif due_at is not None:
                next_at = due_at if next_at is None else min(next_at, due_at)
            await self._notice.wait(self._clock, None if next_at is None else next_at - now)

    def end_holds(self, now: float) -> float | None:
        """Tell handlers of holds that ended; returns when to look again, None: there is no hold."""
        ends = []
        for held in list(self._holds()):
            if held.stage is Stage.ENDED or held.stage is Stage.GONE or held.is_lost:
                continue  # a handler that has returned still settles by its token
            if held.has_ended(now):
                self._lost(held, "it ran out before it could be renewed")
            elif held.has_own_lock:
                ends.append(now + min(_LONGEST_SKIP, self._lease / 20))
            elif (end := held.hold_end) is not None:
                ends.append(end)
        return min(ends, default=None)

    def next_round(self) -> float | None:
        """When the next lease is to be renewed, by the monotonic clock; None: there is none."""
        now = self._clock.monotonic()
        return min((h.renew_at for h in self._holds() if h.wants_renewal(now)), default=None)

    async def _round(self, now: float) -> None:
        holds = [held for held in self._holds() if held.wants_renewal(now)]
        if all(held.skips for held in holds if held.renew_at <= now):
            # Only rows that were locked a moment ago: the others keep their half lease.
            holds = [held for held in holds if held.renew_at <= now]
        for held in holds:
            held.in_round = True
        try:
            renewal = await self._form.renew(
                [(held.fence, held.reading) for held in holds], timeout=self._lease / 10
            )
            for held in holds:
                self._take_answer(held, renewal)
        finally:
            for held in holds:
                held.in_round = False
            self._is_in_round = False
            self._round_over()
            self._notice.set()
        self._tell_of_trouble(renewal)

    def _take_answer(self, held: Held, renewal: Renewal) -> None:
        now = self._clock.monotonic()
        if held.is_lost:
            return  # while the round was under way
        if held.id in renewal.renewed and renewal.reading is not None:
            held.confirm(renewal.renewed[held.id], renewal.reading)
            self._report.renewed(held)
        elif held.id in renewal.skipped:
            wait = _FIRST_SKIP * 2.0 ** min(held.skips, _MOST_DOUBLINGS)
            held.renew_at = now + min(wait, _LONGEST_SKIP, self._lease / 20)
            held.skips += 1
        elif held.id in renewal.lost:
            if held.stage in (Stage.QUEUED, Stage.RUNNING):
                self._lost(held, "the row holds another lease, or is gone")
            else:
                # Its settlement is about to be written and will say what became of the row.
                held.is_renewed = False
        else:
            if held.id in renewal.unknown:
                held.suspect(renewal.unknown[held.id])
            held.renew_at = now + self._lease / 20

    def _tell_of_trouble(self, renewal: Renewal) -> None:
        if renewal.error is None:
            self._is_in_trouble = False
        elif not self._is_in_trouble:
            self._is_in_trouble = self._report.outage(
                f"{len(renewal.failed) + len(renewal.unknown)} leases could not be renewed; "
                "this is repeated until their holds end",
                renewal.error,
            )
