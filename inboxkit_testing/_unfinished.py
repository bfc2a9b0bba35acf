"""Rows that a service has still to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inboxkit import Database, InboxSpec, Service

from ._reading import read_rows

__all__ = ["unfinished"]


async def unfinished(service: Service, database: Database) -> list[tuple[str, Any]]:
    """Queue and id of each row that is not finished, of the queues that the service serves."""
    found: list[tuple[str, Any]] = []
    for subscriber in service.subscribers:
        queue = subscriber.queue
        spec = queue.spec
        for row in await read_rows(database, queue.row or spec):
            if spec.processed_at is not None and _value(spec, row, "processed_at") is not None:
                continue
            group = None if spec.group is None else _value(spec, row, "group")
            if queue.group is not None and group != queue.group:
                continue
            if queue.group is None and (spec.name, group) in service.dead_letter_groups:
                continue
            found.append((queue.name, _value(spec, row, "id")))
    return found


def _value(spec: InboxSpec, row: Any, role: str) -> Any:
    name = spec.field_of(getattr(spec, role))
    return row[name] if isinstance(row, Mapping) else getattr(row, name)
