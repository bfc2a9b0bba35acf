"""What the runtime knows of a handler's transaction, and how long one may keep others from renewing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import anyio

from inboxkit._core import lease as leases
from inboxkit._core.settlement import Settlement
from inboxkit.abc import ClaimForm, Clock, DriverConnection, Fence, Settled, Work
from inboxkit.errors import DatabaseError

from .held import Held, Stage

__all__ = ["HandlersTransaction", "HoldBook", "Part"]

_WAY: Final = 0.1
"""Seconds between looks whether the renewals are through."""
_LATE_SHARE: Final = 0.35
"""Of the lease: a renewal that comes in time leaves its hold 0.4 of it."""


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
        clock: Times how long it gives way.
        gives_way: Whether others are to have the only write lock first; None: there is none.
    """

    def __init__(
        self, held: Held, form: ClaimForm, clock: Clock, gives_way: Callable[[], bool] | None
    ) -> None:
        self._held = held
        self._form = form
        self._clock = clock
        self._gives_way = gives_way
        self._work: Work | None = None
        self._is_over = False
        self.begun = anyio.Event()

    async def open(self) -> DriverConnection:
        """Begin it; where renewals have waited too long for the write lock, after them."""
        while True:
            work = await self._form.begin(self._held.fence)
            if self._is_over:
                await work.rollback()
                raise DatabaseError("begin: the handler of this transaction has returned")
            if self._gives_way is None or not self._gives_way():
                break
            await work.rollback()
            while self._gives_way():
                await self._clock.sleep(_WAY)
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
        self._subscriptions: WeakKeyDictionary[HasHolds, None] = WeakKeyDictionary()

    def add(self, subscription: HasHolds) -> None:
        """Take a subscription's holds into account for as long as there are any."""
        self._subscriptions[subscription] = None

    def transaction_end(self, now: float) -> float | None:
        """The second by which a transaction that begins now must have ended; None: nobody waits.

        A tenth of its lease before the first hold ends: renewals that waited meanwhile then come in time.
        """
        ends = [end - leases.margin(lease) for end, lease in self._ends(now)]
        return min(ends, default=None)

    def must_give_way(self, now: float) -> bool:
        """Whether a renewal is late, so that a transaction that begins now had hardly any time."""
        return any(
            end - now < lease.total_seconds() * _LATE_SHARE for end, lease in self._ends(now)
        )

    def _ends(self, now: float) -> Iterator[tuple[float, timedelta]]:
        """The ends of all holds that are still to be renewed, with their leases."""
        for subscription in self._subscriptions:
            for held in subscription.in_work:
                if (
                    held.hold_end is not None
                    and held.lease is not None
                    and held.is_renewed
                    and held.stage is not Stage.GONE
                    and not held.is_lost
                    and not held.has_ended(now)
                ):
                    yield held.hold_end, held.lease
