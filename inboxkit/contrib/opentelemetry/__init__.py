"""Traces and metrics of a service for OpenTelemetry. The extra `otel`; the SDK is the service's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from inboxkit._operating.looking import INTERVAL, SNAPSHOT_LIMIT
from inboxkit._operating.observing import observe
from inboxkit.errors import MissingExtraError
from inboxkit.service import Service

try:
    from opentelemetry import metrics, propagate, trace
except ImportError as _error:
    raise MissingExtraError(
        "inboxkit.contrib.opentelemetry needs opentelemetry-api: pip install 'inboxkit[otel]'"
    ) from _error

from ._metering import OtelMeters
from ._tracing import Tracing

__all__ = ["instrument", "trace_headers"]

_NAME = "inboxkit"


def instrument(
    service: Service,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    new_traces: bool = False,
    interval: timedelta | None = INTERVAL,
    snapshot_limit: timedelta = SNAPSHOT_LIMIT,
) -> None:
    """Trace a service's messages and keep metrics of it, by the semantic conventions of messaging.

    A message's trace goes from `publish` (PRODUCER) by way of the row's headers column to ``process``
    (CONSUMER, around the handler and the middleware used after this) and to what settles the row
    (CLIENT: ``ack``, ``drop``, ``retry``, ``dead-letter``, ``release``). A claim that takes rows is a
    span of its own, ``claim``, which links to the spans that published them, and which their
    ``process`` spans link to. A batch is one ``process`` span with links. Without a headers column, or
    where nothing was published with a trace, ``process`` begins a trace.

    Times are those of the service's clock.

    Args:
        service: Not running yet.
        tracer_provider: Of the SDK; None: the global one.
        meter_provider: Of the SDK; None: the global one.
        new_traces: Each delivery begins a trace of its own, with a link to the span that published it:
            for messages that wait for long, or that one request publishes by the thousand.
        interval: Between two looks at the database for the gauges, each one statement a queue whose
            counts stop at 10,000; None: no look is made and no gauge shown.
        snapshot_limit: On PostgreSQL, the age of a held snapshot from which the log warns of it.

    Raises:
        DeclarationError: An interval or a limit is not positive.
        ClosedError: The service is running.
    """
    tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
    meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
    meters = OtelMeters(meter, service.name)
    observe(service, meters, interval=interval, snapshot_limit=snapshot_limit)
    tracing = Tracing(service, tracer, meters.operated, new_traces=new_traces)
    service.broker.use(tracing.publish)
    service.on_event(tracing.take)
    service.use(tracing.each, batch=tracing.batch)


def trace_headers(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """The current trace's context, for the headers of rows that `insert_rows` writes.

    Args:
        headers: What else travels beside the message; it goes before what is added.

    Returns:
        A new dict, with ``traceparent`` where a span is current and its trace goes on.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {**carrier, **(headers or {})}
