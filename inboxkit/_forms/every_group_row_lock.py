"""The row lock form over all groups of a table: each claim takes rows of one group, whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from inboxkit._core.rounds import Found, Rounds, Turn
from inboxkit._core.spec import InboxSpec
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.info import TableInfo
from inboxkit._sql.row_lock import RowLockStatements
from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit.abc import Claim, DriverConnection

from .row_lock import RowLockForm
from .runner import Lender

__all__ = ["EveryGroupRowLockForm"]

_MOST_FOUND: Final = 128
"""Groups that a look answers: beyond the first, since others may be at it."""
_TRIES: Final = 16
"""Groups that one claim tries."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look came to."""

    found: Found
    after: str | None
    """Behind which group it looked."""
    reading: Reading


class EveryGroupRowLockForm(RowLockForm):
    """Claims rows of all groups, fairly, one group by each session; settles as for one.

    Several claims may be in flight. They share the rounds, and no two are at one group at once.
    """

    def __init__(
        self,
        lender: Lender,
        spec: InboxSpec,
        info: TableInfo,
        dialect: Dialect,
        *,
        others: Others,
        cap: int | None = None,
        queue: str = "",
    ) -> None:
        super().__init__(lender, spec, info, dialect, group=None, cap=cap, queue=queue)
        self._groups = get_every_group(self._table, cap=cap, others=others)
        self._rounds = Rounds()
        self._busy: dict[str, None] = {}
        """Groups that a claim is at; of a FIFO table, those in work here too."""
        self._at: dict[DriverConnection, tuple[str, RowLockStatements]] = {}
        """The group that each session is at, and its statements."""
        self._resting: dict[str, float] = {}
        """Groups that are left alone, with the monotonic second until which."""

    def rest(self, group: str, until: float) -> None:
        """Claim nothing of a group before a monotonic second."""
        self._resting[group] = max(until, self._resting.get(group, until))

    async def _take(self, connection: DriverConnection, limit: int, number: int) -> Claim:
        seen = await connection.run(Script("claim", self._see, "none"))
        tried: list[str] = []
        taken: list[str] = []
        claim = Claim((), seen.reading)
        while len(tried) < _TRIES and not taken:
            group = self._choose(seen, tried)
            if group is None:
                break
            tried.append(group)
            claim = await self._try(connection, group, limit, number)
            if claim.rows or claim.undecodable:
                taken.append(group)
        if self._rounds.after != seen.after:
            # Another claim has gone on to the next part of the table meanwhile.
            self._rounds.serve(taken)
            return replace(claim, more=True)
        # A batch of one group is one turn.
        return replace(claim, more=self._rounds.took(seen.found, taken, tried, limit=1))

    def _see(self, reading: Reading) -> Steps[_Seen]:
        """Find groups with a due head. What is locked is not seen: that shows when it is tried."""
        after = self._rounds.after
        known = self._rounds.known(1, reading.monotonic)
        if known is not None:
            return _Seen(known, after, reading)
        self._resting = {
            group: end for group, end in self._resting.items() if end > reading.monotonic
        }
        without = [*self._resting, *(self._busy if self._table.spec.fifo else ())]
        aside = self._aside.at(reading.monotonic)
        look = Look(after, self._rounds.served, _MOST_FOUND, without, aside)
        answer = yield self._groups.look(look, now=self._table.instant(reading.now))
        turns = [Turn(name, bool(again)) for name, again, _ in answer.rows if name is not None]
        return _Seen(Found(turns, answer.rows[0][2], reading.monotonic), after, reading)

    def _choose(self, seen: _Seen, tried: list[str]) -> str | None:
        """The next group, by the rounds as they stand now."""
        names = [
            turn.group
            for turn in seen.found.turns
            if turn.group not in tried
            and turn.group not in self._busy
            and turn.group not in self._resting
        ]
        served = set(self._rounds.served)
        fresh = next((name for name in names if name not in served), None)
        is_whole = seen.after is None and seen.found.stop is None
        # In a part of the table each group has one turn, and then comes the next part.
        return names[0] if fresh is None and names and is_whole else fresh

    async def _try(
        self, connection: DriverConnection, group: str, limit: int, number: int
    ) -> Claim:
        """Claim rows of one group. Where there are none to be had, nothing of it stays locked."""
        statements = self._statements.of_group(group)
        is_fifo = self._table.spec.fifo
        self._busy[group] = None
        self._at[connection] = (group, statements)
        is_over = not is_fifo
        try:
            steps = partial(self._claim, statements, limit, number)
            claim = await connection.run(Script("claim", steps, "none"))
            if is_fifo and not claim.rows:
                # The guard may have been had, and the head not.
                await connection.rollback()
                if (after := statements.after()) is not None:
                    await connection.execute(after)
                is_over = True
                await connection.begin(hold=True)
            return claim
        finally:
            if is_over:
                self._leave(connection)

    def _leave(self, connection: DriverConnection) -> None:
        group, _ = self._at.pop(connection, (None, None))
        if group is not None:
            self._busy.pop(group, None)

    def _after(self, connection: DriverConnection) -> Statement | None:
        at = self._at.get(connection)
        return None if at is None else at[1].after()

    async def _give_back(self, connection: DriverConnection) -> None:
        try:
            await super()._give_back(connection)
        finally:
            self._leave(connection)
