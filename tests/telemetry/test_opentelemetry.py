"""Traces and metrics, as the SDK's in-memory exporters have them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from telemetry_kit import (
    JOBS,
    MINUTE,
    PLAIN,
    SECOND,
    WHOLE,
    Job,
    Plain,
    Whole,
    Work,
    create,
    serve,
)

from inboxkit import Database, Delivery, Service, insert_rows
from inboxkit.contrib.opentelemetry import instrument, trace_headers
from inboxkit_testing import ObservedDatabase, VirtualClock


class Traces:
    """A service's spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def instrument(self, app: Service, **settings: Any) -> None:
        instrument(app, tracer_provider=self.provider, meter_provider=self.meters, **settings)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those of a name, or of all, in order of their ends."""
        found = self.exporter.get_finished_spans()
        return [span for span in found if name in ("", span.name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def metrics(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """Points by name and the attributes that are not the place's."""
        found: dict[str, dict[tuple[Any, ...], Any]] = {}
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                points = found.setdefault(metric.name, {})
                for point in metric.data.data_points:
                    assert point.attributes is not None
                    known = dict(point.attributes)
                    assert known.pop("inboxkit.service") == "worker"
                    known.pop("messaging.system", None)
                    points[tuple(known.values())] = point
        return found


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def links(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def seconds(span: ReadableSpan, clock: VirtualClock) -> tuple[float, float]:
    """Its start and end, in virtual seconds since the test began."""
    assert span.start_time is not None
    assert span.end_time is not None
    start = clock.start.timestamp()
    return round(span.start_time / 1e9 - start, 3), round(span.end_time / 1e9 - start, 3)


async def test_a_message_is_one_trace_from_publishing_to_its_settlement(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app)
    async with app.running():
        await virtual_clock.advance(5 * SECOND)
        with traces.provider.get_tracer("request").start_as_current_span("POST /orders"):
            id = await app.broker.publish(JOBS, Work("ack", 7))
        await virtual_clock.advance(MINUTE)
    request, publish = traces.one("POST /orders"), traces.one("publish jobs")
    claim, process, ack = (traces.one(f"{name} jobs") for name in ("claim", "process", "ack"))
    assert [parent(one) for one in (publish, process, ack)] == [
        id_of(request),
        id_of(publish),
        id_of(process),
    ]
    assert {trace_of(one) for one in (request, publish, process, ack)} == {trace_of(request)}
    # The claim may be of many messages: a trace of its own, with links both ways.
    assert (parent(claim), links(claim), links(process)) == (None, {id_of(publish)}, {id_of(claim)})
    assert [one.kind for one in (publish, claim, process, ack)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    assert seconds(process, virtual_clock) == (5, 12)
    assert seconds(ack, virtual_clock) == (12, 12)
    kinds = ("send", "receive", "process", "settle")
    for one, kind in zip((publish, claim, process, ack), kinds, strict=True):
        known = dict(one.attributes or {})
        assert known["messaging.system"] == "inboxkit"
        assert known["messaging.destination.name"] == "jobs"
        assert known["messaging.operation.name"] == one.name.partition(" ")[0]
        assert known["messaging.operation.type"] == kind
        assert known["inboxkit.service"] == "worker"
        if kind == "receive":
            assert known["messaging.batch.message_count"] == 1
        else:
            assert known["messaging.message.id"] == str(id)
            assert known["inboxkit.table"] == "traced_jobs"
        if kind in ("process", "settle"):
            assert (known["inboxkit.attempt"], known["inboxkit.group"]) == (1, "jobs")
        assert one.status.status_code is StatusCode.UNSET


async def test_each_delivery_of_a_row_is_in_its_trace(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database, max_attempts=3, dead_letter="jobs.dead")
    traces.instrument(app, interval=None)
    async with app.running():
        await app.broker.publish(JOBS, Work("raise", 1))
        await virtual_clock.advance(MINUTE)
    publish = traces.one("publish jobs")
    deliveries = traces.spans("process jobs")
    assert [one.attributes["inboxkit.attempt"] for one in deliveries if one.attributes] == [1, 2, 3]
    settlements = [*traces.spans("retry jobs"), traces.one("dead-letter jobs")]
    assert [parent(one) for one in deliveries] == [id_of(publish)] * 3
    assert [parent(one) for one in settlements] == [id_of(one) for one in deliveries]
    for one in deliveries:
        assert one.status.status_code is StatusCode.ERROR
        assert (one.attributes or {})["error.type"] == "ValueError"
        (event,) = one.events
        assert event.name == "exception"
        assert event.timestamp == one.end_time
    assert (settlements[-1].attributes or {})["inboxkit.dead_letter"] == "jobs.dead"


async def test_what_a_handler_publishes_and_opens_is_inside_its_span(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app)
    async with app.running():
        await app.broker.publish(JOBS, Work("publish"))
        await virtual_clock.settle()
    first, second = traces.spans("publish jobs")
    processes = {parent(one): one for one in traces.spans("process jobs")}
    assert parent(second) == id_of(processes[id_of(first)])
    assert trace_of(processes[id_of(second)]) == trace_of(first)


async def test_new_traces_are_linked_and_no_children(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app, new_traces=True)
    async with app.running():
        await app.broker.publish(JOBS, Work())
        await virtual_clock.settle()
    publish, claim, process = (traces.one(f"{n} jobs") for n in ("publish", "claim", "process"))
    assert parent(process) is None
    assert trace_of(process) != trace_of(publish)
    assert links(process) == {id_of(publish), id_of(claim)}
    assert parent(traces.one("ack jobs")) == id_of(process)


async def test_without_headers_a_delivery_begins_a_trace(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Plain)
    traces = Traces()
    app = serve(inbox_database, PLAIN)
    traces.instrument(app)
    with traces.provider.get_tracer("x").start_as_current_span("what started the service"):
        async with app.running():
            await app.broker.publish(PLAIN, Work())
            await virtual_clock.settle()
    process, claim = traces.one("process plain"), traces.one("claim plain")
    assert (parent(process), links(process)) == (None, {id_of(claim)})
    assert links(claim) == set()
    assert "inboxkit.attempt" not in (process.attributes or {})
    assert parent(traces.one("ack plain")) == id_of(process)


async def test_rows_that_are_their_own_messages_carry_it_too(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Whole)
    traces = Traces()
    rows: list[Whole] = []

    async def keep(row: Whole) -> None:
        rows.append(row)

    app = serve(inbox_database, WHOLE, keep)
    traces.instrument(app)
    async with app.running():
        given = Whole(what="x", headers={"tenant": "a"})
        await app.broker.publish(WHOLE, given)
        await virtual_clock.settle()
    assert given.headers == {"tenant": "a"}
    assert rows[0].headers.keys() == {"tenant", "traceparent"}
    assert parent(traces.one("process whole")) == id_of(traces.one("publish whole"))


async def test_the_callers_headers_stay_and_insert_rows_may_carry_a_trace(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    seen: list[tuple[Any, Any]] = []

    async def look(work: Work, delivery: Delivery[Job, Work]) -> None:
        seen.append((dict(delivery.headers), baggage.get_baggage("tenant")))

    app = serve(inbox_database, JOBS, look)
    traces.instrument(app)
    async with app.running():
        token = attach(baggage.set_baggage("tenant", "acme"))
        with traces.provider.get_tracer("x").start_as_current_span("request") as request:
            async with inbox_database.transaction() as tx:
                row = Job.of(Work(), name="jobs", headers=trace_headers({"k": "v"}))
                await insert_rows(tx, row)
        detach(token)
        await virtual_clock.advance(2 * SECOND)
        await app.broker.publish(JOBS, Work(), headers={"k": "w"})
        await virtual_clock.settle()
    (first, tenant), (second, nobody) = seen
    assert (first["k"], second["k"]) == ("v", "w")
    assert first["traceparent"].split("-")[2] == f"{request.get_span_context().span_id:016x}"
    assert (tenant, nobody) == ("acme", None)
    assert parent(traces.spans("process jobs")[0]) == request.get_span_context().span_id
    assert trace_headers() == {}
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_publish_that_fails(inbox_database: Database, virtual_clock: VirtualClock) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app)
    async with app.running():
        with pytest.raises(Exception, match="takes messages of type"):
            await app.broker.publish(JOBS, "no work")  # type: ignore[call-overload]
        with pytest.raises(Exception, match="headers"):
            await app.broker.publish(JOBS, Work(), headers=7)
    for span in traces.spans("publish jobs"):
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "EncodeError"
    assert len(traces.spans("publish jobs")) == 2


async def test_a_batch_is_one_span_with_links(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()

    async def store(deliveries: list[Delivery[Job, Work]]) -> None:
        await virtual_clock.sleep(1)

    app = serve(inbox_database, JOBS, store, batch=3)
    traces.instrument(app)
    broker = app.broker
    async with inbox_database.transaction() as tx:
        for _ in range(3):
            await broker.publish(JOBS, Work(), within=tx)
    async with app.running():
        await virtual_clock.advance(5 * SECOND)
    process, claim = traces.one("process jobs"), traces.one("claim jobs")
    published = {id_of(one) for one in traces.spans("publish jobs")}
    assert len(published) == 3
    assert (parent(process), links(process)) == (None, published | {id_of(claim)})
    assert links(claim) == published
    assert (process.attributes or {})["messaging.batch.message_count"] == 3
    assert [parent(one) for one in traces.spans("ack jobs")] == [id_of(process)] * 3


async def test_a_payload_that_cannot_be_read_and_a_row_past_its_cap(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database, max_attempts=1, dead_letter="jobs.dead", workers=2)
    traces.instrument(app)
    async with inbox_database.transaction() as tx:
        unread = await app.broker.publish(JOBS, Work(), within=tx)
        spent = await app.broker.publish(JOBS, Work(), within=tx)
        payload = b"no JSON"
        await tx.execute("UPDATE traced_jobs SET payload = $1 WHERE id = $2", payload, unread)
        await tx.execute("UPDATE traced_jobs SET attempt = 5 WHERE id = $1", spent)
    async with app.running():
        await virtual_clock.settle()
    publish = {
        (one.attributes or {})["messaging.message.id"]: one for one in traces.spans("publish jobs")
    }
    process = traces.one("process jobs")
    assert (process.attributes or {})["error.type"] == "DecodeError"
    assert process.status.status_code is StatusCode.ERROR
    assert parent(process) == id_of(publish[str(unread)])
    moved = {parent(one) for one in traces.spans("dead-letter jobs")}
    assert moved == {id_of(process), id_of(publish[str(spent)])}


async def test_a_lost_lease_and_a_stop(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app)
    async with app.running() as handle:
        id = await app.broker.publish(JOBS, Work("ack", 1000))
        await virtual_clock.settle()
        await inbox_database.execute(
            f"UPDATE traced_jobs SET locked_until = NULL, name = 'x' WHERE id = {id}"
        )
        await virtual_clock.advance(20 * SECOND)
        lost = traces.one("process jobs")
        assert (lost.attributes or {})["error.type"] == "LeaseLostError"
        assert not traces.spans("settle jobs")  # nothing was written
        await app.broker.publish(JOBS, Work("ack", 1000))
        await virtual_clock.settle()
        handle.cancel()
    stopped = traces.spans("process jobs")[1]
    assert (stopped.attributes or {})["error.type"] == "ClosedError"
    assert parent(traces.one("release jobs")) == id_of(stopped)


async def test_nothing_is_kept_of_rows_that_are_not_in_work(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    """Of a settlement that the database refuses for good, too."""
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database, workers=3)
    traces.instrument(app, interval=None)
    tracing: Any = app.broker._middleware[0].__self__  # type: ignore[attr-defined]
    assert isinstance(inbox_database, ObservedDatabase)
    async with app.running():
        for what in ("ack", "drop", "retry", "later", "raise"):
            await app.broker.publish(JOBS, Work(what, 1))
        await virtual_clock.advance(0.5 * SECOND)
        assert len(tracing._works) == 3
        inbox_database.faults.refuse("settle", times=10_000)
        await virtual_clock.advance(90 * SECOND)
        inbox_database.faults.clear()
        await inbox_database.execute("DELETE FROM traced_jobs")
        await virtual_clock.advance(90 * SECOND)
        assert tracing._works == tracing._unlinked == {}


async def test_metrics_of_the_conventions_and_of_the_queue(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    await create(inbox_database, Job)
    traces = Traces()
    app = serve(inbox_database)
    traces.instrument(app)
    async with app.running():
        for what in ("ack", "later", "raise"):
            await app.broker.publish(JOBS, Work(what, 2))
        await virtual_clock.advance(7 * SECOND)
        waiting = {
            "retry_after": datetime.max.replace(year=2031, tzinfo=virtual_clock.now().tzinfo)
        }
        await app.broker.publish(JOBS, Work(), **waiting)
        await virtual_clock.advance(20 * SECOND)
        found = traces.metrics()
    place = ("jobs",)
    assert found["messaging.client.sent.messages"][*place, "publish"].value == 4
    assert found["messaging.client.consumed.messages"][*place, "claim"].value >= 5
    handled = found["messaging.process.duration"]
    returned = handled[*place, "process", "returned"]
    assert returned.sum == pytest.approx(2 * returned.count)
    assert handled[*place, "process", "raised", "raised"].count >= 1
    operations = {key[1] for key in found["messaging.client.operation.duration"]}
    assert operations == {"publish", "claim", "ack", "retry"}
    assert found["inboxkit.settlements"][*place, "ack"].value == 1
    assert (
        found["inboxkit.retries"][place].value
        == found["inboxkit.settlements"][*place, "retry"].value
    )
    assert found["inboxkit.leases.lost"][place].value == 0
    assert found["inboxkit.rows.due"][place].value == 0
    assert found["inboxkit.rows.waiting"][place].value >= 1
    assert found["inboxkit.oldest_due.age"][place].value == 0
    assert "inboxkit.rows.dead" not in found  # there is no dead letter: unknown, not zero
    is_postgres = inbox_database.dialect == "postgres"
    assert ("inboxkit.oldest_snapshot.age" in found) == is_postgres
    assert "inboxkit.rows.due" not in traces.metrics()  # it has stopped
