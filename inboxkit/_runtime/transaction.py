"""What the runtime knows of a handler's transaction, and how long one may keep others from renewing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol
from weakref import WeakSet

import anyio

from inboxkit._core import lease as leases
from inboxkit._core.settlement import Settlement
from inboxkit.abc import ClaimForm, DriverConnection, Fence, Settled, Work
from inboxkit.errors import DatabaseError

from .held import Held, Stage

__all__ = ["HandlersTransaction", "HoldBook", "Part"]


class HandlersTransaction(Protocol):
    """`delivery.tx`, seen from here; `inboxkit._db.handler_transaction` has it."""

    @property
    def wants_commit(self) -> bool:
        """Whether something waits for its commit, although it may not have begun."""
        ...

    @property
    def failure(self) -> DatabaseError | None:
        """What keeps it from being committed: a failure that the handler did not let out."""
        ...

    @property
    def idle(self) -> anyio.Event:
        """Set once no statement of it is in flight."""
        ...

    def cut(self, error: Exception) -> None:
        """End it while its handler runs: every further statement raises this."""
        ...

    def close(self) -> Exception | None:
        """The handler has returned. An error where it, or another task, has not let go of it."""
        ...

    async def prepare(self) -> None:
        """The last thing before the settlement."""
        ...

    async def committed(self) -> None:
        """Call what waits for the commit."""
        ...


class Part:
    """The form's transaction for one delivery: begun once, if at all, and ended once.

    Args:
        held: The delivery.
        form: Begins it.
    """

    def __init__(self, held: Held, form: ClaimForm) -> None:
        self._held = held
        self._form = form
        self._work: Work | None = None
        self._is_over = False
        self.begun = anyio.Event()

    async def open(self) -> DriverConnection:
        """Begin it."""
        work = await self._form.begin(self._held.fence)
        if self._is_over:
            await work.rollback()
            raise DatabaseError("begin: the handler of this transaction has returned")
        self._work = work
        self._held.is_transacting = True
        self.begun.set()
        return work.connection

    async def ack(
        self, settlement: Settlement, moved: Callable[[Fence], Awaitable[Fence | None]]
    ) -> Settled:
        """Commit it together with a settlement; else as `Work.ack`."""
        work = self._end()
        assert work is not None, "it has begun"
        return await work.ack(self._held.fence, settlement, moved=moved)

    async def undo(self, idle: anyio.Event) -> None:
        """Roll it back, unless it has ended.

        Args:
            idle: Not set: a task that was not ended with the handler still uses it.
        """
        work = self._end()
        if work is None:
            return
        if not idle.is_set():
            work.connection.terminate()
        await work.rollback()

    def _end(self) -> Work | None:
        self._is_over = True
        self._held.is_transacting = False
        work, self._work = self._work, None
        return work


class HasHolds(Protocol):
    """A subscription."""

    @property
    def in_work(self) -> list[Held]:
        """Every row that is still held here."""
        ...


class HoldBook:
    """All holds of a database in this process, for transactions that let nobody else write."""

    def __init__(self) -> None:
        self._subscriptions: WeakSet[HasHolds] = WeakSet()

    def add(self, subscription: HasHolds) -> None:
        """Take a subscription's holds into account for as long as there are any."""
        self._subscriptions.add(subscription)

    def transaction_end(self, now: float) -> float | None:
        """The second by which a transaction that begins now must have ended; None: nobody waits.

        A tenth of its lease before the first hold ends: renewals that waited meanwhile then come in time.
        """
        ends = [
            held.hold_end - leases.margin(held.lease)
            for subscription in self._subscriptions
            for held in subscription.in_work
            if held.hold_end is not None
            and held.lease is not None
            and held.is_renewed
            and held.stage is not Stage.GONE
            and not held.lost.is_set()
            and not held.has_ended(now)
        ]
        return min(ends, default=None)
