"""The metrics: those that the semantic conventions of messaging name, and the queue's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from inboxkit._operating.looking import Look, ages, counts
from inboxkit._operating.observing import Claim, Result, Settlement
from inboxkit._sql.stats import MOST, Standing

from ._attributes import DESTINATION, ERROR_TYPE, OPERATION, SERVICE, SYSTEM, SYSTEM_NAME

__all__ = ["OtelMeters"]

_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
"""Seconds: handlers take from milliseconds to minutes."""
_ROWS: Final = {
    "due": "Rows to be claimed now",
    "waiting": "Rows that are not due yet",
    "in_work": "Rows under a lease in force",
    "expired": "Rows whose lease ended unsettled",
    "dead": "Rows in the queue's dead letter",
}
_AGES: Final = {
    "oldest_due": "For how long the oldest row is due",
    "oldest_expired_lease": "For how long the oldest lease is over",
}


class OtelMeters:
    """The instruments of one service.

    Args:
        meter: Makes them.
        service: The service's name.
    """

    def __init__(self, meter: Meter, service: str) -> None:
        self._service = service
        self._look: Look | None = None

        def counter(name: str, unit: str, text: str) -> Any:
            return meter.create_counter(name, unit=unit, description=text)

        def seconds(name: str, text: str, bounds: Sequence[float] | None = None) -> Any:
            return meter.create_histogram(
                name,
                unit="s",
                description=text,
                explicit_bucket_boundaries_advisory=list(bounds or _DURATIONS),
            )

        self._sent = counter("messaging.client.sent.messages", "{message}", "Messages published")
        self._consumed = counter(
            "messaging.client.consumed.messages", "{message}", "Messages claimed"
        )
        self._operations = seconds(
            "messaging.client.operation.duration", "Time of publishes, claims and settlements"
        )
        self._handled = seconds("messaging.process.duration", "Time of handlers, with middleware")
        self._claims = counter("inboxkit.claims", "{claim}", "Claims by what they brought")
        self._settled = counter(
            "inboxkit.settlements", "{delivery}", "Deliveries by how they ended"
        )
        self._retries = counter("inboxkit.retries", "{delivery}", "Deliveries to be repeated")
        self._dead = counter("inboxkit.dead_letters", "{row}", "Rows moved to the dead letter")
        self._lost = counter("inboxkit.leases.lost", "{delivery}", "Deliveries whose hold was lost")
        self._failures = counter("inboxkit.failures", "{delivery}", "Deliveries that failed")
        self._looks = counter("inboxkit.looks", "{look}", "Looks at the database for the gauges")
        for name, text in _ROWS.items():
            meter.create_observable_gauge(
                f"inboxkit.rows.{name}",
                [self._observed(partial(_of, counts, name))],
                unit="{row}",
                description=f"{text}, {MOST:,} where there are more",
            )
        for name, text in _AGES.items():
            meter.create_observable_gauge(
                f"inboxkit.{name}.age",
                [self._observed(partial(_of, ages, name))],
                unit="s",
                description=text,
            )
        meter.create_observable_gauge(
            "inboxkit.oldest_snapshot.age",
            [self._snapshot],
            unit="s",
            description="Age of the oldest transaction that keeps PostgreSQL from removing dead rows",
        )

    def _place(self, queue: str, **more: str) -> dict[str, str]:
        return {SYSTEM: SYSTEM_NAME, DESTINATION: queue, SERVICE: self._service, **more}

    def _observed(
        self, read: Callable[[Standing], float | None]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """What is not known is not observed."""

        def callback(_options: CallbackOptions) -> Iterable[Observation]:
            look = self._look
            for one in look.queues if look is not None else ():
                if (value := read(one.rows)) is not None:
                    yield Observation(value, self._place(one.queue))

        return callback

    def _snapshot(self, _options: CallbackOptions) -> Iterable[Observation]:
        look = self._look
        if look is not None and look.snapshot is not None:
            yield Observation(look.snapshot.age, {SERVICE: self._service})

    def started(self, queues: Sequence[str]) -> None:
        for queue in queues:
            for counter in (self._lost, self._retries, self._dead, self._failures):
                counter.add(0, self._place(queue))

    def published(self, queue: str) -> None:
        self._sent.add(1, self._place(queue, **{OPERATION: "publish"}))

    def claimed(self, queue: str, result: Claim, rows: int, seconds: float) -> None:
        self._claims.add(1, self._place(queue, **{"inboxkit.result": result}))
        if rows:
            self._consumed.add(rows, self._place(queue, **{OPERATION: "claim"}))
        self.operated(queue, "claim", seconds, "claim_failed" if result == "failed" else "")

    def operated(self, queue: str, operation: str, seconds: float, error: str = "") -> None:
        """A publish, a claim or a settlement was answered.

        Args:
            queue: The queue's name.
            operation: Which of them.
            seconds: How long it took.
            error: What kind of failure it was; empty: none.
        """
        more = {OPERATION: operation, ERROR_TYPE: error} if error else {OPERATION: operation}
        self._operations.record(seconds, self._place(queue, **more))

    def handled(self, queue: str, result: Result, seconds: float) -> None:
        more = {OPERATION: "process", "inboxkit.result": result}
        if result != "returned":
            more[ERROR_TYPE] = result
        self._handled.record(seconds, self._place(queue, **more))

    def settled(self, queue: str, settlement: Settlement) -> None:
        self._settled.add(1, self._place(queue, **{"inboxkit.outcome": settlement}))
        if settlement == "retry":
            self._retries.add(1, self._place(queue))
        elif settlement == "dead_letter":
            self._dead.add(1, self._place(queue))

    def lost(self, queue: str) -> None:
        self._lost.add(1, self._place(queue))

    def failed(self, queue: str) -> None:
        self._failures.add(1, self._place(queue))

    def stand(self, look: Look | None) -> None:
        self._look = look

    def looked(self, is_answered: bool) -> None:
        result = "answered" if is_answered else "failed"
        self._looks.add(1, {SERVICE: self._service, "inboxkit.result": result})


def _of(
    read: Callable[[Standing], Mapping[str, float | None]], name: str, rows: Standing
) -> float | None:
    return read(rows)[name]
