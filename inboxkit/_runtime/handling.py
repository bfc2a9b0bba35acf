"""Runs a handler over one delivery and says how it ended."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from inboxkit._core.handler import handler_name
from inboxkit._core.outcomes import Outcome
from inboxkit._core.settlement import Ending, Failed, Returned, Undecodable
from inboxkit.errors import ClosedError, DecodeError, Settle

from .answers import checked
from .delivery import Delivery
from .held import Held
from .plan import CallNext, Plan

__all__ = ["Handled", "handle"]


@dataclass(frozen=True, slots=True)
class Handled:
    """How a handler's run ended."""

    ending: Ending | None
    """None: nothing follows from it (the hold was lost, the service stops, or `error` ends it)."""
    error: BaseException | None = None
    """What was raised. One that is no Exception ends the service."""


async def handle(held: Held, plan: Plan, **known: Any) -> Handled:
    """Decode the message, run middleware and handler, and say how it ended.

    Args:
        held: Its `cancel` ends the run.
        plan: The subscription's.
        known: What `plan.make_delivery` takes beside message and row.

    Cancellation:
        `held.cancel` ends it quietly. A cancellation that the handler made itself is a failure. One
        from outside passes.
    """
    try:
        message, row = plan.decode(held.claimed)
    except DecodeError as error:
        return Handled(Undecodable(), error)
    delivery = plan.make_delivery(message=message, row=row, **known)
    del known, message, row  # a handler may wait for minutes, beside thousands of others
    handled = Handled(None)
    with anyio.CancelScope() as scope, held.cancelled_by(scope):
        handled = await _run(held, plan, delivery)
    if held.is_lost or (held.stop_asked and not held.has_returned):
        # What a handler raises once it was asked to stop is the stop's doing, not a failure.
        return Handled(None, handled.error if _ends_service(handled.error) else None)
    return handled


async def _run(held: Held, plan: Plan, delivery: Delivery[Any, Any]) -> Handled:
    call: CallNext = partial(_call_handler, held, plan)
    for middleware in reversed(plan.middleware):
        call = partial(_call_middleware, middleware, call)
    try:
        return Handled(Returned(await call(delivery)))
    except Settle as signal:
        return Handled(Returned(checked(signal.outcome, "a middleware")))
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        held.has_returned = True
        return Handled(
            Failed(), RuntimeError("the handler raised a cancellation that nobody asked for")
        )
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        return Handled(Failed(), error)
    except BaseException as error:  # noqa: BLE001 - ends the service, once the row is released
        held.has_returned = True
        return Handled(None, error)


async def _call_middleware(middleware: Any, call_next: CallNext, delivery: Any) -> Outcome:
    who = f"middleware {handler_name(middleware)!r}"
    return checked(await middleware(delivery, call_next), who)


async def _call_handler(held: Held, plan: Plan, delivery: Delivery[Any, Any]) -> Outcome:
    """Run the handler in a scope of its own, so that middleware sees an error, not a cancellation."""
    limit = anyio.move_on_after(plan.timeout.total_seconds()) if plan.timeout else nullcontext()
    with anyio.CancelScope() as scope, held.cancelled_by(scope), limit:
        try:
            returned = await plan.handler(delivery)
            held.has_returned = True
        except Settle as signal:
            held.has_returned = True
            returned = signal.outcome
        except Exception as error:
            if held.lost_error is not None:
                raise held.lost_error from error
            if held.cut_error is not None:
                raise held.cut_error from error
            held.has_returned = not held.stop_asked
            raise
        if held.lost_error is None and held.cut_error is None:
            return checked(returned, f"handler {plan.handler_name!r}")
    if held.lost_error is not None:
        held.cancel()  # now the middleware, once it has seen this
        raise held.lost_error
    if held.stop_asked:
        held.cancel()
        raise ClosedError("the service stops; the handler was cancelled and its row is released")
    held.has_returned = True
    if held.cut_error is not None:
        raise held.cut_error
    raise TimeoutError(f"the handler did not end within {plan.timeout}")


def _ends_service(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, Exception)
