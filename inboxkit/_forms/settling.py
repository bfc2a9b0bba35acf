"""The lease form's settlements and releases: together first, each alone where that fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from inboxkit._core.lease import ExpirySteps, add, expiry, fit
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import Role
from inboxkit._sql.lease import RELEASE, Held, LeaseStatements, Write
from inboxkit._sql.statement import Reading, Script, Statement, Steps, Transaction
from inboxkit._sql.table import Table
from inboxkit.abc import Fence, Settled
from inboxkit.errors import (
    DatabaseError,
    InboxkitError,
    OutcomeUnknownError,
    PoolTimeoutError,
)

from .fences import held
from .runner import Runner

__all__ = ["Ending", "Settling", "of_releases", "of_settlements"]

_SAVE = Statement("savepoint", "SAVEPOINT inboxkit_one", returns_rows=False)
_UNDO = Statement("savepoint rollback", "ROLLBACK TO SAVEPOINT inboxkit_one", returns_rows=False)
_KEEP = Statement("savepoint release", "RELEASE SAVEPOINT inboxkit_one", returns_rows=False)


@dataclass(frozen=True, slots=True)
class Ending:
    """One row's end: what is written, and with which delay or number."""

    fence: Fence
    write: Write
    delay: timedelta = timedelta(0)
    taken_back: int = 0


def of_settlements(given: Sequence[tuple[Fence, Settlement]]) -> list[Ending]:
    """Endings of settlements."""
    return [
        Ending(fence, Write(settlement.verb, settlement.destination), settlement.delay)
        for fence, settlement in given
    ]


def of_releases(given: Sequence[tuple[Fence, bool]]) -> list[Ending]:
    """Endings of releases; the flag says that the claim's count is taken back."""
    return [Ending(fence, RELEASE, taken_back=int(flag)) for fence, flag in given]


class Settling:
    """Writes endings of one table's rows."""

    def __init__(
        self, runner: Runner, table: Table, statements: LeaseStatements, *, steps: ExpirySteps
    ) -> None:
        self._runner = runner
        self._table = table
        self._statements = statements
        self._steps = steps

    async def write(self, endings: Sequence[Ending]) -> list[Settled]:
        """Write all in one transaction; where it fails, each by itself in one more."""
        if not endings:
            return []
        script = Script("settle", partial(self._together, endings), self._transaction(endings))
        try:
            results = await self._runner.run(script)
        except InboxkitError as error:
            if not _is_of_a_row(error) or len(endings) == 1:
                return [_failed(error)] * len(endings)
            results = await self._one_by_one(endings)
        return await self._explain(endings, results)

    def script(self, ending: Ending) -> Script[Settled | None]:
        """Writes one in a transaction that is open already; answers None where no row held its fence."""

        def steps(reading: Reading) -> Steps[Settled | None]:
            (settled,) = yield from self._write(ending.write, [ending], reading)
            return None if settled is _UNMATCHED else settled

        return Script("settle", steps, "none")

    async def explain(self, ending: Ending) -> Settled:
        """Why no row held its fence: lost, or gone."""
        (settled,) = await self._explain([ending], [_UNMATCHED])
        return settled

    async def _one_by_one(self, endings: Sequence[Ending]) -> list[Settled]:
        try:
            return await self._runner.run(Script("settle", partial(self._alone, endings), "write"))
        except InboxkitError as error:
            return [_failed(error)] * len(endings)

    def _transaction(self, endings: Sequence[Ending]) -> Transaction:
        write, *others = {ending.write for ending in endings}
        return "write" if others else self._statements.transaction(write, len(endings))

    def _together(self, endings: Sequence[Ending], reading: Reading) -> Steps[list[Settled]]:
        groups: defaultdict[Write, list[int]] = defaultdict(list)
        for at, ending in enumerate(endings):
            groups[ending.write].append(at)
        results = [_UNMATCHED] * len(endings)
        for write, places in groups.items():
            group = [endings[at] for at in places]
            settled = yield from self._write(write, group, reading)
            for at, result in zip(places, settled, strict=True):
                results[at] = result
        return results

    def _alone(self, endings: Sequence[Ending], reading: Reading) -> Steps[list[Settled]]:
        results: list[Settled] = []
        for statement in self._statements.alone:  # noqa: UP028 - a tuple cannot be sent answers
            yield statement
        for ending in endings:
            yield _SAVE
            try:
                results += yield from self._write(ending.write, [ending], reading)
            except DatabaseError as error:
                if isinstance(error, OutcomeUnknownError):
                    raise
                results.append(Settled("failed", error=error))
                yield _UNDO
            yield _KEEP
        return results

    def _write(
        self, write: Write, endings: Sequence[Ending], reading: Reading
    ) -> Steps[list[Settled]]:
        dues = [self._due(ending, reading.now) for ending in endings]
        rows = [self._row(ending, due) for ending, due in zip(endings, dues, strict=True)]
        written = yield from self._statements.write(
            write, rows, now=self._table.instant(reading.now)
        )
        ids = {self._table.id.decode(id) for id in written}
        return [
            Settled("written", due) if ending.fence.id in ids else _UNMATCHED
            for ending, due in zip(endings, dues, strict=True)
        ]

    def _due(self, ending: Ending, now: datetime) -> datetime | None:
        """When the row is due again in this queue."""
        match ending.write.verb:
            case Verb.FINISH | Verb.MOVE:
                return None
            case Verb.POSTPONE:
                precision = self._table.get(Role.RETRY_AFTER).info.precision
                return fit(add(now, ending.delay), precision)
            case Verb.HOLD:
                return expiry(now, ending.delay, steps=self._steps, precision=self._table.precision)
            case _:
                return now

    def _row(self, ending: Ending, due: datetime | None) -> Held:
        value: Any = None
        if ending.write == RELEASE:
            value = ending.taken_back
        elif ending.write.verb in (Verb.POSTPONE, Verb.HOLD):
            role = Role.RETRY_AFTER if ending.write.verb is Verb.POSTPONE else Role.LOCKED_UNTIL
            value = self._table.get(role).encode(due)
        return held(self._table, ending.fence, value)

    async def _explain(self, endings: Sequence[Ending], results: list[Settled]) -> list[Settled]:
        """Tell rows that are gone from those that another holder has."""
        places = [at for at, result in enumerate(results) if result is _UNMATCHED]
        if not places:
            return results
        encode: Callable[[Any], Any] = self._table.id.encode
        ids = [encode(endings[at].fence.id) for at in places]

        def read(_reading: Reading) -> Steps[set[Any]]:
            answer = yield self._statements.unfinished(ids)
            return {self._table.id.decode(row[0]) for row in answer.rows}

        try:
            there = await self._runner.run(Script("settle check", read, "none"))
        except InboxkitError as error:
            # Nothing was written, which is certain; why is not, so it is asked again later.
            for at in places:
                results[at] = Settled("failed", error=error)
            return results
        for at in places:
            results[at] = _LOST if endings[at].fence.id in there else _GONE
        return results


_UNMATCHED = Settled("failed")
"""No row held the fence; compared by identity, and replaced before anybody sees it."""
_LOST = Settled("lost")
_GONE = Settled("gone")


def _is_of_a_row(error: InboxkitError) -> bool:
    """Whether single rows may fare better: not where no connection was had, or it broke."""
    return isinstance(error, DatabaseError) and not isinstance(
        error, OutcomeUnknownError | PoolTimeoutError
    )


def _failed(error: InboxkitError) -> Settled:
    if isinstance(error, OutcomeUnknownError):
        return Settled("unknown", error=error)
    return Settled("failed", error=error)
