"""Rows that a service has still to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inboxkit import Database, InboxQueue, InboxSpec, Service

from ._reading import read_rows

__all__ = ["unfinished"]


async def unfinished(service: Service, database: Database) -> list[tuple[str, Any]]:
    """Queue and id of each row that is not finished, of the queues that the service serves."""
    found: list[tuple[str, Any]] = []
    served = {(one.queue.spec.name, one.queue.only_group) for one in service.subscribers}
    for subscriber in service.subscribers:
        queue = subscriber.queue
        spec = queue.spec
        for row in await read_rows(database, queue.row or spec):
            if spec.processed_at is not None and _value(spec, row, "processed_at") is not None:
                continue
            name = queue.name
            if spec.group is not None:
                name = _value(spec, row, "group")
                if not _serves(service, queue, name, served):
                    continue
            found.append((name, _value(spec, row, "id")))
    return found


def _serves(
    service: Service,
    queue: InboxQueue[Any, Any],
    group: str | None,
    served: set[tuple[str, str | None]],
) -> bool:
    """Whether a queue serves a group of its table; one of all groups leaves out those of others."""
    if queue.only_group is not None or group is None:
        return group is not None and group == queue.only_group
    table = queue.spec.name
    return (table, group) not in served and not service.is_dead_letter(table, group)


def _value(spec: InboxSpec, row: Any, role: str) -> Any:
    name = spec.field_of(getattr(spec, role))
    return row[name] if isinstance(row, Mapping) else getattr(row, name)
