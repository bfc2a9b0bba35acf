"""A message on its way into a queue's table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ._core.rows import NewRow
from .every_group import EveryGroup
from .insert import Connectable
from .queue import InboxQueue
from .table import new_row

__all__ = ["Publication", "PublishMiddleware", "Publisher", "row_of", "wrapped"]


@dataclass(frozen=True, slots=True)
class Publication:
    """One call of `Broker.publish`, for what `Broker.use` puts around it."""

    queue: InboxQueue[Any, Any]
    message: Any
    """The row itself on a table without payload."""
    columns: Mapping[str, Any]
    """Values of the row's other columns."""
    within: Connectable | None
    """What it is inserted on; None: a connection of the broker's database."""


Publisher: TypeAlias = Callable[[Publication], Awaitable[Any]]
PublishMiddleware: TypeAlias = Callable[[Publication, Publisher], Awaitable[Any]]


def wrapped(publisher: Publisher, middleware: tuple[PublishMiddleware, ...]) -> Publisher:
    """A publisher with middleware around it, the first outermost."""
    for one in reversed(middleware):
        publisher = partial(_through, one, publisher)
    return publisher


async def _through(
    middleware: PublishMiddleware, call_next: Publisher, publication: Publication
) -> Any:
    return await middleware(publication, call_next)


def row_of(publication: Publication) -> NewRow:
    """The row that carries a message: its group is the queue's name.

    Raises:
        TypeError: A column that is not the caller's to give, or one without a value.
        EncodeError: The message cannot be written.
    """
    queue, message, columns = publication.queue, publication.message, dict(publication.columns)
    spec = queue.spec
    if isinstance(queue, EveryGroup):
        raise TypeError(
            f"publish(): {queue.name!r} is every group of table {spec.name!r}; name one, as in "
            "publish(queue.group('acme'), message)"
        )
    if spec.payload is None:
        if columns:
            raise TypeError("publish() takes no columns beside a whole row; set them in the row")
        row = new_row(message)
        if row.spec.name != spec.name:
            raise TypeError(
                f"queue {queue.name!r} takes rows of {spec.name!r}, not of {row.spec.name!r}"
            )
        if spec.group is None:
            return row
        return NewRow(spec, {**row.values, spec.group.name: queue.name})
    if spec.group is not None:
        field = spec.field_of(spec.group)
        if columns.setdefault(field, queue.name) != queue.name:
            raise TypeError(f"publish(): {field} is the queue's name, {queue.name!r}; leave it out")
    if queue.row is not None:
        return new_row(queue.row.of(message, **columns))
    return spec.of(message, **columns)
