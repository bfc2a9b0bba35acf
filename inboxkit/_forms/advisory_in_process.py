"""The advisory lock form on SQLite: this process holds the keys, and no connection."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from inboxkit._core.key_ring import Grip, KeyRing
from inboxkit._core.lease import add
from inboxkit._core.settlement import Settlement
from inboxkit._sql.advisory import ProcessKeys
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table
from inboxkit.abc import Claim, Claimed, Fence, Renewal, Settled, Work

from .advisory_endings import Endings, ending_script
from .aside import Aside
from .claiming import Claiming
from .runner import Connections
from .settling import Ending, of_releases, of_settlements
from .working import KeyWork, session_ended

__all__ = ["Keys", "ProcessAdvisoryForm"]

_ASIDE: Final = timedelta(seconds=30)
"""How long a row that cannot be read is passed over in this process."""


class Keys(Protocol):
    """The right of one form to use the keys of its database."""

    @property
    def ring(self) -> KeyRing:
        """The keys in work in this process."""
        ...

    def close(self) -> None:
        """Give the right up; another process may have it once no form of this one does."""
        ...


class ProcessAdvisoryForm:
    """Claims rows of one queue, each under a key of the process; see `open_form`."""

    lease: timedelta | None = None
    holds_together = False

    def __init__(
        self,
        runner: Connections,
        table: Table,
        statements: ProcessKeys,
        keys: Keys,
        *,
        cap: int | None,
        queue: str = "",
    ) -> None:
        self._runner = runner
        self._table = table
        self._statements = statements
        self._keys = keys
        self._claiming = Claiming(table, cap=cap, queue=queue)
        self._held: dict[int, str] = {}
        """The keys of rows in work, by the numbers that stand for sessions elsewhere."""
        self._numbers = itertools.count(1)
        self._aside = Aside()
        self._endings = Endings(table, statements, self._aside)

    async def claim(self, *, limit: int) -> Claim:
        """Take up to `limit` due rows, in claim order, of keys that are free, one of each key.

        Raises:
            DatabaseError: Nothing is held; rows may have been counted.

        Cancellation:
            Nothing is held.
        """
        with Grip(self._keys.ring) as grip:
            script = Script("claim", partial(self._steps, grip, limit), "write")
            claim, keys = await self._runner.run(script)
        self._held.update(keys)
        return claim

    def _steps(
        self, grip: Grip, limit: int, reading: Reading
    ) -> Steps[tuple[Claim, dict[int, str]]]:
        """Under the write lock, so that nobody else takes keys meanwhile."""
        now = self._table.instant(reading.now)
        claimed: list[Claimed] = []
        keys: dict[int, str] = {}
        ids: list[Any] = []
        undecodable = 0
        while (wanted := limit - len(claimed)) > 0:
            answer = yield self._statements.candidates(
                now=now,
                limit=wanted,
                keys=self._keys.ring.keys,
                ids=self._aside.at(reading.monotonic),
            )
            for *row, key in answer.rows:
                number = next(self._numbers)
                until = add(reading.now, _ASIDE)
                read = self._claiming.read([tuple(row)], reading, until, hold=number).rows
                if not read:
                    self._aside.add(row[0], reading.monotonic + _ASIDE.total_seconds())
                    undecodable += 1
                elif grip.take(key):
                    claimed += read
                    keys[number] = key
                    ids.append(row[0])
            if len(answer.rows) < wanted:
                break
        count = self._statements.count(ids) if ids else None
        if count is not None:
            yield count
        return Claim(tuple(claimed), reading, undecodable), keys

    async def renew(
        self,
        holds: Sequence[tuple[Fence, Reading]],
        *,
        timeout: float,  # noqa: ARG002 - nothing is sent
    ) -> Renewal:
        """Tell the rows that are held no more: those of a form that was closed."""
        return Renewal(
            None, lost=frozenset(fence.id for fence, _ in holds if fence.hold not in self._held)
        )

    async def settle(self, settlements: Sequence[tuple[Fence, Settlement]]) -> list[Settled]:
        """Write each row, then let its key go, whatever became of the write."""
        return [await self._end(ending) for ending in of_settlements(settlements)]

    async def release(self, releases: Sequence[tuple[Fence, bool]]) -> list[Settled]:
        """Let the keys go; the flag says whether the claim's count is taken back before."""
        return [await self._end(ending) for ending in of_releases(releases)]

    async def begin(self, fence: Fence) -> Work:
        """Begin a transaction on a connection of its own; it ends before the key is let go."""
        if fence.hold not in self._held:
            raise session_ended(fence)
        connection = await self._runner.begin()

        async def let_go() -> None:
            self._keys.ring.drop(self._held.pop(fence.hold or 0))

        return KeyWork(
            connection,
            partial(ending_script, self._table, self._statements),
            finish=let_go,
            leave=partial(self._runner.release, connection),
        )

    async def close(self) -> None:
        """Let go of the keys of rows still in work: they are back at once, and counted."""
        held, self._held = list(self._held.values()), {}
        for key in held:
            self._keys.ring.drop(key)
        self._keys.close()

    async def _end(self, ending: Ending) -> Settled:
        key = self._held.pop(ending.fence.hold or 0, None)
        if key is None:
            return Settled("lost")
        try:
            return await self._endings.write(ending, self._runner.run)
        finally:
            self._keys.ring.drop(key)
