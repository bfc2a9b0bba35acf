"""One queue being served: claims rows, hands them to workers, sees them settled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import anyio
from anyio.abc import TaskGroup

from inboxkit._core.haste import hasty
from inboxkit._core.settlement import Settlement, Verb
from inboxkit.abc import Claim, Claimed, ClaimForm, Clock, Settled

from .accepting import Intake
from .batches import Batch, Sizes
from .capacity import Capacity
from .claiming import Claimer
from .concluding import Conclusions
from .ending import Ender
from .handling import handle
from .handling_batches import handle_batch, read_batch
from .held import Held, Release, Stage
from .lanes import Lanes
from .plan import Plan
from .renewing import Renewer
from .reporting import Reporter
from .room import Room
from .settling import Settler
from .stopping import RELEASE_SECONDS
from .transacting import Transacting
from .turns import Turns, turns_of
from .waking import WakeHub, Waker
from .watching import Watcher
from .workers import Workers

__all__ = ["Subscription"]


class Subscription:
    """Serves one queue until it is told to stop.

    The tasks: one claims, some work, one settles, one renews, one ends holds in time. Where sessions
    hold the rows, several claim, each worker settles what it handled, and one watches the sessions.
    All live in the task group that `start` is given.

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
        self.is_paused = False
        """Whether nothing is claimed; what is in work goes on."""
        self.when_idle: Callable[[], None] = _nothing
        """Called when nothing is in work any more; after `drain` that lasts."""
        self._unregister: Callable[[], None] = _nothing
        self.waker = Waker(clock, random, plan.poll_interval.total_seconds())
        self._workers = Workers[Held | Batch](plan.workers, by_key=plan.by_key, deliver=self._work)
        self._conclusions = Conclusions(
            plan, random, report, fail=self._end_service, let_go=self._let_go
        )
        self._intake = Intake(
            self._holds,
            form.lease,
            report,
            holds_together=form.holds_together,
            batch=plan.batch,
            turns=self._make_turns(),
            hand_over=self._hand_over,
            move=self._move,
            release=self._release,
            lose=self._lose,
        )
        self._capacity: Capacity
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
                conclude=self._conclusions.handled,
                known=self._known,
            )

    def _serve_leases(self) -> None:
        form, clock, random, report = self._form, self._clock, self._random, self._report
        self._settler = settler = Settler(
            form,
            clock,
            random,
            report,
            ended=self._worker_freed,
            settled=self._forget,
            due=self._tell_due,
        )
        self._keeper = Renewer(
            form,
            clock,
            report,
            holds=self._holds.values,
            lost=self._lose,
            round_over=self._round_over,
        )
        self._capacity = Capacity(
            self.plan,
            self._workers.room,
            counts_rows=True,
            unsettled=None if self.plan.settles_first else lambda: settler.unsettled,
        )
        if self.plan.make_transaction is not None:
            self._claimer = self._make_lanes(Sizes(1, clock, falls_back=False))
            return
        self._claimer = Claimer(
            form,
            clock,
            random,
            self.waker,
            report,
            room=self._room,
            accept=self._accept,
            ended=self._tell_if_idle,
        )

    def _serve_sessions(self) -> None:
        form, clock, report = self._form, self._clock, self._report
        self._capacity = Capacity(self.plan, self._workers.room, counts_rows=False, unsettled=None)
        sizes = Sizes(self.plan.batch or 1, clock, falls_back=form.holds_together)
        self._claimer = lanes = self._make_lanes(sizes)
        self._settler = Ender(
            form,
            report,
            settled=self._forget,
            due=self._tell_due,
            pause=lanes.pause,
            rest=lanes.rest,
            sizes=sizes,
            answered=self._intake.answered,
        )
        self._keeper = Watcher(form, clock, holds=self._holds.values, lost=self._lose)

    def _make_lanes(self, sizes: Sizes) -> Lanes:
        """Claims where each delivery owns a connection."""
        return Lanes(
            self._form,
            self._clock,
            self._random,
            self.waker,
            self._report,
            count=self.plan.workers if self.plan.may_claim_beside else 1,
            is_ordered=not self.plan.may_claim_beside,
            sizes=sizes,
            room=self._room,
            places=self._places,
            accept=self._accept,
            ended=self._tell_if_idle,
        )

    def _round_over(self) -> None:
        self._settler.notify()
        if self._transacting is not None:
            self._transacting.round_over()

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.plan.queue

    def pause(self) -> None:
        """Claim nothing until `resume`. Rows of a claim in flight are still handled."""
        self.is_paused = True
        self._report.paused()

    def resume(self) -> None:
        """Claim again, at once."""
        self.is_paused = False
        self._report.resumed()
        self.waker.wake()
        self._claimer.room_made()

    @property
    def in_work(self) -> list[Held]:
        """Every row that is still held here."""
        return list(self._holds.values())

    def start(self, tasks: TaskGroup) -> None:
        """Serve in `tasks`, until they are cancelled; then `close`.

        `drain`, `cancel_handlers` and `release` end it in order before.
        """
        self._unregister = self._wakes.register(self.plan.table, self.plan.group, self.waker.wake)
        tasks.start_soon(self._settler.run)
        self._keeper.start(tasks)
        self._workers.start(tasks)
        tasks.start_soon(self._claimer.run)

    async def close(self) -> None:
        """Let go of all that is left; when its tasks have ended."""
        self._unregister()
        self._workers.close()
        self._intake.close()
        with hasty(anyio.move_on_after(RELEASE_SECONDS, shield=True)):
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

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in work; after `drain` that lasts."""
        return self._claimer.has_ended and not self._holds

    def tell_left(self) -> None:
        """Name the rows that a stop leaves unsettled, but for those whose handlers still run."""
        for held in self.in_work:
            if held.stage is not Stage.RUNNING:
                self._report.left(held)

    def abandon_claim(self) -> None:
        """Wait no longer for a claim that does not answer."""
        self._claimer.abandon()

    def _release_queued(self) -> None:
        for held in self.in_work:
            if held.stage is Stage.QUEUED:
                self._release(held)

    def _make_turns(self) -> Turns | None:
        """Sessions that hold rows keep others from the next of a group, until they have ended."""
        plan = self.plan
        if self._form.lease is None:
            return None
        by_group = plan.is_every_group and plan.policy.is_fifo
        return turns_of(by_key=plan.by_key, by_group=by_group)

    def _room(self) -> int:
        if self.is_paused:
            return 0
        return self._capacity.room(self._holds.values())

    def _end_service(self, error: BaseException) -> None:
        """Claim no more, though the service has yet to hear of it: a worker is free now."""
        self._claimer.stop()
        self._fail(error)

    def _worker_freed(self) -> None:
        self._claimer.room_made()

    def _accept(self, claim: Claim, is_unwanted: bool) -> None:
        self._intake.accept(claim, is_unwanted)
        if claim.rows:
            self._keeper.notify()

    def _hand_over(self, work: Held | Batch) -> None:
        self._workers.hand_over(work, work.claimed.key if isinstance(work, Held) else None)

    def _move(self, held: Held) -> None:
        self._settler.add(held, self._conclusions.spent(held))

    def _let_go(self, held: Held) -> None:
        self._settler.let_go(held)

    async def _work(self, work: Held | Batch) -> None:
        if isinstance(work, Held):
            await self._deliver(work)
        else:
            await self._deliver_batch(work)

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
        ending = self._conclusions.handled(held, handled)
        if ending is not None:
            await self._settler.end(held, ending)

    async def _deliver_batch(self, batch: Batch) -> None:
        for held in batch.rows:
            if held.stage is Stage.QUEUED and held.has_ended(self._clock.monotonic()):
                self._lose(held, "it ran out before its handler could begin")
        read, unread = read_batch(batch.start(), self.plan, self._known)
        for held, handled in unread:
            ending = self._conclusions.handled(held, handled)
            if ending is not None:
                self._settler.add(held, ending)
        if not read:
            return
        endings: list[tuple[Held, Settlement | Release]] = []
        told: BaseException | None = None
        for held, handled in await handle_batch(batch, self.plan, read):
            ending = self._conclusions.handled(held, handled, traceback=handled.error is not told)
            told = handled.error
            if ending is not None:
                endings.append((held, ending))
        await self._settler.end_all(endings)

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

    def _release(self, held: Held) -> None:
        """Give back a row that no handler has."""
        release = self._conclusions.release(held)
        if release is not None:
            self._settler.add(held, release)

    def _lose(self, held: Held, reason: str) -> None:
        held.lost_error = self._report.lost(held, reason)
        held.lose()
        held.cancel()
        if held.stage is Stage.QUEUED:
            self._settler.let_go(held)
        else:
            self._intake.passed(held)

    def _forget(self, held: Held) -> None:
        held.stage = Stage.GONE
        if self._holds.pop(id(held), None) is None:
            return
        self._intake.forget(held)
        hold = held.claimed.fence.hold
        if hold is None and self.plan.make_transaction is not None:
            self._places.leave()
        # Rows that one session holds have one place.
        if hold is not None and all(h.claimed.fence.hold != hold for h in self._holds.values()):
            self._places.leave()
        self._tell_if_idle()
        self._claimer.room_made()
        if self.plan.is_every_group and self.plan.policy.is_fifo:
            self.waker.wake()  # the next of its group may be due

    def _tell_if_idle(self) -> None:
        if self.is_idle:
            self.when_idle()

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


def _nothing() -> None:
    """Nobody waits."""
