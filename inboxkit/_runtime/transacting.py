"""Deliveries to transactional handlers: what they wrote is committed with the ack, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import anyio

from inboxkit._core.backoff import Backoff
from inboxkit._core.outcomes import Ack
from inboxkit._core.settlement import Failed, Returned, Settlement, Verb, decide
from inboxkit.abc import ClaimForm, Clock, Fence, Settled
from inboxkit.errors import DatabaseError, TransactionTooLongError

from .handling import Handled, handle
from .held import Held, Release, Stage
from .plan import Plan
from .reporting import Reporter
from .timing import wait_for
from .transaction import HandlersTransaction, Part

__all__ = ["Transacting"]

_ACK = Settlement(Verb.FINISH)
_CUT_BOUND = 1.0
"""Seconds that a statement in flight has to end in, once its handler's transaction was cut short."""


class Ends(Protocol):
    """Writes the ends of deliveries, and takes note of those that were written here."""

    async def end(self, held: Held, ending: Settlement | Release) -> None:
        """The delivery has ended: write this."""
        ...

    def take(self, held: Held, ending: Settlement, answer: Settled) -> None:
        """This was written: what became of it."""
        ...


class Transacting:
    """Runs one subscription's handlers in their transactions, and ends both.

    Only an ack commits: every other end rolls back first what the handler wrote, and then settles as
    without a transaction.

    Args:
        plan: The subscription's.
        form: Begins transactions.
        clock: Times what must not be too long.
        random: The service's seeded source.
        report: The log.
        settler: The subscription's.
        conclude: What is to be written for a handler's end; None: nothing.
        known: What a delivery is made of.
    """

    def __init__(
        self,
        plan: Plan,
        form: ClaimForm,
        clock: Clock,
        random: Random,
        report: Reporter,
        *,
        settler: Ends,
        conclude: Callable[[Held, Handled], Settlement | Release | None],
        known: Callable[[Held], dict[str, Any]],
    ) -> None:
        self._plan = plan
        self._form = form
        self._clock = clock
        self._random = random
        self._report = report
        self._settler = settler
        self._conclude = conclude
        self._known = known
        self._round = anyio.Event()

    def round_over(self) -> None:
        """A round of renewals was answered."""
        self._round.set()
        self._round = anyio.Event()

    async def deliver(self, held: Held) -> None:
        """Run the handler over one delivery, and end it."""
        assert self._plan.make_transaction is not None
        part = Part(held, self._form, self._clock, self._plan.transaction_gives_way)
        tx = self._plan.make_transaction(part.open, has_returned=lambda: held.has_returned)
        try:
            handled = await self._handle(held, part, tx)
            kept = tx.close()
            handled = _judged(held, tx, handled, kept)
            if _is_ack(handled) and (part.begun.is_set() or tx.wants_commit):
                error = await self._ack(held, part, tx)
                if error is None:
                    return
                handled = Handled(None, error)
            await part.undo(tx.idle)
        finally:
            # Where a cancellation ends it.
            tx.close()
            with anyio.CancelScope(shield=True):
                await part.undo(tx.idle)
        await self._end(held, handled)

    async def _handle(self, held: Held, part: Part, tx: HandlersTransaction) -> Handled:
        known = self._known(held)
        handled = Handled(None)
        if self._plan.transaction_end is None:
            return await handle(held, self._plan, **known, tx=tx)
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._cut_in_time, held, part, tx)
            handled = await handle(held, self._plan, **known, tx=tx)
            beside.cancel_scope.cancel()
        return handled

    async def _cut_in_time(self, held: Held, part: Part, tx: HandlersTransaction) -> None:
        """Where it has the only write lock: renewals wait for its end."""
        assert self._plan.transaction_end is not None
        await part.begun.wait()
        end = self._plan.transaction_end()
        if end is None:
            return
        start = self._clock.monotonic()
        await self._clock.sleep(max(end - start, 0.0))
        error = TransactionTooLongError(
            f"queue {self._plan.queue!r}: the transaction of row {held.id!r} has kept SQLite's write lock "
            f"for {self._clock.monotonic() - start:g} s and was rolled back, since no lease of this "
            "process can be renewed meanwhile; write at the handler's end, or give the queue a longer lease"
        )
        held.cut_error = error
        tx.cut(error)
        held.cancel()
        with anyio.CancelScope(shield=True):
            await wait_for(tx.idle, self._clock, _CUT_BOUND)
            await part.undo(tx.idle)

    async def _ack(self, held: Held, part: Part, tx: HandlersTransaction) -> DatabaseError | None:
        """Commit; an error where that came to nothing, and the row is to be settled otherwise."""
        held.stage = Stage.ENDED
        held.is_settling = True  # no renewal takes it along from here on
        try:
            if not part.begun.is_set():
                await part.open()
            await tx.prepare()
            answer = await part.ack(_ACK, lambda sent: self._moved(held, sent))
        except DatabaseError as error:
            self._report.failed(held, error)
            return error
        finally:
            held.is_settling = False
        if answer.result == "unknown" and self._form.lease is not None:
            return self._doubt(held, answer)
        try:
            if answer.result == "written":
                await tx.committed()
        finally:
            self._settler.take(held, _ACK, answer)
        return None

    def _doubt(self, held: Held, answer: Settled) -> DatabaseError:
        """Whether it was committed shows when the row is settled otherwise: then it is gone, or it has
        our token still. A COMMIT that is under way yet has the row locked until then."""
        held.may_be_settled = True
        error = answer.error
        assert isinstance(error, DatabaseError)
        self._report.outage(
            f"row {held.id!r}: the answer to the commit of its handler's transaction was lost; if it was "
            "not committed, the row is handed out again",
            error,
            held=held,
        )
        return error

    async def _moved(self, held: Held, sent: Fence) -> Fence | None:
        """The fence after the renewal that is in flight, if that has changed it."""
        while held.in_round:
            await self._round.wait()
        return held.fence if held.fence != sent else None

    async def _end(self, held: Held, handled: Handled) -> None:
        """Settle or release, now that nothing is left of the handler's transaction."""
        is_unwritten = held.stage is Stage.ENDED
        ending = self._retried(held) if is_unwritten else self._conclude(held, handled)
        if ending is not None:
            await self._settler.end(held, ending)

    def _retried(self, held: Held) -> Settlement:
        """The handler has acked, but the database did not take it: that is no failure that
        `on_error` may drop the row or stop the service for."""
        policy = self._plan.policy
        if not isinstance(policy.on_error, Backoff):
            policy = replace(policy, on_error=Backoff.exponential())
        settlement = decide(
            Failed(),
            attempt=held.claimed.attempt or 1,
            policy=policy,
            random=self._random,
            group=held.claimed.group,
        )
        assert settlement is not None
        return settlement


def _judged(
    held: Held, tx: HandlersTransaction, handled: Handled, kept: Exception | None
) -> Handled:
    """How the run has ended, by what the transaction says of it."""
    ends_service = handled.error is not None and not isinstance(handled.error, Exception)
    if held.is_lost or ends_service:
        return handled
    if held.cut_error is not None:
        return Handled(Failed(), held.cut_error)
    if not isinstance(handled.ending, Returned):
        return handled
    error = kept or (tx.failure if _is_ack(handled) else None)
    return handled if error is None else Handled(Failed(), error)


def _is_ack(handled: Handled) -> bool:
    return isinstance(handled.ending, Returned) and isinstance(handled.ending.outcome, Ack)
