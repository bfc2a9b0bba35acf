"""What a subscription is to do, as the service composed it: all that the runtime needs to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from inboxkit._core.outcomes import Outcome
from inboxkit._core.settlement import Policy
from inboxkit.abc import Claimed

from .delivery import Delivery
from .transaction import HandlersTransaction

__all__ = [
    "BatchCallNext",
    "BatchMiddleware",
    "CallNext",
    "Decode",
    "MakeDelivery",
    "Middleware",
    "Plan",
    "Wrapping",
]

CallNext: TypeAlias = Callable[[Delivery[Any, Any]], Awaitable[Outcome]]
Middleware: TypeAlias = Callable[[Delivery[Any, Any], CallNext], Awaitable[Outcome]]
BatchCallNext: TypeAlias = Callable[[list[Delivery[Any, Any]]], Awaitable[list[Outcome]]]
BatchMiddleware: TypeAlias = Callable[
    [list[Delivery[Any, Any]], BatchCallNext],
    Awaitable[Outcome | Sequence[Outcome] | None],
]
Decode: TypeAlias = Callable[[Claimed], tuple[Any, Any]]
MakeDelivery: TypeAlias = Callable[..., Delivery[Any, Any]]


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What goes around handlers of both kinds."""

    each: Middleware
    """Around a handler of single deliveries."""
    batch: BatchMiddleware | None
    """Around a handler of batches; None: it knows of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One subscription."""

    queue: str
    """The queue's name, for the log."""
    table: str
    """The table's name, for wakes."""
    group: str | None
    """The rows' group; None where the table has none, or all are served."""
    handler: Callable[[Any], Awaitable[Any]]
    """The user's function, given its delivery, or a list of them."""
    handler_name: str
    """Its name, for messages."""
    decode: Decode
    """Message and row of what was claimed; raises DecodeError."""
    make_delivery: MakeDelivery
    """Builds what the handler gets; takes `message`, `row`, and what the runtime knows."""
    policy: Policy
    workers: int = 1
    prefetch: int = 0
    """Rows that are claimed beyond the free workers."""
    by_key: bool = False
    """Whether each worker serves its share of the keys, in order."""
    may_claim_beside: bool = True
    """Whether several claims may be in flight: not where rows are to be worked on in order."""
    settles_first: bool = False
    """Whether a row is claimed only once the settlement of the one before it was answered."""
    poll_interval: timedelta = timedelta(seconds=1)
    timeout: timedelta | None = None
    """Most time for a handler; past it the delivery is a failure."""
    middleware: tuple[Middleware, ...] = ()
    batch: int | None = None
    """Most deliveries of one call of the handler, which takes a list; None: it takes one."""
    batch_middleware: tuple[BatchMiddleware, ...] = ()
    """In place of `middleware`, where there are batches."""
    make_transaction: Callable[..., HandlersTransaction] | None = None
    """Of a transactional handler: makes its transaction, given what begins it."""
    transaction_end: Callable[[], float | None] | None = None
    """The monotonic second by which one that begins now must have ended, where it keeps others from
    renewing."""
    transaction_gives_way: Callable[[], bool] | None = None
    """Whether one that begins now is to let renewals go first; None where it keeps nobody from them."""
    is_every_group: bool = False
    """All groups of the table are served."""
    dead_letter_table: str | None = None
    """The table that dead letters go to, for wakes."""
