"""The lease form: an expiry in the row holds it, and is the fence of all that is written to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from inboxkit._core.lease import ExpirySteps, expiry
from inboxkit._core.settlement import Settlement
from inboxkit._core.spec import InboxSpec, Role
from inboxkit._sql.dialect import Dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.lease import Row
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import bind
from inboxkit.abc import Claim, Fence, Renewal, Settled, Work

from .aside import Aside
from .claiming import Claiming
from .renewing import Round
from .runner import Connections
from .settling import Settling, of_releases, of_settlements
from .working import LeaseWork

__all__ = ["LeaseForm"]


class LeaseForm:
    """Claims rows of one queue under a lease. One for each subscription; see `open_form`."""

    def __init__(
        self,
        runner: Connections,
        spec: InboxSpec,
        info: TableInfo,
        dialect: Dialect,
        *,
        group: str | None,
        lease: timedelta,
        cap: int | None,
        steps: ExpirySteps,
        queue: str = "",
    ) -> None:
        self._runner = runner
        self._table = bind(dialect, spec, info)
        self._is_fifo = spec.fifo
        self._lease = lease
        self._precision = self._table.precision
        self._encode_now = dialect.instant
        self._encode_expiry = self._table.get(Role.LOCKED_UNTIL).encode
        self._steps = steps
        self._statements = dialect.lease(self._table, group=group, cap=cap)
        self._claiming = Claiming(self._table, cap=cap, queue=queue)
        self._claims: dict[int, Script[Claim]] = {}
        """By their limits."""
        self._aside = Aside()
        """Heads of FIFO groups that cannot be read."""
        self._settling = Settling(runner, self._table, self._statements, steps=steps)

    holds_together = False

    @property
    def lease(self) -> timedelta:
        """How long a claim holds unrenewed."""
        return self._lease

    async def claim(self, *, limit: int) -> Claim:
        """Take up to `limit` due rows, in claim order; of a FIFO group its head alone.

        Raises:
            DatabaseError: Nothing was claimed, or (OutcomeUnknownError) rows may have been and come
                back at their expiry.
        """
        limit = min(limit, 1) if self._is_fifo else limit
        script = self._claims.get(limit)
        if script is None:
            script = self._claims[limit] = Script(
                "claim", partial(self._claim, limit), self._statements.claim_transaction
            )
        return await self._runner.run(script)

    def _claim(self, limit: int, reading: Reading) -> Steps[Claim]:
        # One reading: is it due, is its lease over, when does ours end.
        end = expiry(reading.now, self._lease, steps=self._steps, precision=self._precision)
        rows = yield from self._statements.claim(
            now=self._encode_now(reading.now),
            expiry=self._encode_expiry(end),
            limit=limit,
            aside=self._aside.at(reading.monotonic),
        )
        if self._is_fifo:
            self._pass_over(rows, reading)
        return self._claiming.read(rows, reading, end)

    def _pass_over(self, rows: Sequence[Row], reading: Reading) -> None:
        """A FIFO head that cannot be read has got no lease, which would keep its group from others: it
        is passed over here, and the group goes on without it."""
        for row in rows:
            if not self._table.is_readable(row):
                self._aside.add(row[0], reading.monotonic + self._lease.total_seconds())

    async def renew(self, holds: Sequence[tuple[Fence, Reading]], *, timeout: float) -> Renewal:
        """Prolong leases in one statement that waits for no row, within `timeout` seconds."""
        if not holds:
            return Renewal(None)
        one = Round(self._table, self._statements, holds, lease=self._lease, steps=self._steps)
        return await one.run(self._runner, timeout)

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write settlements together; on a failure each by itself, in one more transaction."""
        return await self._settling.write(of_settlements(settlements))

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Give rows back unsettled, once; the flag says whether the claim's count is taken back."""
        return await self._settling.write(of_releases(releases))

    async def begin(self, fence: Fence) -> Work:  # noqa: ARG002 - the row is held by its token
        """Begin a transaction on a connection of its own."""
        return LeaseWork(self._runner, await self._runner.begin(), self._settling)

    async def close(self) -> None:
        """Nothing to let go of: between statements this form holds no connection."""
