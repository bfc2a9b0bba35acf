"""The advisory lock form on a server: a lock of a session holds each row, and ends with it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio

from inboxkit._core.haste import hasty
from inboxkit._core.settlement import Settlement
from inboxkit._sql.advisory import SessionKeys
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.abc import Claim, DriverConnection, Fence, Renewal, Settled, Work
from inboxkit.errors import DatabaseError

from .advisory_endings import Endings, ending_script
from .aside import Aside
from .claiming import Claiming
from .runner import Lender
from .settling import Ending, of_releases, of_settlements
from .working import KeyWork, session_ended

__all__ = ["SessionAdvisoryForm"]

_log: Final = logging.getLogger("inboxkit")

_UNLOCK_BOUND: Final = 5.0
"""Seconds for letting a key go although the task is cancelled; then its session is dropped."""
_FURTHER: Final = 16
"""How many times more rows a second look has."""
_TRIES: Final = 64
"""Rows whose key a claim gets, at most, until it can take one: a row may have changed since the key was
somebody's, and others are locked by somebody's transaction."""
_ANY: Final = object()
"""Some key, nobody here knows which."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """A row in work: its session, and the key that this has locked."""

    session: DriverConnection
    key: Any


class SessionAdvisoryForm:
    """Claims rows of one queue, each under a lock of a session of its own; see `open_form`."""

    lease: timedelta | None = None
    holds_together = False

    def __init__(
        self,
        lender: Lender,
        table: Table,
        statements: SessionKeys,
        *,
        cap: int | None,
        queue: str = "",
    ) -> None:
        self._lender = lender
        self._table = table
        self._statements = statements
        self._claiming = Claiming(table, cap=cap, queue=queue)
        self._holds: dict[int, _Hold] = {}
        self._numbers = itertools.count(1)
        self._claims = 0
        self._aside = Aside()
        self._endings = Endings(table, statements, self._aside)

    async def claim(self, *, limit: int) -> Claim:
        """Take due rows whose keys are free, in claim order, one of each key.

        Args:
            limit: At least 1. Each row takes a session of its own; where no second one is free at
                once, fewer rows are taken.

        Raises:
            DatabaseError: Nothing is held; a row may have been counted.

        Cancellation:
            Nothing is held: sessions that have or may have got a lock are dropped.
        """
        claims = [await self._claim_one(wait=True)]
        try:
            while claims[-1].rows and len(claims) < limit:
                claims.append(await self._claim_one(wait=False))
        except DatabaseError:
            pass  # what is held goes out; if there is more than a full pool, the next claim meets it
        except BaseException:
            await self._drop([row.fence.hold for claim in claims for row in claim.rows])
            raise
        rows = tuple(row for claim in claims for row in claim.rows)
        return Claim(rows, claims[0].reading, sum(claim.undecodable for claim in claims))

    async def _claim_one(self, *, wait: bool) -> Claim:
        session = await self._lender.acquire(wait=wait)
        self._claims += 1
        # As many rows as keys may be in others' hands here before one is left.
        most = self._claims + len(self._holds)
        number = next(self._numbers)
        search = _Search(
            self._table, self._statements, self._claiming, number, most=most, aside=self._aside
        )
        hold: _Hold | None = None
        try:
            claim = await session.run(Script("claim", search.steps, "none"))
            if claim.rows:
                hold = self._holds[number] = _Hold(session, search.key)
        finally:
            self._claims -= 1
            if hold is None:
                if search.key is not None:
                    session.terminate()
                await self._lender.release(session)
        return claim

    async def renew(
        self,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        timeout: float,  # noqa: ARG002 - nothing is sent
    ) -> Renewal:
        """Tell the rows whose sessions have ended, without asking the server."""
        return Renewal(
            None, lost=frozenset(fence.id for fence, _ in holds if not self._is_held(fence))
        )

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write each row on its own session, then let its key go, whatever became of the write.

        A row whose session has ended is "lost": it may be in work elsewhere.
        """
        return [await self._end(ending) for ending in of_settlements(settlements)]

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Let the keys go; the flag says whether the claim's count is taken back before."""
        return [await self._end(ending) for ending in of_releases(releases)]

    async def begin(self, fence: Fence) -> Work:
        """Begin a transaction on the session that holds the row; it ends before the key is let go."""
        hold = self._holds.get(fence.hold or 0)
        if hold is None or not self._is_held(fence):
            raise session_ended(fence)
        await hold.session.begin(hold=True)

        async def let_go() -> None:
            self._holds.pop(fence.hold or 0, None)
            await self._let_go(hold)

        return KeyWork(
            hold.session, partial(ending_script, self._table, self._statements), finish=let_go
        )

    def rest_row(self, id: Any, until: float) -> None:
        """Do not claim a row before this second of the monotonic clock."""
        self._aside.add(self._table.id.encode(id), until)

    async def close(self) -> None:
        """Drop the sessions of rows still in work: they are back at once, and counted."""
        await self._drop(list(self._holds))

    async def _drop(self, numbers: Sequence[int | None]) -> None:
        holds = [self._holds.pop(number) for number in numbers if number is not None]
        for hold in holds:
            hold.session.terminate()
        for hold in holds:
            await self._lender.release(hold.session)

    def _is_held(self, fence: Fence) -> bool:
        hold = self._holds.get(fence.hold) if fence.hold is not None else None
        return hold is not None and not hold.session.is_closed

    async def _end(self, ending: Ending) -> Settled:
        is_held = self._is_held(ending.fence)
        hold = self._holds.pop(ending.fence.hold or 0, None)
        if hold is None:
            return Settled("lost")
        try:
            if not is_held:
                return Settled("lost")
            return await self._endings.write(ending, hold.session.run)
        finally:
            await self._let_go(hold)

    async def _let_go(self, hold: _Hold) -> None:
        """Unlock and give the session back; one that does not confirm it is dropped."""
        session, is_free = hold.session, False
        try:
            if not session.is_closed:
                with hasty(anyio.move_on_after(_UNLOCK_BOUND, shield=True)):
                    answer = await session.execute(self._statements.unlock(hold.key))
                    is_free = bool(answer.rows[0][0])
                if not is_free:
                    self._tell(
                        hold,
                        "the server did not confirm it, as behind a pooler that gives "
                        "a session's statements to several sessions of the server",
                    )
        except DatabaseError as error:
            self._tell(hold, str(error))
        finally:
            if not is_free:
                session.terminate()
            await self._lender.release(session)

    def _tell(self, hold: _Hold, reason: str) -> None:
        _log.warning(
            "table %r: letting go of the advisory lock %r failed: %s; its session is closed, which "
            "ends the lock",
            self._table.spec.name,
            hold.key,
            reason,
        )


class _Search:
    """One claim's way to a row.

    Attributes:
        key: What the session may have locked: noted before the lock is asked for. None: nothing.
    """

    def __init__(
        self,
        table: Table,
        statements: SessionKeys,
        claiming: Claiming,
        number: int,
        *,
        most: int,
        aside: Aside,
    ) -> None:
        self._table = table
        self._statements = statements
        self._claiming = claiming
        self._number = number
        self._most = most
        self._aside = aside
        self.key: Any = None

    def steps(self, reading: Reading) -> Steps[Claim]:
        """Get a key, and take its row if it is due still; else get that of another row."""
        now = self._table.instant(reading.now)
        aside = list(self._aside.at(reading.monotonic))
        most = self._most
        for _ in range(_TRIES):
            self.key = _ANY
            answer = yield self._statements.lock(now=now, limit=most, aside=aside)
            if answer.rows:
                id, self.key = answer.rows[0]
                claim = yield from self._take(id, reading, now)
                if claim is not None:
                    return claim
                aside.append(id)
                continue
            self.key = None
            if not self._statements.may_miss or most > self._most:
                break
            most *= _FURTHER  # all that it saw may have been lost to others meanwhile
        return Claim((), reading)

    def _take(self, id: Any, reading: Reading, now: Any) -> Steps[Claim | None]:
        try:
            rows = yield from self._statements.take(id, self.key, now=now)
        except DatabaseError:
            yield from self._unlock()
            raise
        # No type that the server takes for an id or a due time is unreadable: nothing is set aside.
        claim = self._claiming.read(rows, reading, reading.now, hold=self._number)
        if not claim.rows:
            yield from self._unlock()
        return claim if rows else None

    def _unlock(self) -> Steps[None]:
        answer = yield self._statements.unlock(self.key)
        if not answer.rows[0][0]:
            raise DatabaseError(
                f"table {self._table.spec.name!r}: the session did not hold the advisory lock "
                f"{self.key!r} that it had got; it is closed",
                statement="unlock",
            )
        self.key = None
