"""A trace's context on its way through the table: in the headers column, as the propagator writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from inboxkit.broker import Publication
from inboxkit.table import NewRow, new_row

__all__ = ["context_of", "extracted", "span_in", "with_headers"]


def with_headers(publication: Publication, context: Context) -> Publication:
    """The same publication, its row's headers with the context in them; headers that the caller gave go
    before it. Where the table has no headers column of ours to write, nothing changes."""
    spec = publication.queue.spec
    column = spec.headers
    if column is None or column.generated:
        return publication
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=context)
    if not carrier:
        return publication
    row, field = None, spec.field_of(column)
    if spec.payload is None:
        row = new_row(publication.message)
        given = row.values.get(column.name)
    elif field in publication.columns:
        given = publication.columns[field]
    else:
        given = column.make_default() if column.has_default else None
    if given is not None and not isinstance(given, Mapping):
        return publication  # what is no headers is refused as without us
    headers = {**carrier, **(given or {})}
    if row is not None:
        return replace(publication, message=NewRow(row.spec, {**row.values, column.name: headers}))
    return replace(publication, columns={**publication.columns, field: headers})


def extracted(headers: Mapping[str, str]) -> Context:
    """The context that a row's headers carry; of no trace where they carry none.

    What is current here is left out: it is what started the service.
    """
    return propagate.extract(headers, context=Context())


def span_in(context: Context) -> trace.SpanContext | None:
    """The span's context in it; None: there is none."""
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def context_of(span: trace.SpanContext | None) -> Context:
    """A context in which a span that was ended, or is elsewhere, is the parent."""
    if span is None:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(span), Context())
