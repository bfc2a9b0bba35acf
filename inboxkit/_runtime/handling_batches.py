"""Runs a handler over a batch of deliveries and says how each ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio

from inboxkit._core.handler import handler_name
from inboxkit._core.outcomes import Ack, Drop, Outcome, Retry, ack
from inboxkit._core.settlement import Failed, Returned, Undecodable
from inboxkit.errors import ClosedError, DecodeError, Settle

from .answers import shown
from .batches import Batch
from .delivery import Delivery
from .handling import Handled
from .held import Held
from .plan import BatchCallNext, Plan

__all__ = ["handle_batch", "read_batch"]

Deliveries = list[Delivery[Any, Any]]


def read_batch(
    rows: Sequence[Held], plan: Plan, known: Callable[[Held], dict[str, Any]]
) -> tuple[list[tuple[Held, Delivery[Any, Any]]], list[tuple[Held, Handled]]]:
    """Decode the messages; returns the deliveries, and the ends of those that cannot be read.

    Args:
        rows: In claim order.
        plan: The subscription's.
        known: What `plan.make_delivery` takes beside message and row.
    """
    read, unread = [], []
    for held in rows:
        try:
            message, row = plan.decode(held.claimed)
        except DecodeError as error:
            unread.append((held, Handled(Undecodable(), error)))
            continue
        read.append((held, plan.make_delivery(message=message, row=row, **known(held))))
    return read, unread


async def handle_batch(
    batch: Batch, plan: Plan, read: Sequence[tuple[Held, Delivery[Any, Any]]]
) -> list[tuple[Held, Handled]]:
    """Run middleware and handler once, and say how each delivery ended.

    Args:
        batch: Its `cancel` ends the run, once all that is left of it is to be cancelled.
        plan: The subscription's.
        read: The deliveries, with their rows.

    Cancellation:
        `batch.cancel` ends it quietly. A cancellation that the handler made itself is a failure of all.
        One from outside passes.
    """
    handled = [Handled(None)] * len(read)
    with anyio.CancelScope() as scope, batch.cancelled_by(scope):
        handled = await _run(batch, plan, [delivery for _, delivery in read])
    return [(held, _of(held, one)) for (held, _), one in zip(read, handled, strict=True)]


def _of(held: Held, handled: Handled) -> Handled:
    if held.is_lost or (held.stop_asked and not held.has_returned):
        # What a handler raises once it was asked to stop is the stop's doing, not a failure.
        is_end = handled.error is not None and not isinstance(handled.error, Exception)
        return Handled(None, handled.error if is_end else None)
    return handled


async def _run(batch: Batch, plan: Plan, deliveries: Deliveries) -> list[Handled]:
    count = len(deliveries)
    call: BatchCallNext = partial(_call_handler, batch, plan)
    for middleware in reversed(plan.batch_middleware):
        call = partial(_call_middleware, middleware, call)
    try:
        return [Handled(Returned(outcome)) for outcome in await call(deliveries)]
    except _UnmatchedError as error:
        failed = Handled(Failed(), error)
        return [Handled(Returned(one)) if one is not None else failed for one in error.outcomes]
    except Settle as signal:
        return [
            Handled(Returned(outcome))
            for outcome in _matched(signal.outcome, count, "a middleware")
        ]
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        batch.note_return()
        own = RuntimeError("the handler raised a cancellation that nobody asked for")
        return [Handled(Failed(), own)] * count
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        return [Handled(Failed(), error)] * count
    except BaseException as error:  # noqa: BLE001 - ends the service, once the rows are released
        batch.note_return()
        return [Handled(None, error)] * count


async def _call_middleware(
    middleware: Any, call_next: BatchCallNext, deliveries: Deliveries
) -> list[Outcome]:
    who = f"middleware {handler_name(middleware)!r}"
    return _matched(await middleware(deliveries, call_next), len(deliveries), who)


async def _call_handler(batch: Batch, plan: Plan, deliveries: Deliveries) -> list[Outcome]:
    """Run the handler in a scope of its own, so that middleware sees an error, not a cancellation."""
    count = len(deliveries)
    limit = anyio.move_on_after(plan.timeout.total_seconds()) if plan.timeout else nullcontext()
    with anyio.CancelScope() as scope, batch.cancelled_by(scope), limit:
        try:
            # A list of its own: what the handler does with it is nobody else's.
            returned = await plan.handler(list(deliveries))
            batch.note_return()
        except Settle as signal:
            batch.note_return()
            returned = signal.outcome
        except Exception as error:
            if batch.lost_error is not None:
                raise batch.lost_error from error
            if not batch.is_unwanted:
                batch.note_return()
            raise
        if batch.lost_error is None:
            return _matched(returned, count, f"handler {plan.handler_name!r}")
    if batch.lost_error is not None:
        batch.cancel()  # now the middleware, once it has seen this
        raise batch.lost_error
    if batch.is_unwanted:
        batch.cancel()
        raise ClosedError("the service stops; the handler was cancelled and its rows are released")
    batch.note_return()
    raise TimeoutError(f"the handler did not end within {plan.timeout}")


class _UnmatchedError(TypeError):
    """Some deliveries have no outcome: None in `outcomes`."""

    def __init__(self, message: str, outcomes: Sequence[Outcome | None]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


def _matched(returned: object, count: int, who: str) -> list[Outcome]:
    """An outcome for each delivery, from what a handler of batches may return.

    Raises:
        _UnmatchedError: There is none for some. For all, where the list has another length: nothing tells
            which outcome is whose.
    """
    if returned is None:
        return [ack()] * count
    if isinstance(returned, Ack | Retry | Drop):
        return [returned] * count
    if not isinstance(returned, list | tuple):
        raise _UnmatchedError(
            f"{who} of batches returns ack(), retry(), retry_after(…), drop(…), a list of them or None, "
            f"not {shown(returned)}",
            [None] * count,
        )
    if len(returned) != count:
        raise _UnmatchedError(
            f"{who} of {count} deliveries returned a list of {len(returned)} outcomes; it returns "
            "one for each delivery, in their order",
            [None] * count,
        )
    found = [one if isinstance(one, Ack | Retry | Drop) else None for one in returned]
    if wrong := [place for place, one in enumerate(found) if one is None]:
        kinds = sorted({shown(returned[place]) for place in wrong})
        raise _UnmatchedError(
            f"{len(wrong)} of the {count} outcomes that {who} returned are "
            f"none (at {', '.join(map(str, wrong[:10]))}: {', '.join(kinds)}); write ack(), retry(), "
            "retry_after(…) or drop(…)",
            found,
        )
    return [one for one in found if one is not None]
