"""Spans of a message: publish, claim, process, and what settles it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind

from inboxkit import events
from inboxkit._core.outcomes import Outcome
from inboxkit._publishing import Publisher
from inboxkit._runtime.delivery import Delivery
from inboxkit._runtime.plan import BatchCallNext, CallNext
from inboxkit.broker import Publication
from inboxkit.errors import Settle
from inboxkit.service import Service

from . import _attributes as names
from ._carrying import context_of, extracted, span_in, with_headers
from ._spans import Spans, end, fail

__all__ = ["Tracing"]

Key = tuple[str, Any, int | None]
Operated = Callable[..., None]


@dataclass(slots=True)
class _Work:
    """What is known of a delivery's trace, from its claim to its settlement."""

    created: SpanContext | None = None
    """The span that published it."""
    claim: SpanContext | None = None
    process: SpanContext | None = None
    since: datetime | None = None
    """When its handler ended, or it was seen to have none: its settlement begins."""


class Tracing:
    """Makes the spans of one service.

    Args:
        service: Whose.
        tracer: Makes them.
        operated: Is told how long publishes and settlements took.
        new_traces: Deliveries begin traces of their own, with links.
    """

    def __init__(
        self, service: Service, tracer: trace.Tracer, operated: Operated, *, new_traces: bool
    ) -> None:
        self._clock = service.broker.database.clock
        self._spans = Spans(tracer, self._clock, service.name)
        self._operated = operated
        self._new_traces = new_traces
        self._works: dict[Key, _Work] = {}
        """Of the rows that are in work here."""
        self._unlinked: dict[str, list[tuple[Any, _Work]]] = {}
        """By queue, what was claimed since its last claim ended, with the ids."""

    # Publishing.

    async def publish(self, publication: Publication, call_next: Publisher) -> Any:
        """Around `Broker.publish`: its span's context goes into the row."""
        queue = publication.queue
        start = self._clock.monotonic()
        span = self._spans.start(
            "publish", "send", queue.name, SpanKind.PRODUCER, {names.TABLE: queue.spec.name}
        )
        error = ""
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                carried = with_headers(publication, contexts.get_current())
                id = await call_next(carried)
            span.set_attribute(names.MESSAGE_ID, str(id))
        except Exception as raised:
            error = type(raised).__name__
            self._spans.record(span, raised)
            raise
        finally:
            end(span, self._clock.now())
            self._operated(queue.name, "publish", self._clock.monotonic() - start, error)
        return id

    # Handlers.

    async def each(self, delivery: Delivery[Any, Any], call_next: CallNext) -> Outcome:
        """Around a handler of single deliveries."""
        context = extracted(delivery.headers)
        created = span_in(context)
        work = self._works.get(_key_of(delivery))
        links = [work.claim] if work is not None else []
        if self._new_traces:
            links, context = [created, *links], Context()
        span = self._spans.start(
            "process",
            "process",
            delivery.queue.name,
            SpanKind.CONSUMER,
            _about(delivery),
            context=context,
            links=links,
        )
        with self._processing(span, [delivery], context):
            outcome = await call_next(delivery)
            span.set_attribute(names.OUTCOME, type(outcome).__name__.lower())
        return outcome

    async def batch(
        self, deliveries: list[Delivery[Any, Any]], call_next: BatchCallNext
    ) -> list[Outcome]:
        """Around a handler of batches: one span, which many may have published."""
        links: list[SpanContext | None] = []
        for delivery in deliveries:
            links.append(span_in(extracted(delivery.headers)))
            if (work := self._works.get(_key_of(delivery))) is not None:
                links.append(work.claim)
        queue = deliveries[0].queue
        span = self._spans.start(
            "process",
            "process",
            queue.name,
            SpanKind.CONSUMER,
            {names.TABLE: queue.spec.name, names.BATCH_COUNT: len(deliveries)},
            context=Context(),
            links=links,
        )
        with self._processing(span, deliveries, Context()):
            return await call_next(deliveries)

    @contextmanager
    def _processing(
        self, span: Span, deliveries: Sequence[Delivery[Any, Any]], context: Context
    ) -> Iterator[None]:
        works = [self._works.get(_key_of(delivery)) for delivery in deliveries]
        for work in works:
            if work is not None:
                work.process = span.get_span_context()
        token = contexts.attach(trace.set_span_in_context(span, context))
        try:
            yield
        except Settle:
            raise
        except Exception as error:
            self._spans.record(span, error)
            raise
        finally:
            contexts.detach(token)
            now = self._clock.now()
            for work in works:
                if work is not None:
                    work.since = now
            end(span, now)

    # What the runtime does.

    def take(self, event: events.Event) -> None:
        """See an event: of claims and settlements it is all that is known."""
        match event:
            case events.Claimed():
                work = _Work()
                self._works[_key(event)] = work
                self._unlinked.setdefault(event.queue, []).append((event.id, work))
            case events.ClaimEnded():
                self._claimed(event)
            case events.Failed():
                self._failed(event)
            case events.Finished():
                self._settled(event, event.outcome)
            case events.Retried():
                self._settled(event, "retry")
            case events.DeadLettered():
                self._settled(event, "dead-letter")
            case events.Released():
                self._settled(event, "release")
            case events.OutcomeUnknown():
                self._settled(event, "settle", "" if event.is_gone else "outcome_unknown")
            case events.Unsettled():
                self._settled(event, "settle", "unsettled", event.error)
            case events.Lost():
                self._lost(event)
            case events.Stopped():
                self._works.clear()
                self._unlinked.clear()

    def _claimed(self, event: events.ClaimEnded) -> None:
        works = self._unlinked.pop(event.queue, [])
        for id, work in works:
            if (headers := event.headers.get(id)) is not None:
                work.created = span_in(extracted(headers))
        if not event.rows and not event.error:
            return
        span = self._spans.start(
            "claim",
            "receive",
            event.queue,
            SpanKind.CLIENT,
            {names.BATCH_COUNT: event.rows},
            context=Context(),
            links=[work.created for _, work in works],
            at=event.at - event.took,
        )
        if event.error:
            fail(span, event.error.partition(":")[0], event.error)
        for _, work in works:
            work.claim = span.get_span_context()
        end(span, event.at)

    def _failed(self, event: events.Failed) -> None:
        """What no handler got has no span yet: its message could not be read."""
        work = self._works.get(_key(event))
        if work is None or work.process is not None:
            return
        span = self._spans.start(
            "process",
            "process",
            event.queue,
            SpanKind.CONSUMER,
            _about_event(event),
            context=context_of(work.created),
            links=[work.claim],
            at=event.at,
        )
        fail(span, event.error.partition(":")[0], event.error)
        work.process, work.since = span.get_span_context(), event.at
        end(span, event.at)

    def _lost(self, event: events.Lost) -> None:
        work = self._works.get(_key(event))
        if work is not None and work.process is not None and work.since is None:
            del self._works[_key(event)]  # its handler's span is open, and says so
        else:
            self._settled(event, "settle", "lease_lost", event.reason)

    def _settled(
        self, event: events.RowEvent, operation: str, error: str = "", text: str = ""
    ) -> None:
        work = self._works.pop(_key(event), None) or _Work()
        parent = work.process or work.created
        since = work.since or event.at
        span = self._spans.start(
            operation,
            "settle",
            event.queue,
            SpanKind.CLIENT,
            _about_event(event),
            context=context_of(parent),
            links=[] if work.process is not None else [work.claim],
            at=since,
        )
        if isinstance(event, events.DeadLettered):
            span.set_attribute("inboxkit.dead_letter", event.destination)
        if error:
            fail(span, error, text)
        end(span, event.at)
        self._operated(event.queue, operation, (event.at - since).total_seconds(), error)


def _about(delivery: Delivery[Any, Any]) -> dict[str, Any]:
    return _row(delivery.queue.spec.name, *_key_of(delivery)[1:], delivery.group)


def _about_event(event: events.RowEvent) -> dict[str, Any]:
    return _row(event.table, event.id, event.attempt, event.group)


def _row(table: str, id: Any, attempt: int | None, group: str | None) -> dict[str, Any]:
    known = {names.MESSAGE_ID: str(id), names.TABLE: table}
    more = {names.ATTEMPT: attempt, names.GROUP: group}
    return {**known, **{name: value for name, value in more.items() if value is not None}}


def _key(event: events.RowEvent) -> Key:
    return event.queue, event.id, event.attempt


def _key_of(delivery: Delivery[Any, Any]) -> Key:
    has_attempt = delivery.queue.spec.attempt is not None
    return delivery.queue.name, delivery.id, delivery.attempt if has_attempt else None
