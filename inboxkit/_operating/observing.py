"""What a service does and how its queues stand, told to something that keeps metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias

from inboxkit import events
from inboxkit._core.outcomes import Outcome
from inboxkit._runtime.delivery import Delivery
from inboxkit._runtime.plan import BatchCallNext, CallNext
from inboxkit.errors import ClosedError, LeaseLostError, Settle
from inboxkit.service import Service

from .looking import Look, Looker

__all__ = ["CLAIMS", "RESULTS", "SETTLEMENTS", "Claim", "Meters", "Result", "Settlement", "observe"]

Claim: TypeAlias = Literal["rows", "empty", "failed"]
Settlement: TypeAlias = Literal[
    "ack", "drop", "retry", "dead_letter", "release", "unknown", "failed"
]
Result: TypeAlias = Literal["returned", "raised", "lost", "stopped"]

CLAIMS: Final[tuple[Claim, ...]] = ("rows", "empty", "failed")
"""What a claim brought."""
SETTLEMENTS: Final[tuple[Settlement, ...]] = (
    "ack",
    "drop",
    "retry",
    "dead_letter",
    "release",
    "unknown",
    "failed",
)
"""How deliveries end: by a write of that kind; with its answer lost; or with no write."""
RESULTS: Final[tuple[Result, ...]] = ("returned", "raised", "lost", "stopped")
"""How a handler's run ends: cancelled by a lost hold, or by the service's stop, in the last two."""


class Meters(Protocol):
    """Keeps the numbers of one service. Called on its event loop, and must not wait."""

    def started(self, queues: Sequence[str]) -> None:
        """The service claims from now on."""
        ...

    def published(self, queue: str) -> None:
        """A row was published."""
        ...

    def claimed(self, queue: str, result: Claim, rows: int, seconds: float) -> None:
        """A claim ended."""
        ...

    def handled(self, queue: str, result: Result, seconds: float) -> None:
        """A handler's run ended, of one delivery or of a batch."""
        ...

    def settled(self, queue: str, settlement: Settlement) -> None:
        """A delivery ended."""
        ...

    def lost(self, queue: str) -> None:
        """A delivery's hold was lost."""
        ...

    def failed(self, queue: str) -> None:
        """A handler failed, or could not be given its message."""
        ...

    def stand(self, look: Look | None) -> None:
        """How the queues stand now; None: not known any more."""
        ...

    def looked(self, is_answered: bool) -> None:
        """The database was asked how the queues stand."""
        ...


def observe(
    service: Service, meters: Meters, *, interval: timedelta | None, snapshot_limit: timedelta
) -> None:
    """Tell these meters of a service.

    Args:
        service: Not running yet.
        meters: Are told.
        interval: Between two looks at the database; None: none are made.
        snapshot_limit: The age of a held snapshot that is warned of.

    Raises:
        DeclarationError: An interval or a limit is not positive.
        ClosedError: The service is running.
    """
    if interval is not None:
        looker = Looker(
            service,
            meters.stand,
            meters.looked,
            interval=interval,
            snapshot_limit=snapshot_limit,
        )
        service.beside(looker.run)
    service.on_event(_Ear(service, meters))
    timer = _Timer(meters)
    service.use(timer.each, batch=timer.batch)


class _Ear:
    def __init__(self, service: Service, meters: Meters) -> None:
        self._service = service
        self._meters = meters

    def __call__(self, event: events.Event) -> None:
        meters, queue = self._meters, event.queue
        match event:
            case events.Started():
                meters.started([one.queue.name for one in self._service.included])
            case events.Published():
                meters.published(queue)
            case events.ClaimEnded(error=""):
                result: Claim = "rows" if event.rows else "empty"
                meters.claimed(queue, result, event.rows, event.took.total_seconds())
            case events.ClaimEnded():
                meters.claimed(queue, "failed", 0, event.took.total_seconds())
            case events.Finished():
                meters.settled(queue, "drop" if event.outcome == "drop" else "ack")
            case events.Retried():
                meters.settled(queue, "retry")
            case events.DeadLettered():
                meters.settled(queue, "dead_letter")
            case events.Released():
                meters.settled(queue, "release")
            case events.OutcomeUnknown():
                meters.settled(queue, "unknown")
            case events.Unsettled():
                meters.settled(queue, "failed")
            case events.Lost():
                meters.lost(queue)
            case events.Failed():
                meters.failed(queue)


class _Timer:
    """The middleware that times handlers, with the middleware inside it."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    async def each(self, delivery: Delivery[Any, Any], call_next: CallNext) -> Outcome:
        start = delivery.clock.monotonic()
        result: Result = "stopped"
        try:
            outcome = await call_next(delivery)
            result = "returned"
        except Exception as error:
            result = _result_of(error)
            raise
        finally:
            seconds = delivery.clock.monotonic() - start
            self._meters.handled(delivery.queue.name, result, seconds)
        return outcome

    async def batch(
        self, deliveries: list[Delivery[Any, Any]], call_next: BatchCallNext
    ) -> list[Outcome]:
        first = deliveries[0]
        start = first.clock.monotonic()
        result: Result = "stopped"
        try:
            outcomes = await call_next(deliveries)
            result = "returned"
        except Exception as error:
            result = _result_of(error)
            raise
        finally:
            self._meters.handled(first.queue.name, result, first.clock.monotonic() - start)
        return outcomes


def _result_of(error: Exception) -> Result:
    if isinstance(error, Settle):
        return "returned"
    if isinstance(error, LeaseLostError):
        return "lost"
    return "stopped" if isinstance(error, ClosedError) else "raised"
