"""The row lock form through a service: sessions hold the rows, on PostgreSQL, in virtual time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from runtime_kit import MINUTE, SECOND, Handler, Work, count, create, put, serve, table

from inboxkit import Database, Inbox, InboxQueue, role
from inboxkit_testing import VirtualClock


class Mail(Inbox, table="locked_mails"):
    """Everything but FIFO and keys."""

    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


MAILS = InboxQueue(Mail, "mails", Work)


async def test_a_handler_of_five_minutes(inbox_database: Database, virtual_clock: VirtualClock) -> None:
    await create(inbox_database, Mail)
    await put(inbox_database, MAILS, 1, 2)
    handler = Handler(300)
    async with serve(inbox_database, MAILS, handler, workers=2).running():
        await virtual_clock.advance(5 * MINUTE)
        assert sorted(handler.ended) == [1, 2]
        assert await count(inbox_database, Mail) == 0
