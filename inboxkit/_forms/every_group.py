"""The lease form over all groups of a table: each claim takes rows of the groups whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from inboxkit._core.lease import ExpirySteps, expiry
from inboxkit._core.rounds import Found, Rounds, Turn
from inboxkit._core.spec import InboxSpec, Role
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.info import TableInfo
from inboxkit._sql.lease import Row
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit.abc import Claim

from .lease import LeaseForm
from .runner import Connections

__all__ = ["EveryGroupForm"]

_MOST_FOUND: Final = 128
"""Groups that a look answers, unless more rows are wanted. Beyond the limit, since other services may
be at the first ones."""


class EveryGroupForm(LeaseForm):
    """Claims rows of all groups, fairly; renews and settles as for one."""

    def __init__(
        self,
        runner: Connections,
        spec: InboxSpec,
        info: TableInfo,
        dialect: Dialect,
        *,
        others: Others,
        lease: timedelta,
        cap: int | None,
        steps: ExpirySteps,
        queue: str = "",
    ) -> None:
        super().__init__(
            runner,
            spec,
            info,
            dialect,
            group=None,
            lease=lease,
            cap=cap,
            steps=steps,
            queue=queue,
        )
        self._groups = get_every_group(self._table, cap=cap, others=others)
        self._group_at = [column.role for column in self._table.columns].index(Role.GROUP)
        self._rounds = Rounds()

    async def claim(self, *, limit: int) -> Claim:
        """Take up to `limit` due rows, in rounds over the groups; of a FIFO group its head alone.

        Raises:
            DatabaseError: Nothing was claimed, or (OutcomeUnknownError) rows may have been and come
                back at their expiry.
        """

        def steps(reading: Reading) -> Steps[_Taken]:
            # One reading: is it due, is its lease over, when does ours end.
            end = expiry(
                reading.now, self._lease, steps=self._steps, precision=self._table.precision
            )
            now = self._table.instant(reading.now)
            found = self._rounds.known(limit, reading.monotonic)
            if found is None:
                found = yield from self._look(now, reading, limit)
            aside = self._aside.at(reading.monotonic)
            turns, tried = yield from self._guarded(found.turns, limit)
            rows: Sequence[Row] = ()
            if turns:
                rows = yield from self._groups.take(
                    turns,
                    now=now,
                    expiry=self._table.get(Role.LOCKED_UNTIL).encode(end),
                    limit=limit,
                    most=self._most(turns, limit) if self._rounds.is_whole(found) else 1,
                    aside=aside,
                )
            self._pass_over(rows, reading)
            groups = [row[self._group_at] for row in rows]
            return _Taken(self._claiming.read(rows, reading, end), found, groups, tried)

        taken = await self._runner.run(Script("claim", steps, "write"))
        # Only now: a claim that failed gave nobody a turn.
        more = self._rounds.took(taken.found, taken.groups, taken.tried, limit=limit)
        # A group that goes on without a row has perhaps another that is due.
        return replace(taken.claim, more=more or taken.claim.undecodable > 0)

    def _look(self, now: Any, reading: Reading, limit: int) -> Steps[Found]:
        look = Look(
            self._rounds.after,
            self._rounds.served,
            max(_few(limit), _MOST_FOUND),
            aside=self._aside.at(reading.monotonic),
        )
        answer = yield self._groups.look(look, now=now)
        turns = [Turn(name, bool(again)) for name, again, _ in answer.rows if name is not None]
        return self._rounds.first(Found(turns, answer.rows[0][2], reading.monotonic))

    def _guarded(self, found: Sequence[Turn], limit: int) -> Steps[tuple[list[Turn], list[str]]]:
        """The turns that can be taken, and the groups at which that was tried."""
        guard = self._groups.guard(found, limit) if found else None
        if guard is None:
            return list(found[:limit]), [turn.group for turn in found[:limit]]
        answer = yield guard
        kept = {row[0] for row in answer.rows}
        places = [n for n, turn in enumerate(found, 1) if turn.group in kept]
        tried = found if len(kept) < limit else found[: places[-1]]
        return [turn for turn in found if turn.group in kept], [turn.group for turn in tried]

    def _most(self, turns: Sequence[Turn], limit: int) -> int:
        """Most rows of one group that the rounds can give it."""
        if self._table.spec.fifo:
            return 1
        if len(turns) < limit:
            return _few(limit - len(turns) + 1)  # the others have one each first
        # Two: the last of one round, and the first of the next.
        return 2 if turns[-1].is_again and not turns[0].is_again else 1


def _few(number: int) -> int:
    """This or somewhat more: of few values, so that few texts are prepared."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the script of a claim came to."""

    claim: Claim
    found: Found
    groups: Sequence[str]
    """The group of each row that was taken, in order."""
    tried: Sequence[str]
