"""What the tests of the advisory lock form share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio

from inboxkit._advisory import advisory_keys
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._db.scripts import step_through
from inboxkit._forms import open_form
from inboxkit._sql.mysql.lock_names import try_lock
from inboxkit.database import Database

FINISH = Settlement(Verb.FINISH)


async def create(b: Any, key: str = "jobs-{id}", **roles: Any) -> None:
    await b.create(**{"locked_until": None, "advisory_lock": key, **roles})
    if b.is_postgres:  # sessions of the test before may be about to end, and keys are alike
        await no_locks(b)


async def open_advisory(b: Any, db: Any = None, *, group: str = "a", cap: int | None = None) -> Any:
    db = b.db if db is None else db
    form = open_form(
        db,
        b.spec,
        b.info,
        b.dialect,
        group=group if b.spec.group is not None else None,
        lease=timedelta(seconds=30),
        cap=cap,
        steps=ExpirySteps(0),
        keys=await advisory_keys(b.db, b.spec),
    )
    if b.is_mysql:
        _note_locks(b, form)
    return form


def _note_locks(b: Any, form: Any) -> None:
    """Keep which keys a form comes to lock: MariaDB tells of single locks only."""
    made = form._statements.take

    def take(id: Any, key: Any, *, now: Any) -> Any:
        statement = try_lock("try", form._table, key)
        b.locks.add((statement.text, statement.parameters))
        return made(id, key, now=now)

    form._statements.take = take


@asynccontextmanager
async def opened(b: Any, db: Any = None, **settings: Any) -> AsyncIterator[Any]:
    form = await open_advisory(b, db, **settings)
    try:
        yield form
    finally:
        await form.close()


async def claim_all(form: Any) -> list[Any]:
    """Claim row by row, until a claim comes back empty."""
    rows: list[Any] = []
    while (claim := await form.claim(limit=1)).rows:
        rows += claim.rows
    return rows


def ids(rows: list[Any]) -> list[Any]:
    return [row.fence.id for row in rows]


async def end(form: Any, row: Any, settlement: Settlement = FINISH) -> Any:
    (settled,) = await form.settle([(row.fence, settlement)])
    return settled


async def locks(b: Any) -> int:
    """How many advisory locks there are; the server may be late to notice a session's end."""
    if b.is_mysql:
        return sum([await _is_used(b, text, given) for text, given in b.locks])
    if not b.is_postgres:
        keys: Any = await advisory_keys(b.db, b.spec)
        try:
            return len(keys.ring.keys)
        finally:
            keys.close()
    count = (
        "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
        "WHERE locktype = 'advisory' AND d.datname = current_database()"
    )
    return int(await b.db.fetch_value(count))


async def _is_used(b: Any, text: str, given: tuple[Any, ...]) -> bool:
    asked = text.replace("GET_LOCK(", "IS_USED_LOCK(").replace(", 0), 0)", "), 0)")
    return bool(await b.db.fetch_value(asked, *given))


async def no_locks(b: Any) -> None:
    with anyio.fail_after(5):
        while await locks(b):
            await anyio.lowlevel.checkpoint()


class Watched:
    """A database whose statements are told of, by name, once they are answered."""

    def __init__(self, db: Database, told: Any) -> None:
        self.db = db
        self.told = told
        self.sessions: list[Any] = []

    async def acquire(self, *, wait: bool = True) -> Any:
        self.sessions.append(WatchedSession(await self.db.acquire(wait=wait), self))
        return self.sessions[-1]

    async def release(self, session: Any) -> None:
        await self.db.release(session.inner)

    async def run(self, script: Any) -> Any:
        return await self.db.run(script)


class WatchedSession:
    def __init__(self, inner: Any, owner: Watched) -> None:
        self.inner = inner
        self.owner = owner

    @property
    def is_closed(self) -> bool:
        return bool(self.inner.is_closed)

    def terminate(self) -> None:
        self.inner.terminate()

    async def run(self, script: Any) -> Any:
        return await step_through(script, self.owner.db.clock, self.execute)

    async def execute(self, statement: Any) -> Any:
        answer = await self.inner.execute(statement)
        await self.owner.told(statement.name)
        return answer
