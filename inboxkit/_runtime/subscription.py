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
from .handling import Handled, handle
from .held import Held, Release, Stage
from .plan import Plan
from .renewing import Renewer
from .reporting import Reporter
from .settling import Settler
from .waking import WakeHub, Waker
from .workers import Workers

__all__ = ["Subscription"]


class Subscription:
    """Serves one queue until it is told to stop.

    The tasks: one claims, some work, one settles, one renews, one ends holds in time. All live in
    one task group; nothing outlives `run`.

    Args:
        plan: What to do.
        form: How rows are held.
        clock: All its times.
        random: The service's seeded source.
        report: The log.
        wakes: Where it listens, and tells others of rows that it makes due.
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
        fail: Callable[[BaseException], None],
    ) -> None:
        self.plan = plan
        self._form = form
        self._clock = clock
        self._random = random
        self._report = report
        self._wakes = wakes
        self._fail = fail
        self._holds: dict[int, Held] = {}
        self._idle = anyio.Event()
        self._warned_of_delay = False
        self.waker = Waker(clock, random, plan.poll_interval.total_seconds())
        self._workers = Workers(plan.workers, by_key=plan.by_key, deliver=self._deliver)
        self._settler = Settler(
            form, clock, random, report, settled=self._forget, due=self._tell_due
        )
        self._renewer = Renewer(
            form,
            clock,
            report,
            holds=self._holds.values,
            lost=self._lose,
            round_over=self._settler.notify,
        )
        self._claimer = Claimer(
            form, clock, random, self.waker, report, room=self._room, accept=self._accept
        )

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
                if self._form.lease is not None:
                    tasks.start_soon(self._renewer.renew)
                    tasks.start_soon(self._renewer.end_holds)
                self._workers.start(tasks)
                tasks.start_soon(self._claimer.run)
                task_status.started()
        finally:
            unregister()
            self._workers.close()

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

    def _accept(self, claim: Claim, is_stopping: bool) -> None:
        older = {held.id: held for held in self._holds.values()} if claim.rows else {}
        for claimed in claim.rows:
            if claimed.fence.id in older:
                self._supersede(older[claimed.fence.id])
            held = Held(claimed, self._form.lease)
            self._holds[id(held)] = held
            self._report.claimed(held)
            if is_stopping:
                self._release(held)
            elif claimed.spent:
                settlement = decide(
                    Spent(),
                    attempt=claimed.attempt or 1,
                    policy=self.plan.policy,
                    random=self._random,
                    group=claimed.group,
                )
                self._settler.add(held, settlement or Settlement(Verb.GIVE_BACK))
            else:
                self._workers.hand_over(held)
        if claim.rows:
            self._renewer.notify()

    async def _deliver(self, held: Held) -> None:
        if held.stage is not Stage.QUEUED:
            return  # released or lost meanwhile
        if held.has_ended(self._clock.monotonic()):
            self._lose(held, "it ran out before its handler could begin")
            return
        held.stage = Stage.RUNNING
        handled = await handle(held, self.plan, **self._known(held))
        self._conclude(held, handled)

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

    def _conclude(self, held: Held, handled: Handled) -> None:
        if handled.error is not None and not isinstance(handled.error, Exception):
            self._release(held, counted=True)
            self._fail(handled.error)
            return
        if held.lost.is_set():
            self._forget(held)
            return
        if handled.ending is None:
            self._release(held, counted=held.has_returned)
            return
        settlement = decide(
            handled.ending,
            attempt=held.claimed.attempt or 1,
            policy=self.plan.policy,
            random=self._random,
            group=held.claimed.group,
        )
        if settlement is None:
            self._release(held, counted=True)
            self._fail(handled.error or RuntimeError("a handler failed"))
        else:
            self._note(held, handled)
            self._settler.add(held, settlement)
        if handled.error is not None:
            self._report.failed(held, handled.error)

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

    def _release(self, held: Held, *, counted: bool = False) -> None:
        if held.lost.is_set():
            self._forget(held)
        else:
            self._settler.add(held, Release(give_back=held.claimed.counted and not counted))

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
            self._forget(held)

    def _forget(self, held: Held) -> None:
        held.stage = Stage.GONE
        if self._holds.pop(id(held), None) is not None:
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
