"""A delivery for a handler's unit test, without queue or database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, overload

import anyio

from inboxkit import (
    Column,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    InboxSpec,
    SystemClock,
    Transaction,
    TransactionalDelivery,
)
from inboxkit.abc import Clock
from inboxkit.errors import ClosedError

__all__ = ["delivery"]

RowT = TypeVar("RowT")
MessageT = TypeVar("MessageT")

_ANY_QUEUE: InboxQueue[Any, Any] = InboxQueue(
    InboxSpec("jobs", id=Column("id"), attempt=Column("attempt"), payload=Column("payload")), "jobs"
)
"""What a handler that asks for no more than its attempt is given."""


@overload
def delivery(
    queue: InboxQueue[RowT, MessageT],
    message: MessageT = ...,
    *,
    id: Any = None,
    attempt: int = 1,
    row: RowT | None = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Database | None = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
    tx: None = None,
) -> Delivery[RowT, MessageT]: ...
@overload
def delivery(
    queue: InboxQueue[RowT, MessageT],
    message: MessageT = ...,
    *,
    id: Any = None,
    attempt: int = 1,
    row: RowT | None = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Database | None = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
    tx: Transaction,
) -> TransactionalDelivery[RowT, MessageT]: ...
@overload
def delivery(
    queue: None = None,
    message: Any = None,
    *,
    id: Any = None,
    attempt: int = 1,
    row: Any = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Database | None = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
    tx: None = None,
) -> Delivery[Any, Any]: ...
@overload
def delivery(
    queue: None = None,
    message: Any = None,
    *,
    id: Any = None,
    attempt: int = 1,
    row: Any = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Database | None = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
    tx: Transaction,
) -> TransactionalDelivery[Any, Any]: ...
def delivery(
    queue: InboxQueue[Any, Any] | None = None,
    message: Any = None,
    *,
    id: Any = None,
    attempt: int = 1,
    row: Any = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Database | None = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
    tx: Transaction | None = None,
) -> Delivery[Any, Any]:
    """What a handler gets beside its message, made by hand: ``delivery(attempt=2, row=…)``.

    Args:
        queue: The queue that would hand it out; None: one of the row's table, or of any.
        message: The decoded message.
        id: The row's id; None: that of `row`, else 1.
        attempt: The delivery's number; reading it on a table without attempts raises as it would.
        row: What `delivery.row` is, such as ``Row.stored(…)``.
        headers: What travels beside the message.
        key: The partition key's value.
        database: What `delivery.database` is.
        state: What the service's lifespan would have yielded.
        clock: None: the database's where one is given, else the host's.
        deadline: The end of the hold.
        tx: What `delivery.tx` of a transactional handler is; the test begins and ends it:
            ``async with database.transaction() as tx``.
    """
    if queue is None:
        queue = InboxQueue(type(row), "jobs") if isinstance(row, Inbox) else _ANY_QUEUE
    lost = anyio.Event()
    known = database.clock if database is not None else SystemClock()
    kind = Delivery if tx is None else partial(TransactionalDelivery, tx=tx)
    return kind(
        id=_id_of(row, queue.spec) if id is None else id,
        message=message,
        attempt=attempt if queue.spec.attempt is not None else None,
        group=_group_of(row, queue),
        key=key,
        headers=headers or {},
        row=row,
        queue=queue,
        database=database,  # type: ignore[arg-type]  # who uses it is given one
        state=state,
        clock=clock if clock is not None else known,
        lost=lambda: lost,
        deadline=lambda: deadline,
        publish=_refuse,
    )


def _group_of(row: Any, queue: InboxQueue[Any, Any]) -> str | None:
    if queue.spec.group is None or queue.only_group is not None or row is None:
        return queue.only_group
    name = queue.spec.field_of(queue.spec.group)
    group: str | None = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
    return group


def _id_of(row: Any, spec: InboxSpec) -> Any:
    name = spec.field_of(spec.id)
    if isinstance(row, Inbox):
        return getattr(row, name, 1)
    return row.get(name, 1) if isinstance(row, Mapping) else 1


async def _refuse(*_args: Any, **_columns: Any) -> Any:
    raise ClosedError("this delivery was made by hand: it has no broker to publish through")
