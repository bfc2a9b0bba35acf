"""A row in work here: what holds it, and how far its delivery has come."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio

from inboxkit._core import lease as leases
from inboxkit._core.settlement import Settlement
from inboxkit.abc import Claimed, Fence, Reading
from inboxkit.errors import LeaseLostError

if TYPE_CHECKING:
    from .batches import Batch

__all__ = ["Held", "Release", "Stage"]


class Stage(enum.Enum):
    """How far a delivery has come."""

    QUEUED = "queued"
    """Waits for its worker."""
    RUNNING = "running"
    """Its handler has it."""
    ENDED = "ended"
    """Its settlement or release is to be written."""
    GONE = "gone"
    """Nothing more is ever written for it here."""


@dataclass(frozen=True, slots=True)
class Release:
    """The row is to be given back unsettled."""

    give_back: bool
    """Whether its attempt is taken back too."""


@dataclass(slots=True, eq=False)
class Held:
    """One delivery, from its claim until nothing more is written for it."""

    claimed: Claimed
    lease: timedelta | None
    """None: the hold is a connection, and never ends by itself."""
    tokens: tuple[datetime, ...] = field(init=False)
    """Expiries that may stand in the row; the first is confirmed."""
    reading: Reading = field(init=False)
    """The reading that the confirmed expiry was made from."""
    stage: Stage = Stage.QUEUED
    is_lost: bool = False
    """The hold is lost; set by `lose`."""
    lost_error: LeaseLostError | None = None
    """What middleware sees once the hold is lost."""
    has_returned: bool = False
    """The handler came to an end of its own: it returned, or raised."""
    cut_error: Exception | None = None
    """Why its handler was ended before its time, with its transaction."""
    is_transacting: bool = False
    """Its handler's transaction is open."""
    stop_asked: bool = False
    """The service asked the handler to end."""
    ending: Settlement | Release | None = None
    """What is to be written, once the handler has ended."""
    in_round: bool = False
    """A renewal of it is in flight."""
    is_settling: bool = False
    """A settlement or release of it is in flight."""
    may_be_settled: bool = False
    """An earlier settlement's answer was lost."""
    is_suspect: bool = False
    """A settlement of it was not answered in time: it goes by itself."""
    is_renewed: bool = True
    """False once its settlement was refused: it is left to run out."""
    renew_at: float = field(init=False)
    """The monotonic second of its next renewal."""
    skips: int = 0
    """Renewals in a row that found it locked."""
    repeats: int = 0
    """Settlements of it that failed so far."""
    repeat_at: float = 0.0
    """The monotonic second before which its settlement is not repeated."""
    successor: Held | None = None
    """A delivery of the same row that was claimed before the answer to this one's settlement came: it
    waits for that, since the row may have to rest."""
    waits: bool = False
    """It is such a delivery, and the answer has not come."""
    batch: Batch | None = None
    """The rows that one call of the handler takes with it; None: it takes one."""
    together: Sequence[Held] = ()
    """All rows of the session that holds it, where they end by one write; empty: it ends alone."""
    outcome: str = "ack"
    """``"ack"`` or ``"drop"``, for the event of a finished row."""
    note: str = ""
    """The reason of a drop, for the event."""
    _scopes: list[anyio.CancelScope] = field(default_factory=list)
    _lost: anyio.Event | None = None
    """Made for those who ask: on asyncio it takes most of a kilobyte."""

    def __post_init__(self) -> None:
        self.tokens = self.claimed.fence.tokens
        self.reading = self.claimed.reading
        self.renew_at = self._half_a_lease_later()

    @property
    def id(self) -> Any:
        """The row's id."""
        return self.claimed.fence.id

    @property
    def fence(self) -> Fence:
        """What the row must hold for us to write it, with every token that may stand there."""
        claimed = self.claimed.fence
        return Fence(claimed.id, self.tokens, claimed.attempt, claimed.hold)

    @property
    def hold_end(self) -> float | None:
        """The monotonic second at which the hold ends; None: never by itself."""
        if self.lease is None:
            return None
        return leases.hold_end(self.reading.monotonic, self.lease)

    @property
    def has_unknown_renewal(self) -> bool:
        """Whether a token may stand in the row that no answer has confirmed."""
        return len(self.tokens) > 1

    @property
    def has_own_lock(self) -> bool:
        """Whether its last renewal found the row locked, while its own transaction is open.

        Whose lock that is cannot be told; while it lasts nobody claims the row, and renewals go on.
        """
        return self.is_transacting and self.skips > 0

    def lost(self) -> anyio.Event:
        """Set once the hold is lost."""
        if self._lost is None:
            self._lost = anyio.Event()
            if self.is_lost:
                self._lost.set()
        return self._lost

    def lose(self) -> None:
        """The hold is lost."""
        self.is_lost = True
        if self._lost is not None:
            self._lost.set()

    def deadline(self) -> datetime | None:
        """The wall clock's instant of `hold_end`, as now known."""
        if self.lease is None:
            return None
        return self.reading.now + self.lease - timedelta(seconds=leases.margin(self.lease))

    def has_ended(self, monotonic: float) -> bool:
        """Whether the hold is over: not while the handler's own transaction has the row locked, so
        that nobody can claim it, and renewals pass over it."""
        if self.has_own_lock:
            return False
        end = self.hold_end
        return end is not None and monotonic >= end

    def wants_renewal(self, monotonic: float) -> bool:
        """Whether a round may take it along."""
        return (
            self.lease is not None
            and self.is_renewed
            and not self.in_round
            and not self.is_settling
            and self.stage is not Stage.GONE
            and not self.is_lost
            and not self.has_ended(monotonic)
            # A release of unknown outcome may have given the row to somebody else already.
            and not isinstance(self.ending, Release)
        )

    def cancelled_by(self, scope: anyio.CancelScope) -> _CancelledBy:
        """While this is open, and nothing inside it, `cancel` cancels `scope`."""
        return _CancelledBy(self, scope)

    def cancel(self) -> None:
        """End the handler where it runs, or else the middleware around it.

        Not both at once: middleware is to see why its handler was cancelled. A batch's is cancelled
        with its last row.
        """
        if self.batch is not None:
            self.batch.cancel()
        elif self._scopes:
            self._scopes[-1].cancel()

    def confirm(self, token: datetime, reading: Reading) -> None:
        """A renewal is known to stand in the row: all older tokens are overwritten."""
        self.tokens = (token,)
        self.reading = reading
        self.skips = 0
        self.renew_at = self._half_a_lease_later()

    def suspect(self, token: datetime) -> None:
        """A renewal's answer was lost: its token may stand in the row."""
        self.tokens = (*self.tokens, token)

    def enter(self, scope: anyio.CancelScope) -> None:
        """`scope` is the innermost from now on."""
        self._scopes.append(scope)
        if self.is_lost or self.stop_asked:
            scope.cancel()

    def leave(self, scope: anyio.CancelScope) -> None:
        """It is over."""
        self._scopes.remove(scope)

    def _half_a_lease_later(self) -> float:
        if self.lease is None:
            return float("inf")
        return self.reading.monotonic + self.lease.total_seconds() / 2


class _CancelledBy:
    """Each row in work has two of these open, so that they are no generators."""

    __slots__ = ("_held", "_scope")

    def __init__(self, held: Held, scope: anyio.CancelScope) -> None:
        self._held = held
        self._scope = scope

    def __enter__(self) -> None:
        self._held.enter(self._scope)

    def __exit__(self, *_: object) -> None:
        self._held.leave(self._scope)
