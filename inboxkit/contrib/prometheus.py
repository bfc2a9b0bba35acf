"""Metrics of a service for Prometheus, kept by `prometheus_client`. The extra `prometheus`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from inboxkit._operating.looking import INTERVAL, SNAPSHOT_LIMIT, Look, ages, counts
from inboxkit._operating.observing import (
    CLAIMS,
    RESULTS,
    SETTLEMENTS,
    Claim,
    Result,
    Settlement,
    observe,
)
from inboxkit.errors import MissingExtraError
from inboxkit.service import Service

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as _error:
    raise MissingExtraError(
        "inboxkit.contrib.prometheus needs prometheus_client: pip install 'inboxkit[prometheus]'"
    ) from _error

__all__ = ["PrometheusMetrics"]

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
"""Seconds: handlers take from milliseconds to minutes."""

_QUEUE: Final = ("service", "queue")
_UNKNOWN: Final = (
    "Absent where the claim form does not show it, and while the database cannot be asked."
)


class PrometheusMetrics:
    """The metrics, registered once, of any number of services.

        metrics = PrometheusMetrics()
        metrics.observe(app)  # before it runs
        prometheus_client.start_http_server(9000)

    Gauges of the database's state come from a look at it once an interval in each process, not at each
    scrape; counters and the histogram count what happened in this process. In the multiprocess mode of
    `prometheus_client` the look of the process that looked last is shown, and what is not known any
    more is NaN, since a sample cannot be taken back there.

    Args:
        registry: Where they are registered.
        buckets: Upper bounds of the handlers' histogram, in seconds.

    Raises:
        ValueError: The registry has metrics of these names: one `PrometheusMetrics` serves all
            services of a process.
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, buckets: Sequence[float] = BUCKETS
    ) -> None:
        def gauge(name: str, text: str, labels: Sequence[str] = _QUEUE) -> Gauge:
            return Gauge(
                f"inboxkit_{name}",
                f"{text} {_UNKNOWN}",
                labels,
                registry=registry,
                multiprocess_mode="livemostrecent",
            )

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"inboxkit_{name}", text, (*_QUEUE, *labels), registry=registry)

        self._rows = {
            "due": gauge("due_rows", "Rows to be claimed now, 10,000 where there are more."),
            "waiting": gauge("waiting_rows", "Rows that are not due yet, likewise."),
            "in_work": gauge("in_work_rows", "Rows under a lease in force, likewise."),
            "expired": gauge("expired_rows", "Rows whose lease ended unsettled, likewise."),
            "dead": gauge("dead_rows", "Rows in the queue's dead letter, likewise."),
        }
        self._ages = {
            "oldest_due": gauge("oldest_due_age_seconds", "For how long the oldest row is due."),
            "oldest_expired_lease": gauge(
                "oldest_expired_lease_age_seconds", "For how long the oldest lease is over."
            ),
        }
        self._snapshot = gauge(
            "oldest_snapshot_age_seconds",
            "Age of the oldest transaction that keeps PostgreSQL from removing dead rows.",
            ("service",),
        )
        self._looks = Counter(
            "inboxkit_looks",
            "Looks at the database for the gauges.",
            ("service", "result"),
            registry=registry,
        )
        self._published = counter("published_rows", "Rows published through the broker.")
        self._claims = counter("claims", "Claims by what they brought.", "result")
        self._claimed = counter("claimed_rows", "Rows that claims took.")
        self._claim = Histogram(
            "inboxkit_claim_seconds",
            "Time of claims, with the wait for a connection.",
            (*_QUEUE, "result"),
            registry=registry,
        )
        self._settlements = counter("settlements", "Deliveries by how they ended.", "outcome")
        self._lost = counter("leases_lost", "Deliveries whose hold was lost.")
        self._retries = counter("retries", "Deliveries whose row is to be handed out again.")
        self._dead = counter("dead_letters", "Rows moved to the dead letter.")
        self._failures = counter("failures", "Deliveries whose handler failed.")
        self._handler = Histogram(
            "inboxkit_handler_seconds",
            "Time of handlers with their middleware, of a delivery or a batch.",
            (*_QUEUE, "result"),
            buckets=buckets,
            registry=registry,
        )

    def observe(
        self,
        service: Service,
        *,
        interval: timedelta | None = INTERVAL,
        snapshot_limit: timedelta = SNAPSHOT_LIMIT,
    ) -> None:
        """Keep these metrics of a service too.

        Args:
            service: Not running yet; its name is the label ``service``. What it runs around handlers is
                timed as far as it is used after this.
            interval: Between two looks at the database, each one statement a queue whose counts stop at
                10,000; None: no look is made and no gauge shown.
            snapshot_limit: On PostgreSQL, the age of a held snapshot from which the log warns of it.

        Raises:
            DeclarationError: An interval or a limit is not positive.
            ClosedError: The service is running.
        """
        meters = _Meters(self, service.name)
        observe(service, meters, interval=interval, snapshot_limit=snapshot_limit)


class _Meters:
    """Those of one service."""

    def __init__(self, metrics: PrometheusMetrics, service: str) -> None:
        self._metrics = metrics
        self._service = service
        self._shown: dict[Gauge, set[tuple[str, ...]]] = {}
        """By gauge, the labels of its samples."""

    def started(self, queues: Sequence[str]) -> None:
        """A counter is there from the start: a rate is known from the first event on."""
        metrics = self._metrics
        for queue in queues:
            place = (self._service, queue)
            for counter in (
                metrics._published,
                metrics._claimed,
                metrics._lost,
                metrics._retries,
                metrics._dead,
                metrics._failures,
            ):
                counter.labels(*place)
            for claim in CLAIMS:
                metrics._claims.labels(*place, claim)
                metrics._claim.labels(*place, claim)
            for settlement in SETTLEMENTS:
                metrics._settlements.labels(*place, settlement)
            for result in RESULTS:
                metrics._handler.labels(*place, result)

    def published(self, queue: str) -> None:
        self._metrics._published.labels(self._service, queue).inc()

    def claimed(self, queue: str, result: Claim, rows: int, seconds: float) -> None:
        self._metrics._claims.labels(self._service, queue, result).inc()
        self._metrics._claim.labels(self._service, queue, result).observe(seconds)
        if rows:
            self._metrics._claimed.labels(self._service, queue).inc(rows)

    def handled(self, queue: str, result: Result, seconds: float) -> None:
        self._metrics._handler.labels(self._service, queue, result).observe(seconds)

    def settled(self, queue: str, settlement: Settlement) -> None:
        self._metrics._settlements.labels(self._service, queue, settlement).inc()
        if settlement == "retry":
            self._metrics._retries.labels(self._service, queue).inc()
        elif settlement == "dead_letter":
            self._metrics._dead.labels(self._service, queue).inc()

    def lost(self, queue: str) -> None:
        self._metrics._lost.labels(self._service, queue).inc()

    def failed(self, queue: str) -> None:
        self._metrics._failures.labels(self._service, queue).inc()

    def stand(self, look: Look | None) -> None:
        metrics = self._metrics
        known: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        for one in look.queues if look is not None else ():
            place = (self._service, one.queue)
            for gauges, values in (
                (metrics._rows, counts(one.rows)),
                (metrics._ages, ages(one.rows)),
            ):
                for name, gauge in gauges.items():
                    if (value := values[name]) is not None:
                        known[gauge, place] = value
        if look is not None and look.snapshot is not None:
            known[metrics._snapshot, (self._service,)] = look.snapshot.age
        for gauge, shown in self._shown.items():
            for labels in [labels for labels in shown if (gauge, labels) not in known]:
                shown.discard(labels)
                _take_back(gauge, labels)
        for (gauge, labels), value in known.items():
            self._shown.setdefault(gauge, set()).add(labels)
            gauge.labels(*labels).set(value)

    def looked(self, is_answered: bool) -> None:
        result = "answered" if is_answered else "failed"
        self._metrics._looks.labels(self._service, result).inc()


def _take_back(gauge: Gauge, labels: tuple[str, ...]) -> None:
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ:
        gauge.labels(*labels).set(math.nan)
        return
    with suppress(KeyError):  # somebody has cleared the gauge
        gauge.remove(*labels)
