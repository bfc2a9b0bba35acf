"""One queue being served: claims rows, hands them to workers, sees them settled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import anyio
from anyio.abc import TaskStatus

from inboxkit._core.outcomes import Drop, Retry
from inboxkit._core.settlement import Returned, Settlement, Spent, Verb, decide
from inboxkit.abc import Claim, Claimed, ClaimForm, Clock, Settled

from .claiming import Claimer
from .ending import Ender
from .handling import Handled, handle
from .held import Held, Release, Stage
from .lanes import Lanes
from .plan import Plan
from .renewing import Renewer
from .reporting import Reporter
from .room import Room
from .settling import Settler
from .stopping import RELEASE_SECONDS
from .transacting import Transacting
from .waking import WakeHub, Waker
from .watching import Watcher
from .workers import Workers

__all__ = ["Subscription"]


class Subscription:
    """Serves one queue until it is told to stop.

    The tasks: one claims, some work, one settles, one renews, one ends holds in time. Where sessions
    hold the rows, several claim, each worker settles what it handled, and one watches the sessions.
    All live in one task group; nothing outlives `run`.

    Args:
        plan: What to do.
        form: How rows are held.
        clock: All its times.
        random: The service's seeded source.
        report: The log.
        wakes: Where it listens, and tells others of rows that it makes due.
        places: The pool's, for rows that sessions hold.
        fail: Called with an error that ends the service.
    """

    def __init__(
        self,
        plan: Plan,
        form: ClaimForm,
        *,
        clock: Clock,
        random: Random,
        report: Reporter,
        wakes: WakeHub,
        places: Room,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.plan = plan
        self._form = form
        self._clock = clock
        self._random = random
        self._report = report
        self._wakes = wakes
        self._places = places
        self._fail = fail
        self._holds: dict[int, Held] = {}
        self._idle = anyio.Event()
        self._warned_of_delay = False
        self.waker = Waker(clock, random, plan.poll_interval.total_seconds())
        self._workers = Workers(plan.workers, by_key=plan.by_key, deliver=self._deliver)
        self._settler: Settler | Ender
        self._keeper: Renewer | Watcher
        self._claimer: Claimer | Lanes
        if form.lease is not None:
            self._serve_leases()
        else:
            self._serve_sessions()
        self._transacting: Transacting | None = None
        if plan.make_transaction is not None:
            self._transacting = Transacting(
                plan,
                form,
                clock,
                random,
                report,
                settler=self._settler,
                conclude=self._conclude,
                known=self._known,
            )

    def _serve_leases(self) -> None:
        form, clock, random, report = self._form, self._clock, self._random, self._report
        self._settler = Settler(
            form, clock, random, report, settled=self._forget, due=self._tell_due
        )
        self._keeper = Renewer(
            form,
            clock,
            report,
            holds=self._holds.values,
            lost=self._lose,
            round_over=self._round_over,
        )
        if self.plan.make_transaction is not None:
            self._claimer = self._make_lanes()
            return
        self._claimer = Claimer(
            form, clock, random, self.waker, report, room=self._room, accept=self._accept
        )

    def _serve_sessions(self) -> None:
        form, clock, report = self._form, self._clock, self._report
        self._claimer = lanes = self._make_lanes()
        self._settler = Ender(
            form,
            report,
            settled=self._forget,
            due=self._tell_due,
            pause=lanes.pause,
            answered=self._answered,
        )
        self._keeper = Watcher(form, clock, holds=self._holds.values, lost=self._lose)

    def _make_lanes(self) -> Lanes:
        """Claims where each delivery owns a connection."""
        return Lanes(
            self._form,
            self._clock,
            self._random,
            self.waker,
            self._report,
            count=self.plan.workers if self.plan.may_claim_beside else 1,
            room=self._room,
            places=self._places,
            accept=self._accept,
        )

    def _round_over(self) -> None:
        self._settler.notify()
        if self._transacting is not None:
            self._transacting.round_over()

    @property
    def in_work(self) -> list[Held]:
        """Every row that is still held here."""
        return list(self._holds.values())

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. `stop_claiming`, `cancel_handlers` and `release` end it in order."""
        unregister = self._wakes.register(self.plan.table, self.plan.group, self.waker.wake)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._settler.run)
                tasks.start_soon(self._keeper.run)
                self._workers.start(tasks)
                tasks.start_soon(self._claimer.run)
                task_status.started()
        finally:
            unregister()
            self._workers.close()
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await self._form.close()
            for held in self.in_work:
                self._forget(held)

    def drain(self) -> None:
        """Claim no more, and give back what no handler has yet."""
        self._claimer.stop()
        self._release_queued()

    def cancel_handlers(self) -> None:
        """Cancel the handlers in work; their rows are released, or settled if they still answer."""
        for held in self.in_work:
            if held.stage is Stage.RUNNING and not held.stop_asked:
                held.stop_asked = True
                held.cancel()

    def release(self) -> None:
        """Write at once what waits to be repeated, and cancel what still runs once more."""
        self._release_queued()
        for held in self.in_work:
            held.repeat_at = 0.0
            held.cancel()
        self._settler.notify()

    async def wait_idle(self) -> None:
        """Wait until nothing is in work; after `drain` that lasts."""
        await self._claimer.wait_ended()
        while self._holds:
            if self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    def abandon_claim(self) -> None:
        """Wait no longer for a claim that does not answer."""
        self._claimer.abandon()

    def _release_queued(self) -> None:
        for held in self.in_work:
            if held.stage is Stage.QUEUED:
                self._release(held)

    def _room(self) -> int:
        return self._workers.room - len(self._holds)

    def _accept(self, claim: Claim, is_unwanted: bool) -> None:
        older = {held.id: held for held in self._holds.values()} if claim.rows else {}
        for claimed in claim.rows:
            before = older.get(claimed.fence.id)
            if before is not None:
                self._supersede(before)
            held = Held(claimed, self._form.lease)
            self._holds[id(held)] = held
            self._report.claimed(held)
            if is_unwanted:
                self._release(held)
            elif before is not None and before.stage is Stage.ENDED and self._form.lease is None:
                # The older delivery's session let go of the row, and the answer is on its way.
                before.successor = held
            else:
                self._begin(held)
        if claim.rows:
            self._keeper.notify()

    def _begin(self, held: Held) -> None:
        claimed = held.claimed
        if not claimed.spent:
            self._workers.hand_over(held)
            return
        settlement = decide(
            Spent(),
            attempt=claimed.attempt or 1,
            policy=self.plan.policy,
            random=self._random,
            group=claimed.group,
        )
        self._settler.add(held, settlement or Settlement(Verb.GIVE_BACK))

    def _answered(self, before: Held, is_resting: bool) -> None:
        held = before.successor
        if held is None or held.stage is not Stage.QUEUED:
            return
        if is_resting:
            self._release(held)
        else:
            self._begin(held)

    async def _deliver(self, held: Held) -> None:
        if held.stage is not Stage.QUEUED:
            return  # released or lost meanwhile
        if held.has_ended(self._clock.monotonic()):
            self._lose(held, "it ran out before its handler could begin")
            return
        held.stage = Stage.RUNNING
        if self._transacting is not None:
            await self._transacting.deliver(held)
            return
        handled = await handle(held, self.plan, **self._known(held))
        ending = self._conclude(held, handled)
        if ending is not None:
            await self._settler.end(held, ending)

    def _known(self, held: Held) -> dict[str, Any]:
        claimed: Claimed = held.claimed
        return {
            "id": held.id,
            "attempt": claimed.attempt,
            "group": claimed.group,
            "key": claimed.key,
            "headers": claimed.headers,
            "lost": held.lost,
            "deadline": held.deadline,
        }

    def _conclude(self, held: Held, handled: Handled) -> Settlement | Release | None:
        """What is to be written; None: nothing, and somebody else sees to it."""
        if handled.error is not None and not isinstance(handled.error, Exception):
            self._fail(handled.error)
            return self._to_release(held, counted=True)
        if held.lost.is_set() or handled.ending is None:
            return self._to_release(held, counted=held.has_returned)
        settlement = decide(
            handled.ending,
            attempt=held.claimed.attempt or 1,
            policy=self.plan.policy,
            random=self._random,
            group=held.claimed.group,
        )
        if handled.error is not None:
            self._report.failed(held, handled.error)
        if settlement is None:
            self._fail(handled.error or RuntimeError("a handler failed"))
            return self._to_release(held, counted=True)
        self._note(held, handled)
        return settlement

    def _note(self, held: Held, handled: Handled) -> None:
        match handled.ending:
            case Returned(Drop(reason)):
                held.outcome, held.note = "drop", reason
            case Returned(Retry(delay)) if delay and not self.plan.policy.has_retry_after:
                if not self._warned_of_delay:
                    self._warned_of_delay = True
                    self._report.trouble(
                        f"retry_after({delay}) needs a retry_after column, which table "
                        f"{self.plan.table!r} does not have: the row is handed out again at once"
                    )
            case Returned():
                pass
            case _:
                held.outcome = "drop"
                held.note = "its failure policy is 'drop'"

    def _release(self, held: Held) -> None:
        """Give back a row that no handler has."""
        release = self._to_release(held)
        if release is not None:
            self._settler.add(held, release)

    def _to_release(self, held: Held, *, counted: bool = False) -> Release | None:
        if held.lost.is_set():
            self._settler.let_go(held)
            return None
        return Release(give_back=held.claimed.counted and not counted)

    def _supersede(self, older: Held) -> None:
        """A claim took its row, so its token stands there no more: an operator may have cleared it."""
        if older.stage in (Stage.QUEUED, Stage.RUNNING) and not older.lost.is_set():
            self._lose(older, "the row was claimed again")
        older.is_renewed = False

    def _lose(self, held: Held, reason: str) -> None:
        held.lost_error = self._report.lost(held, reason)
        held.lost.set()
        held.cancel()
        if held.stage is Stage.QUEUED:
            self._settler.let_go(held)

    def _forget(self, held: Held) -> None:
        held.stage = Stage.GONE
        if self._holds.pop(id(held), None) is None:
            return
        hold = held.claimed.fence.hold
        if hold is None and self.plan.make_transaction is not None:
            self._places.leave()
        # Rows that one session holds have one place.
        if hold is not None and all(h.claimed.fence.hold != hold for h in self._holds.values()):
            self._places.leave()
        self._idle.set()
        self._claimer.room_made()
        if self.plan.is_every_group and self.plan.policy.is_fifo:
            self.waker.wake()  # the next of its group may be due

    def _tell_due(self, ending: Settlement | Release, answer: Settled) -> None:
        if isinstance(ending, Settlement) and ending.verb is Verb.FINISH:
            return
        if isinstance(ending, Settlement) and ending.verb is Verb.MOVE:
            if ending.destination is not None and ending.destination.group is not None:
                self._wakes.notify(self.plan.table, ending.destination.group)
            elif self.plan.dead_letter_table is not None:
                self._wakes.notify(self.plan.dead_letter_table, None)
            return
        self._wake_own(answer.due)

    def _wake_own(self, due: datetime | None) -> None:
        self._wakes.notify(self.plan.table, self.plan.group, due)
