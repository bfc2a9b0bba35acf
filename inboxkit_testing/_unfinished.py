"""Rows that a service has still to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inboxkit import Database, InboxQueue, InboxSpec, Service

from ._reading import read_rows

__all__ = ["Unfinished", "unfinished"]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A row that is still to be done."""

    queue: str
    id: Any
    not_before: datetime | None
    """It is due then; None: it is due, or nothing says when, or somebody may have it in work."""


async def unfinished(service: Service, database: Database) -> list[Unfinished]:
    """Each row that is not finished, of the queues that the service serves."""
    found: list[Unfinished] = []
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
            found.append(Unfinished(name, _value(spec, row, "id"), _not_before(spec, row)))
    return found


def _not_before(spec: InboxSpec, row: Any) -> datetime | None:
    if spec.locked_until is not None and _value(spec, row, "locked_until") is not None:
        return None
    due: datetime | None = None if spec.retry_after is None else _value(spec, row, "retry_after")
    return due


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
