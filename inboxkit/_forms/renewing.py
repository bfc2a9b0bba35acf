"""The lease form's renewal: one statement for all leases, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import anyio

from inboxkit._core.lease import ExpirySteps, renewed_expiry
from inboxkit._core.spec import Role
from inboxkit._sql.lease import Held, LeaseStatements
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.abc import Fence, Renewal
from inboxkit.errors import InboxkitError, OutcomeUnknownError

from .fences import held
from .runner import Runner

__all__ = ["Round"]


class Round:
    """One round of renewals.

    It keeps what its script came to know, so that a round that was given up can still say which
    tokens may stand in the rows.
    """

    def __init__(
        self,
        table: Table,
        statements: LeaseStatements,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        lease: timedelta,
        steps: ExpirySteps,
    ) -> None:
        self._table = table
        self._statements = statements
        self._holds = holds
        self._lease = lease
        self._steps = steps
        self._reading: Reading | None = None
        self._expiries: dict[Any, datetime] = {}
        self._rows: list[Held] = []
        self._renewed: set[Any] | None = None
        self._skipped: set[Any] | None = None

    async def run(self, runner: Runner, timeout: float) -> Renewal:
        """Send the round, and read again what it did not find; within `timeout` seconds."""
        error: BaseException | None = None
        with anyio.move_on_after(timeout) as scope:
            try:
                await self._send(runner)
            except InboxkitError as met:
                error = met
        if scope.cancelled_caught:
            error = TimeoutError(f"the renewal took longer than {timeout} s")
        return self._answer(error)

    async def _send(self, runner: Runner) -> None:
        # Not before the script has returned: its COMMIT may fail, or its answer be lost.
        self._renewed = await runner.run(
            Script("renew", self._renew, self._table.dialect.lone_write, is_urgent=True)
        )
        missed = [row for row in self._rows if self._decode(row.id) not in self._renewed]
        if not missed or not self._statements.locks_rows:
            self._skipped = set()
        else:
            self._skipped = await runner.run(
                Script("renew check", lambda reading: self._check(missed, reading), "none")
            )

    def _renew(self, reading: Reading) -> Steps[set[Any]]:
        lease = self._table.get(Role.LOCKED_UNTIL)
        for fence, made in self._holds:
            expiry = renewed_expiry(
                reading.now,
                self._lease,
                old=fence.tokens[0],
                elapsed=reading.monotonic - made.monotonic,
                steps=self._steps,
                precision=self._table.precision,
            )
            self._expiries[fence.id] = expiry
            self._rows.append(held(self._table, fence, lease.encode(expiry)))
        self._reading = reading
        now = self._table.instant(reading.now)
        ids = yield from self._statements.renew(self._rows, now=now)
        return set(map(self._decode, ids))

    def _check(self, missed: Sequence[Held], reading: Reading) -> Steps[set[Any]]:
        now = self._table.instant(reading.now)
        answer = yield self._statements.still_held(missed, now=now)
        return {self._decode(row[0]) for row in answer.rows}

    def _decode(self, id: Any) -> Any:
        return self._table.id.decode(id)

    def _answer(self, error: BaseException | None) -> Renewal:
        ids = frozenset(self._expiries)
        if self._renewed is None:
            was_sent = isinstance(error, OutcomeUnknownError | TimeoutError)
            if self._reading is not None and was_sent:
                return Renewal(self._reading, unknown=self._expiries, error=error)
            given = frozenset(fence.id for fence, _made in self._holds)
            return Renewal(self._reading, failed=given, error=error)
        renewed = {id: end for id, end in self._expiries.items() if id in self._renewed}
        missed = ids - self._renewed
        if self._skipped is None:
            return Renewal(self._reading, renewed, failed=missed, error=error)
        skipped = frozenset(self._skipped)
        return Renewal(self._reading, renewed, skipped=skipped, lost=missed - skipped)
