"""What the testing kit adds to a service's own events: what a test did, and when handlers ran."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import anyio

from inboxkit import Ack, Delivery, Drop, Outcome, Service, Settle, events
from inboxkit.errors import ClosedError, DeclarationError, DecodeError, LeaseLostError

__all__ = [
    "Armed",
    "Began",
    "Crashed",
    "Cut",
    "Ended",
    "Healed",
    "Note",
    "Unsure",
    "note_calls",
    "send",
]

_logger = logging.getLogger("inboxkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(events.Event):
    """What the test itself did."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Note):
    """The instance was killed: nothing of it happens any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Note):
    """The instance was cut from its database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed(Note):
    """The instance reaches its database again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsure(Note):
    """A row was published, or not: nobody knows, nor by which id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed(Note):
    """At a statement that is still to come the instance will crash, or lose a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began(events.RowEvent):
    """A handler was called."""

    key: Any
    """The partition key's value."""
    priority: int | None
    """As it stood in the row; None too where the table has no such column."""
    due: datetime | None
    """The row's `retry_after`, in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(events.RowEvent):
    """A handler is over."""

    key: Any
    outcome: str
    """``"ack"``, ``"drop"``, ``"retry"``; ``"lost"`` or ``"cancelled"``; else the error's name."""


def note_calls(service: Service) -> None:
    """Have each run of this service's handlers noted, as `Began` and `Ended`.

    A middleware, so it is called before the service runs. `World` does it by itself; a real service
    does it so that its log tells when handlers ran, and not only when rows were held.
    """

    async def note(delivery: Delivery[Any, Any], call_next: Any) -> Outcome:
        known = _begin(service, delivery)
        outcome = "cancelled"
        try:
            answer: Outcome = await call_next(delivery)
            outcome = _name_of(answer)
        except BaseException as error:
            outcome = _name_of_error(error)
            raise
        finally:
            send(Ended(at=delivery.clock.now(), outcome=outcome, **known))
        return answer

    async def note_batch(deliveries: list[Delivery[Any, Any]], call_next: Any) -> list[Outcome]:
        begun = [_begin(service, delivery) for delivery in deliveries]
        outcomes = ["cancelled"] * len(deliveries)
        try:
            answers: list[Outcome] = await call_next(deliveries)
            outcomes = [_name_of(answer) for answer in answers]
        except BaseException as error:
            outcomes = [_name_of_error(error)] * len(deliveries)
            raise
        finally:
            for delivery, known, outcome in zip(deliveries, begun, outcomes, strict=True):
                named = "lost" if delivery.lost.is_set() else outcome
                send(Ended(at=delivery.clock.now(), outcome=named, **known))
        return answers

    service.use(note, batch=note_batch)


def _begin(service: Service, delivery: Delivery[Any, Any]) -> dict[str, Any]:
    """Note the beginning; returns what the end is to say too."""
    known: dict[str, Any] = {
        "instance": service.name,
        "queue": delivery.queue.name,
        "id": delivery.id,
        "attempt": _attempt(delivery),
        "table": delivery.queue.spec.name,
        "group": delivery.group,
        "key": delivery.key,
    }
    priority, due = _column(delivery, "priority"), _column(delivery, "retry_after")
    send(Began(at=delivery.clock.now(), priority=priority, due=due, **known))
    return known


def send(event: events.Event) -> None:
    """Log an event as the library logs its own."""
    if _logger.isEnabledFor(logging.DEBUG):
        text = event.text if isinstance(event, Note) else type(event).__name__.lower()
        _logger.debug("%s: %s", event.instance, text, extra={"event": event})


def _name_of(outcome: Outcome) -> str:
    if isinstance(outcome, Ack):
        return "ack"
    return "drop" if isinstance(outcome, Drop) else "retry"


def _name_of_error(error: BaseException) -> str:
    match error:
        case Settle(outcome=outcome):
            return _name_of(outcome)
        case LeaseLostError():
            return "lost"
        case ClosedError():
            return "cancelled"
    is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
    return "cancelled" if is_cancelled else type(error).__name__


def _attempt(delivery: Delivery[Any, Any]) -> int | None:
    return delivery.attempt if delivery.queue.spec.attempt is not None else None


def _column(delivery: Delivery[Any, Any], role: str) -> Any:
    spec = delivery.queue.spec
    column = getattr(spec, role)
    if column is None:
        return None
    name = spec.field_of(column)
    try:
        row = delivery.row
        return row[name] if isinstance(row, Mapping) else getattr(row, name)
    except (DecodeError, DeclarationError):
        return None
