"""The row lock form: the transaction that claimed a row holds it until the row is settled in it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import anyio

from inboxkit._core.lease import add, fit
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import InboxSpec, Role
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.lease import Write
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import bind
from inboxkit.abc import Claim, DriverConnection, Fence, Renewal, Settled, Work
from inboxkit.errors import DatabaseError, InboxkitError, OutcomeUnknownError

from .claiming import Claiming
from .runner import Lender
from .working import CONSTRAINTS, SAVE, SavepointWork, session_ended

__all__ = ["RowLockForm"]

_ASIDE: Final = timedelta(seconds=30)
"""How long a row that cannot be read is passed over in this process."""

_COUNT: Final = Settlement(Verb.GIVE_BACK)


class RowLockForm:
    """Claims rows of one queue by their locks. One for each subscription; see `open_form`."""

    lease: timedelta | None = None

    def __init__(
        self,
        lender: Lender,
        spec: InboxSpec,
        info: TableInfo,
        dialect: Dialect,
        *,
        group: str | None,
        cap: int | None = None,
    ) -> None:
        self._lender = lender
        self._table = bind(dialect, spec, info)
        self._statements = dialect.row_lock(self._table, group=group)
        self._claiming = Claiming(self._table, cap=cap, counts=False)
        self._cap = cap
        self._sessions: dict[int, DriverConnection] = {}
        self._numbers = itertools.count(1)
        self._aside: dict[Any, float] = {}
        """Ids as the driver gave them, with the monotonic second until which they are passed over."""

    async def claim(self, *, limit: int) -> Claim:
        """Lock up to `limit` due rows, in claim order; of a FIFO group its head alone.

        Raises:
            DatabaseError: Nothing was claimed.

        Cancellation:
            Nothing stays claimed.
        """
        limit = min(limit, 1) if self._table.spec.fifo else limit
        number = next(self._numbers)
        connection = await self._lender.acquire()
        try:
            await connection.begin(hold=True)
            script = Script("claim", partial(self._claim, limit, number), "none")
            claim = await connection.run(script)
            if claim.rows:
                self._sessions[number] = connection
            return claim
        finally:
            if number not in self._sessions:
                await self._lender.release(connection)

    def _claim(self, limit: int, number: int, reading: Reading) -> Steps[Claim]:
        aside = {id: end for id, end in self._aside.items() if end > reading.monotonic}
        self._aside = aside
        rows = yield from self._statements.claim(
            now=self._table.instant(reading.now), limit=limit, aside=list(aside)
        )
        claim = self._claiming.read(rows, reading, add(reading.now, _ASIDE), hold=number)
        if claim.undecodable:
            read = [claimed.fence.id for claimed in claim.rows]
            end = reading.monotonic + _ASIDE.total_seconds()
            aside.update({row[0]: end for row in rows if self._table.id.decode(row[0]) not in read})
        return claim

    async def renew(
        self,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        timeout: float,  # noqa: ARG002 - nothing is waited for
    ) -> Renewal:
        """Tell which sessions have ended."""
        lost = frozenset(fence.id for fence, _ in holds if self._has_ended(fence))
        return Renewal(None, lost=lost)

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write each settlement on its row's own session, and give the session back."""
        return [await self._end(fence, settlement) for fence, settlement in settlements]

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Give rows back: undone, or (the flag is False) counted, where there is an attempt column."""
        return [
            await self._end(fence, None if flag or self._is_spent(fence) else _COUNT)
            for fence, flag in releases
        ]

    async def begin(self, fence: Fence) -> Work:
        """Begin after the claim, on the session that holds the row: going back there keeps the row."""
        connection = self._sessions.get(fence.hold or 0)
        if connection is None or connection.is_closed:
            raise session_ended(fence)
        await connection.execute(SAVE)
        first = CONSTRAINTS if self._table.dialect.name == "postgres" else ()
        return SavepointWork(connection, self._script, self._commit, first=first)

    async def close(self) -> None:
        """Give every session back, with its row."""
        sessions, self._sessions = self._sessions, {}
        async with anyio.create_task_group() as closing:
            for connection in sessions.values():
                closing.start_soon(self._lender.release, connection)

    def _is_spent(self, fence: Fence) -> bool:
        return self._cap is not None and (fence.attempt or 1) > self._cap

    def _has_ended(self, fence: Fence) -> bool:
        connection = self._sessions.get(fence.hold or 0)
        return connection is None or connection.is_closed

    async def _end(self, fence: Fence, settlement: Settlement | None) -> Settled:
        """Write and commit, or roll back where `settlement` is None; then the session is free."""

        async def write(connection: DriverConnection) -> Settled:
            return await self._write(connection, fence, settlement)

        return await self._last(fence, write)

    async def _commit(self, fence: Fence, due: datetime | None) -> Settled:
        """Commit what is written already; then the session is free."""

        async def commit(connection: DriverConnection) -> Settled:
            await connection.commit()
            return Settled("written", due)

        return await self._last(fence, commit)

    async def _last(
        self, fence: Fence, write: Callable[[DriverConnection], Awaitable[Settled]]
    ) -> Settled:
        connection = self._sessions.pop(fence.hold or 0, None)
        if connection is None:
            return Settled("lost")
        try:
            if connection.is_closed:
                return Settled("lost")
            return await write(connection)
        except OutcomeUnknownError as error:
            return Settled("unknown", error=error)
        except InboxkitError as error:
            return Settled("lost" if connection.is_closed else "failed", error=error)
        finally:
            await self._lender.release(connection)

    async def _write(
        self, connection: DriverConnection, fence: Fence, settlement: Settlement | None
    ) -> Settled:
        if settlement is None or not self._statements.writes(_write_of(settlement)):
            await connection.rollback()
            return Settled("lost" if connection.is_closed else "written")
        due = await connection.run(self._script(fence, settlement))
        await connection.commit()
        return Settled("written", due)

    def _script(self, fence: Fence, settlement: Settlement) -> Script[datetime | None]:
        steps = partial(self._steps, _write_of(settlement), fence, settlement.delay)
        return Script("settle", steps, "none")

    def _steps(
        self, write: Write, fence: Fence, delay: timedelta, reading: Reading
    ) -> Steps[datetime | None]:
        due: datetime | None = None
        value: Any = None
        if write.verb is Verb.GIVE_BACK:
            due = reading.now
        elif write.verb is Verb.POSTPONE:
            column = self._table.get(Role.RETRY_AFTER)
            due = fit(add(reading.now, delay), column.info.precision)
            value = column.encode(due)
        written = yield from self._statements.write(
            write,
            self._table.id.encode(fence.id),
            value=value,
            now=self._table.instant(reading.now),
        )
        if not written:
            raise DatabaseError(
                f"{write.name}: no row of table {self._table.spec.name!r} was changed, although it is "
                "locked; does a trigger keep it from that?",
                statement=write.name,
            )
        return due


def _write_of(settlement: Settlement) -> Write:
    verb = Verb.GIVE_BACK if settlement.verb is Verb.HOLD else settlement.verb
    return Write(verb, settlement.destination)
