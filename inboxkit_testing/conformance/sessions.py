"""The database as claim forms see it: it notes what they ask for, and can end their sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio

from inboxkit import Database
from inboxkit.abc import DriverConnection, Script, Statement

__all__ = ["Lender"]


@dataclass(frozen=True)
class _Number:
    """How a session is told from others."""

    asked: str
    ended: str
    """Ends it, in a while."""
    seen: str
    """Whether it is there still."""


_NUMBERS: Final = {
    "postgres": _Number(
        "SELECT pg_backend_pid()",
        "SELECT pg_terminate_backend($1::int)",
        # Its locks are gone before this is.
        "SELECT count(*) FROM pg_stat_activity WHERE pid = $1",
    ),
    "mysql": _Number(
        "SELECT connection_id()",
        "KILL $1",
        "SELECT count(*) FROM information_schema.processlist WHERE id = $1",
    ),
}


class Lender:
    """A database as forms see it: runs their scripts and lends them sessions, and notes both."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.runs: list[str] = []
        """Scripts, and what they ran in."""
        self.lent: list[DriverConnection] = []

    async def run(self, script: Script[Any]) -> Any:
        """Run a script, and note it."""
        self.runs.append(f"{script.name} {script.transaction}")
        return await self.db.run(script)

    async def acquire(self, *, wait: bool = True) -> DriverConnection:
        """Lend a session."""
        session = await self.db.acquire(wait=wait)
        self.lent.append(session)
        return session

    async def begin(self) -> DriverConnection:
        session = await self.db.begin()
        self.lent.append(session)
        return session

    async def release(self, session: DriverConnection) -> None:
        """Take a session back."""
        self.lent.remove(session)
        await self.db.release(session)

    async def end_all(self) -> None:
        """End what is lent still."""
        for session in list(self.lent):
            await self.end(session)
            await self.release(session)

    async def end(self, session: DriverConnection) -> None:
        """End a session as a crash does; returns when the server has let go of what it held."""
        if not session.is_closed and self.db.dialect in _NUMBERS:
            await self.kill(await self.number(session))
        session.terminate()

    async def number(self, session: DriverConnection) -> Any:
        """The number that the server gave a session."""
        asked = _NUMBERS[self.db.dialect].asked
        return (await session.execute(Statement("session", asked))).rows[0][0]

    async def kill(self, number: Any) -> None:
        """End the session that the server gave this number."""
        how = _NUMBERS[self.db.dialect]
        await self.db.execute(how.ended, number)
        while await self.db.fetch_value(how.seen, number):
            await anyio.lowlevel.checkpoint()
