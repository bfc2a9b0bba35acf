"""The table that all these services keep their queues in; not part of what they show."""

from __future__ import annotations

from datetime import datetime

from inboxkit import Database, Inbox, role


class Job(Inbox, table="jobs"):
    """A row of ``jobs``; ``name`` is its queue."""

    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class OrderedJob(Inbox, table="jobs"):
    """The same table, but each queue is worked off in order."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = {
    "sqlite": """CREATE TABLE IF NOT EXISTS jobs (
        id           INTEGER PRIMARY KEY AUTOINCREMENT,
        name         TEXT NOT NULL,
        attempt      INTEGER NOT NULL DEFAULT 1,
        locked_until TEXT,
        payload      BLOB NOT NULL
    )""",
    "postgres": """CREATE TABLE IF NOT EXISTS jobs (
        id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name         text NOT NULL,
        attempt      integer NOT NULL DEFAULT 1,
        locked_until timestamptz,
        payload      bytea NOT NULL
    )""",
}


async def create_tables(db: Database, *others: str) -> None:
    """Create ``jobs``, and what these statements create."""
    for statement in (JOBS[db.dialect], *others):
        await db.execute(statement)
