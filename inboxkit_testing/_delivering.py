"""A delivery for a handler's unit test, without queue or database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import anyio

from inboxkit import Delivery, InboxQueue, SystemClock
from inboxkit.abc import Clock
from inboxkit.errors import ClosedError

__all__ = ["delivery"]

RowT = TypeVar("RowT")
MessageT = TypeVar("MessageT")


def delivery(
    queue: InboxQueue[RowT, MessageT],
    message: MessageT,
    *,
    id: Any = 1,
    attempt: int = 1,
    row: Any = None,
    headers: Mapping[str, str] | None = None,
    key: Any = None,
    database: Any = None,
    state: Any = None,
    clock: Clock | None = None,
    deadline: datetime | None = None,
) -> Delivery[RowT, MessageT]:
    """What a handler gets beside its message, made by hand.

    Args:
        queue: The queue that would hand it out.
        message: The decoded message.
        id: The row's id.
        attempt: The delivery's number; reading it on a table without attempts raises as it would.
        row: What `delivery.row` is, such as ``Row.stored(…)``.
        headers: What travels beside the message.
        key: The partition key's value.
        database: What `delivery.database` is.
        state: What the service's lifespan would have yielded.
        clock: None: the database's where one is given, else the host's.
        deadline: The end of the hold.
    """
    known = database.clock if database is not None else SystemClock()
    return Delivery(
        id=id,
        message=message,
        attempt=attempt if queue.spec.attempt is not None else None,
        group=queue.group,
        key=key,
        headers=headers or {},
        row=row,
        queue=queue,
        database=database,
        state=state,
        clock=clock if clock is not None else known,
        lost=anyio.Event(),
        deadline=lambda: deadline,
        publish=_refuse,
    )


async def _refuse(*_args: Any, **_columns: Any) -> Any:
    raise ClosedError("this delivery was made by hand: it has no broker to publish through")
