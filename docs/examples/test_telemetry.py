"""What is seen of a service: its numbers, its traces and its log."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from telemetry import PICTURES, JsonFormatter, Picture, service

from inboxkit import Database
from inboxkit_testing import TestApp, VirtualClock

PLACE = {"service": "thumbnails", "queue": "pictures"}


async def test_the_numbers_of_a_service(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    registry = CollectorRegistry()
    async with TestApp(service(inbox_database, registry)) as app:
        for path in ("a.png", "b.txt", "c.broken"):
            await app.publish(PICTURES, Picture(path))
        await app.advance(timedelta(minutes=1))
        ends = {
            outcome: registry.get_sample_value(
                "inboxkit_settlements_total", {**PLACE, "outcome": outcome}
            )
            for outcome in ("ack", "drop", "retry", "dead_letter")
        }
        assert ends == {"ack": 1, "drop": 1, "retry": 2, "dead_letter": 1}
        assert registry.get_sample_value("inboxkit_dead_rows", PLACE) == 1
        assert registry.get_sample_value("inboxkit_due_rows", PLACE) == 0


async def test_a_request_and_its_thumbnail_are_one_trace(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with TestApp(service(inbox_database, CollectorRegistry(), provider)) as app:
        with provider.get_tracer("web").start_as_current_span("POST /pictures") as request:
            await app.publish(PICTURES, Picture("a.png"))
        await app.advance(timedelta(seconds=1))
    of_request = {
        span.name
        for span in exporter.get_finished_spans()
        if span.context is not None and span.context.trace_id == request.get_span_context().trace_id
    }
    assert of_request == {
        "POST /pictures",
        "publish pictures",
        "process pictures",
        "ack pictures",
    }


async def test_a_line_of_the_log_names_its_row(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="inboxkit")
    async with TestApp(service(inbox_database, CollectorRegistry())) as app:
        id = await app.publish(PICTURES, Picture("b.txt"))
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    (dropped,) = [line for line in lines if "dropped" in line["message"]]
    row = {name: dropped[name] for name in ("queue", "row_id", "attempt", "group")}
    assert row == {"queue": "pictures", "row_id": id, "attempt": 1, "group": "pictures"}
