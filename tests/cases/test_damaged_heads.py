"""Heads of FIFO groups that nobody can read: set aside, and the group goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from cases_kit import make, on, serve

from inboxkit import Database, Inbox, InboxQueue, ack, role
from inboxkit_testing import TestApp, VirtualClock


class Line(Inbox, table="jobs"):
    id: UUID = role.id()
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@on("sqlite")
@pytest.mark.parametrize("damage", ["attempt", "payload"])
async def test_head_that_cannot_be_read_does_not_hold_its_group_for_ever(
    damage: str, inbox_database: Database, virtual_clock: VirtualClock, caplog: Any
) -> None:
    db = inbox_database
    await make(db, id="id TEXT PRIMARY KEY", attempt="attempt DEFAULT 1")
    good = UUID(int=2**120)
    await db.execute(
        "INSERT INTO jobs (id, name, attempt, payload) VALUES ($1, 'g', $2, $3)",
        str(UUID(int=1)),
        "many" if damage == "attempt" else 1,
        b"no number" if damage == "payload" else b"1",
    )
    await db.execute("INSERT INTO jobs (id, name, payload) VALUES ($1, 'g', $2)", str(good), b"2")
    app, seen = serve(
        db, InboxQueue(Line, "g", int), lambda *_: ack(), max_attempts=3, dead_letter="dead"
    )
    async with TestApp(app) as kit:
        await kit.advance(timedelta(minutes=5))
        left = [tuple(row) for row in await db.fetch("SELECT id, name FROM jobs")]
    assert (2, 1) in seen
    if damage == "attempt":
        assert seen == [(1, 1), (2, 1)]
        assert left == []
    else:
        assert seen == [(2, 1)]
        assert left == [(str(UUID(int=1)), "dead")]
    assert damage in caplog.text
