"""The row lock form: the transaction that claimed a row holds it until the row is settled in it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import anyio

from inboxkit._core.haste import hasty
from inboxkit._core.lease import add, fit
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import InboxSpec, Role
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.lease import Write
from inboxkit._sql.row_lock import RowLockStatements
from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit._sql.table import bind
from inboxkit.abc import Claim, DriverConnection, Fence, Renewal, Settled, Work
from inboxkit.errors import DatabaseError, InboxkitError, OutcomeUnknownError

from .aside import Aside
from .claiming import Claiming
from .repeats import FAILED_ASIDE, Repeats
from .runner import Lender
from .working import CONSTRAINTS, SAVE, SavepointWork, session_ended

__all__ = ["RowLockForm"]

_log: Final = logging.getLogger("inboxkit")

_BOUND: Final = 5.0
"""Seconds for letting a guard go although the task is cancelled; then its session is dropped."""
_ASIDE: Final = timedelta(seconds=30)
"""How long a row that cannot be read is passed over in this process."""

_COUNT: Final = Settlement(Verb.GIVE_BACK)

_Ending: TypeAlias = tuple[Fence, Settlement | None]
"""What is to be written of a row; None: nothing."""


class RowLockForm:
    """Claims rows of one queue by their locks. One for each subscription; see `open_form`."""

    lease: timedelta | None = None
    holds_together = True

    def __init__(
        self,
        lender: Lender,
        spec: InboxSpec,
        info: TableInfo,
        dialect: Dialect,
        *,
        group: str | None,
        cap: int | None = None,
        queue: str = "",
    ) -> None:
        self._lender = lender
        self._table = bind(dialect, spec, info)
        self._statements = dialect.row_lock(self._table, group=group)
        self._claiming = Claiming(self._table, cap=cap, counts=False, queue=queue)
        self._cap = cap
        self._sessions: dict[int, DriverConnection] = {}
        self._numbers = itertools.count(1)
        self._aside = Aside()
        self._has_batches = False
        self._repeats = Repeats()
        self._last_reading: Reading | None = None
        """That of the latest settlement."""

    async def claim(self, *, limit: int) -> Claim:
        """Lock up to `limit` due rows by one session, in claim order; of a FIFO group its head alone.

        Raises:
            DatabaseError: Nothing was claimed.

        Cancellation:
            Nothing stays claimed.
        """
        limit = min(limit, 1) if self._table.spec.fifo else limit
        self._has_batches = self._has_batches or limit > 1
        number = next(self._numbers)
        connection = await self._lender.begin()
        try:
            claim = await self._take(connection, limit, number)
            if claim.rows:
                self._sessions[number] = connection
            return claim
        finally:
            if number not in self._sessions:
                await self._give_back(connection)

    async def _take(self, connection: DriverConnection, limit: int, number: int) -> Claim:
        """Claim in the transaction that is open."""
        steps = partial(self._claim, self._statements, limit, number)
        return await connection.run(Script("claim", steps, "none"))

    def _claim(
        self, statements: RowLockStatements, limit: int, number: int, reading: Reading
    ) -> Steps[Claim]:
        rows = yield from statements.claim(
            now=self._table.instant(reading.now),
            limit=limit,
            aside=self._aside.at(reading.monotonic),
        )
        for row in rows:
            if not self._table.is_readable(row):
                self._aside.add(row[0], reading.monotonic + _ASIDE.total_seconds())
        return self._claiming.read(rows, reading, add(reading.now, _ASIDE), hold=number)

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
        """Write the settlements of each session in its transaction, and give the session back.

        Where one fails, the session's others are undone with it, and "failed" too.
        """
        return await self._end_each(settlements)

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Give rows back: undone, or (the flag is False) counted, where there is an attempt column."""
        return await self._end_each(
            [(fence, None if flag or self._is_spent(fence) else _COUNT) for fence, flag in releases]
        )

    async def begin(self, fence: Fence) -> Work:
        """Begin after the claim, on the session that holds the row: going back there keeps the row."""
        connection = self._sessions.get(fence.hold or 0)
        if connection is None or connection.is_closed:
            raise session_ended(fence)
        await connection.execute(SAVE)
        is_postgres = self._table.dialect.name == "postgres"
        return SavepointWork(
            connection,
            self._script,
            self._commit,
            first=CONSTRAINTS if is_postgres else (),
            # PostgreSQL lets no procedure commit inside a transaction.
            may_be_another=not is_postgres,
        )

    def rest_row(self, id: Any, until: float) -> None:
        """Do not claim a row before this second of the monotonic clock."""
        self._aside.add(self._table.id.encode(id), until)

    async def close(self) -> None:
        """Give every session back, with its row."""
        sessions, self._sessions = self._sessions, {}
        async with anyio.create_task_group() as closing:
            for connection in sessions.values():
                closing.start_soon(self._give_back, connection)

    def _is_spent(self, fence: Fence) -> bool:
        return self._cap is not None and (fence.attempt or 1) > self._cap

    def _has_ended(self, fence: Fence) -> bool:
        connection = self._sessions.get(fence.hold or 0)
        return connection is None or connection.is_closed

    async def _end_each(self, endings: Sequence[_Ending]) -> list[Settled]:
        groups: dict[int | None, list[_Ending]] = {}
        for ending in endings:
            groups.setdefault(ending[0].hold, []).append(ending)
        answers = {hold: iter(await self._end(group)) for hold, group in groups.items()}
        return [next(answers[fence.hold]) for fence, _ in endings]

    async def _end(self, endings: Sequence[_Ending]) -> list[Settled]:
        """End the rows of one session, which then is free."""

        async def write(connection: DriverConnection) -> list[Settled]:
            return await self._write(connection, endings)

        return await self._last(endings, write)

    async def _commit(self, fence: Fence, due: datetime | None) -> Settled:
        """Commit what is written already; then the session is free."""

        async def commit(connection: DriverConnection) -> list[Settled]:
            await connection.commit()
            return [Settled("written", due)]

        (answer,) = await self._last([(fence, None)], commit)
        return answer

    async def _last(
        self,
        endings: Sequence[_Ending],
        write: Callable[[DriverConnection], Awaitable[list[Settled]]],
    ) -> list[Settled]:
        connection = self._sessions.pop(endings[0][0].hold or 0, None)
        if connection is None:
            return [Settled("lost")] * len(endings)
        try:
            if connection.is_closed:
                return [Settled("lost")] * len(endings)
            return await write(connection)
        except OutcomeUnknownError as error:
            return [Settled("unknown", error=error)] * len(endings)
        except InboxkitError as error:
            if connection.is_closed:
                return [Settled("lost", error=error)] * len(endings)
            due = self._pass_over(endings[0][0]) if len(endings) == 1 else None
            return [Settled("failed", due, error)] * len(endings)
        finally:
            await self._give_back(connection)

    def _after(self, connection: DriverConnection) -> Statement | None:  # noqa: ARG002
        """What lets go of all that a claim has left in this session besides the transaction."""
        return self._statements.after()

    async def _give_back(self, connection: DriverConnection) -> None:
        """Roll back what is open still, let go of a guard that outlasts it, and give the session back;
        where that fails it is dropped."""
        after, is_free = self._after(connection), False
        try:
            if after is not None and not connection.is_closed:
                with hasty(anyio.move_on_after(_BOUND, shield=True)):
                    await connection.rollback()
                    if not connection.is_closed:
                        await connection.execute(after)
                        is_free = True
        except DatabaseError as error:
            _log.warning(
                "table %r: letting go of a FIFO group's guard failed: %s; its session is closed, which "
                "ends it",
                self._table.spec.name,
                error,
            )
        finally:
            if after is not None and not is_free:
                connection.terminate()
            await self._lender.release(connection)

    async def _write(
        self, connection: DriverConnection, endings: Sequence[_Ending]
    ) -> list[Settled]:
        """Write and commit, or roll back where nothing is to be written."""
        answers: list[Settled] = []
        is_written = False
        for fence, settlement in endings:
            if settlement is None or not self._statements.writes(_write_of(settlement)):
                answers.append(Settled("written"))
                continue
            try:
                due = await connection.run(self._script(fence, settlement))
            except OutcomeUnknownError:
                raise
            except InboxkitError as error:
                if connection.is_closed or len(endings) == 1:
                    raise
                return self._undone(endings, fence, error)
            answers.append(Settled("written", due))
            is_written = True
        if is_written:
            await connection.commit()
            return answers
        await connection.rollback()
        return [Settled("lost")] * len(endings) if connection.is_closed else answers

    def _undone(
        self, endings: Sequence[_Ending], failed: Fence, error: InboxkitError
    ) -> list[Settled]:
        answer = Settled("failed", self._pass_over(failed), error)
        return [answer if fence is failed else Settled("failed") for fence, _ in endings]

    def _pass_over(self, fence: Fence) -> datetime | None:
        """Returns until when."""
        reading = self._last_reading
        if reading is None or self._table.spec.fifo:
            return None
        id = self._table.id.encode(fence.id)
        if not self._has_batches:
            return self._repeats.pass_over(id, self._aside, reading)
        # At once: those that were undone with it come before it.
        self._aside.add(id, reading.monotonic + FAILED_ASIDE.total_seconds())
        return add(reading.now, FAILED_ASIDE)

    def _script(self, fence: Fence, settlement: Settlement) -> Script[datetime | None]:
        steps = partial(self._steps, _write_of(settlement), fence, settlement.delay)
        return Script("settle", steps, "none")

    def _steps(
        self, write: Write, fence: Fence, delay: timedelta, reading: Reading
    ) -> Steps[datetime | None]:
        self._last_reading = reading
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
