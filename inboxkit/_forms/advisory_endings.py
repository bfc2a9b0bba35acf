"""How rows in work under an advisory lock end: by one write to the row, or none at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from inboxkit._core.lease import add, fit
from inboxkit._core.settlement import Verb
from inboxkit._core.spec import Role
from inboxkit._sql.advisory import AdvisoryWrites
from inboxkit._sql.lease import RELEASE, Held
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.abc import Settled
from inboxkit.errors import InboxkitError, OutcomeUnknownError

from .aside import Aside
from .repeats import Repeats
from .settling import Ending

__all__ = ["Endings", "ending_script", "is_written"]


def is_written(table: Table, ending: Ending) -> bool:
    """Whether the row is written at all: a retry only lets the key go."""
    match ending.write.verb:
        case Verb.GIVE_BACK | Verb.HOLD:
            return False
        case Verb.FINISH | Verb.MOVE | Verb.POSTPONE:
            return True
        case _:
            return ending.taken_back > 0 and table.find(Role.ATTEMPT) is not None


def ending_script(table: Table, statements: AdvisoryWrites, ending: Ending) -> Script[Settled]:
    """The script of an ending that `is_written`."""
    transaction = statements.transaction(ending.write)
    return Script("settle", _steps(table, statements, ending), transaction)


def _steps(
    table: Table, statements: AdvisoryWrites, ending: Ending
) -> Callable[[Reading], Steps[Settled]]:
    def steps(reading: Reading) -> Steps[Settled]:
        due: datetime | None = None
        value = None
        if ending.write.verb is Verb.POSTPONE:
            column = table.get(Role.RETRY_AFTER)
            due = fit(add(reading.now, ending.delay), column.info.precision)
            value = column.encode(due)
        elif ending.write == RELEASE:
            value = ending.taken_back
        row = Held(table.id.encode(ending.fence.id), (), ending.fence.attempt, value)
        now = table.instant(reading.now)
        was_there = yield from statements.write(ending.write, row, now=now)
        # A row that is back with another attempt than ours is back all the same.
        is_done = was_there or ending.write == RELEASE
        return Settled("written", due) if is_done else Settled("gone")

    return steps


class Endings:
    """Writes endings of one table's rows, and passes over rows for which this fails again.

    Args:
        table: The rows'.
        statements: Its writes.
        aside: Rows that claims pass over.
    """

    def __init__(self, table: Table, statements: AdvisoryWrites, aside: Aside) -> None:
        self._table = table
        self._statements = statements
        self._aside = aside
        self._repeats = Repeats()

    async def write(
        self, ending: Ending, run: Callable[[Script[Settled]], Awaitable[Settled]]
    ) -> Settled:
        """Write one, which may fail, or turn out to write nothing."""
        if not is_written(self._table, ending):
            return Settled("written")
        script = ending_script(self._table, self._statements, ending)
        readings: list[Reading] = []

        def steps(reading: Reading) -> Steps[Settled]:
            readings.append(reading)
            return script.steps(reading)

        try:
            return await run(replace(script, steps=steps))
        except OutcomeUnknownError as error:
            return Settled("unknown", error=error)
        except InboxkitError as error:
            due = None
            if readings:
                id = self._table.id.encode(ending.fence.id)
                due = self._repeats.pass_over(id, self._aside, readings[0])
            return Settled("failed", due, error)
