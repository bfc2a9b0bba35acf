"""Spans as the semantic conventions of messaging want them, by the service's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from inboxkit.abc import Clock

from . import _attributes as names

__all__ = ["Spans", "end", "fail"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Spans:
    """Starts spans of one service.

    Args:
        tracer: Makes them.
        clock: The service's.
        service: Its name.
    """

    def __init__(self, tracer: Tracer, clock: Clock, service: str) -> None:
        self._tracer = tracer
        self._clock = clock
        self._service = service

    def start(
        self,
        operation: str,
        kind: str,
        queue: str,
        span_kind: SpanKind,
        attributes: dict[str, Any],
        *,
        context: Context | None = None,
        links: Sequence[SpanContext | None] = (),
        at: datetime | None = None,
    ) -> Span:
        """Start one that nobody has made current.

        Args:
            operation: Its name, as this system calls it.
            kind: And as the conventions do.
            queue: The destination.
            span_kind: Which side of an exchange it is.
            attributes: Further ones.
            context: Whose span is the parent; None: the current one.
            links: What else it came from; None is left out.
            at: When it began; None: now.
        """
        each = {link.span_id: Link(link) for link in links if link is not None}
        return self._tracer.start_span(
            f"{operation} {queue}",
            context,
            span_kind,
            attributes={
                names.SYSTEM: names.SYSTEM_NAME,
                names.DESTINATION: queue,
                names.OPERATION: operation,
                names.OPERATION_TYPE: kind,
                names.SERVICE: self._service,
                **attributes,
            },
            links=list(each.values()),
            start_time=_nanoseconds(at or self._clock.now()),
        )

    def record(self, span: Span, error: Exception) -> None:
        """It ended with this."""
        span.record_exception(error, timestamp=_nanoseconds(self._clock.now()))
        fail(span, type(error).__name__, str(error))


def fail(span: Span, kind: str, text: str) -> None:
    """It ended with an error of this kind."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, text))


def end(span: Span, at: datetime) -> None:
    """It ended then."""
    span.end(_nanoseconds(at))


def _nanoseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND * 1000
