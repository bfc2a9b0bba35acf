"""What one claim takes, before tables that are large, or hard to see through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Final

from inboxkit import Database
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Others
from inboxkit.abc import Claim, ClaimForm, DialectName

from .measuring import Sample, run_in
from .places import Place, remake
from .postgres_sessions import connect_postgres
from .raw_postgres import CLAIM
from .tables import NAME, RAW, LeaseRow, ddl, raw_ddl

__all__ = ["SHAPES", "Claims", "Shape", "raw_claims"]

_FAR: Final[dict[DialectName, str]] = {
    "postgres": "timestamptz '2100-01-01 00:00:00+00'",
    "sqlite": "'2100-01-01T00:00:00.000000+00:00'",
    "mysql": "timestamp '2100-01-01 00:00:00'",
}
_JOINED: Final[dict[DialectName, str]] = {
    "postgres": "'g' || (id % {groups})",
    "sqlite": "'g' || (id % {groups})",
    "mysql": "concat('g', id % {groups})",
}
_SETTLED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Shape:
    """A table, and how it is claimed from.

    Args:
        rows: Rows that are there; those with the smaller ids come first in the claim order.
        later: So many of the first are not due.
        leased: So many of the first are in work; of groups, this many heads.
        finished: So many more were handed out and settled before.
        groups: FIFO groups that the rows are dealt to; 0: no FIFO.
        every_group: Claims are for all groups.
        limit: Most rows of a claim.
    """

    rows: int
    later: int = 0
    leased: int = 0
    finished: int = 0
    groups: int = 0
    every_group: bool = False
    limit: int = 10

    def shrunk(self, by: int) -> Shape:
        """The same shape, smaller."""
        return replace(
            self,
            rows=max(self.rows // by, 100),
            later=self.later // by,
            leased=self.leased // by if self.leased > 1 else self.leased,
            finished=self.finished // by,
            groups=max(self.groups // by, 1) if self.groups else 0,
        )


SHAPES: Final = {
    "1 k rows": Shape(1_000),
    "100 k rows": Shape(100_000),
    "1 M rows": Shape(1_000_000),
    "100 k not yet due ahead": Shape(120_000, later=100_000),
    "20 k leased ahead": Shape(40_000, leased=20_000),
    "200 k finished before": Shape(20_000, finished=200_000),
    "FIFO, 1 group of 100 k, head free": Shape(100_000, groups=1, limit=1),
    "FIFO, 1 group of 100 k, head leased": Shape(100_000, groups=1, limit=1, leased=1),
    "every group, 10 k FIFO groups, heads free": Shape(100_000, groups=10_000, every_group=True),
    "every group, 10 k FIFO groups, all leased but one": Shape(
        100_000, groups=10_000, every_group=True, leased=9_999
    ),
}
"""By what reports call them."""


class Claims:
    """Claims from one table, which is made once and is as it was after each round.

    Args:
        table: Its name.
        shape: What is in it.
        backend: ``"asyncio"`` or ``"trio"``.
        claims: How many are timed in a round.
    """

    def __init__(self, table: str, shape: Shape, backend: str, *, claims: int) -> None:
        self._shape = shape
        self._backend = backend
        self._claims = claims
        self._spec = replace(LeaseRow.spec, table=table, fifo=shape.groups > 0)
        if shape.groups:  # in the order of ids alone
            self._spec = replace(self._spec, retry_after=None)
        self._is_made = False

    def measure(self, place: Place) -> Sample:
        """One round."""
        sample: Sample = {}

        async def main() -> None:
            async with Database(place.url) as database:
                if not self._is_made:
                    await self._make(place, database)
                    self._is_made = True
                sample.update(await self._time(await self._open(database)))

        with place.measuring():
            run_in(self._backend, main)
            flushed = dict(sample)
            with place.unflushed() as is_other:
                if is_other:
                    run_in(self._backend, main)
                    flushed["unflushed ms"] = sample["ms"]
        return flushed

    async def _open(self, database: Database) -> ClaimForm:
        group = "g0" if self._shape.groups else NAME
        return open_form(
            database,
            self._spec,
            await database.describe(self._spec),
            get_dialect(database.dialect),
            group=None if self._shape.every_group else group,
            lease=timedelta(minutes=10),
            cap=None,
            steps=ExpirySteps(0),
            others=Others() if self._shape.every_group else None,
        )

    async def _make(self, place: Place, database: Database) -> None:
        shape, table = self._shape, self._spec.table
        remake(place, table, ddl(place.dialect, self._spec), shape.finished + shape.rows)
        if place.dialect == "postgres":  # what vacuum would clear away between rounds counts
            place.script(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        far = _FAR[place.dialect]
        if shape.groups:
            dealt = _JOINED[place.dialect].format(groups=shape.groups)
            place.script(f"UPDATE {table} SET name = {dealt}")
        if shape.later:
            place.script(f"UPDATE {table} SET retry_after = {far} WHERE id <= {shape.later}")
        if shape.leased:
            place.script(f"UPDATE {table} SET locked_until = {far} WHERE id <= {shape.leased}")
        place.tidy(table)
        if shape.finished:
            await self._finish(await self._open(database), shape.finished)

    async def _finish(self, form: ClaimForm, count: int) -> None:
        while count > 0:
            claim = await form.claim(limit=min(count, _SETTLED_AT_ONCE))
            await form.settle([(row.fence, Settlement(Verb.FINISH)) for row in claim.rows])
            count -= len(claim.rows)

    async def _time(self, form: ClaimForm) -> Sample:
        shape = self._shape
        is_kept = shape.groups != 1 and not (shape.groups and shape.leased)
        kept: list[Claim] = []
        seconds: list[float] = []
        found = 0
        await self._give_back(form, [await form.claim(limit=self._shape.limit)])
        for _ in range(self._claims):
            start = time.perf_counter()
            claim = await form.claim(limit=self._shape.limit)
            seconds.append(time.perf_counter() - start)
            found += len(claim.rows)
            if is_kept:
                kept.append(claim)
            else:  # the one head that is free must be so again
                await self._give_back(form, [claim])
        await self._give_back(form, kept)
        return {"ms": median(seconds) * 1e3, "rows": found / self._claims}

    async def _give_back(self, form: ClaimForm, claims: Sequence[Claim]) -> None:
        rows = [(row.fence, row.counted) for claim in claims for row in claim.rows]
        if rows:
            await form.release(rows)


def raw_claims(place: Place, backend: str, *, claims: int) -> Sample:
    """A claim by hand of ten rows of a thousand on PostgreSQL: what a round trip and a commit take."""
    sample: Sample = {}

    async def main() -> None:
        session = await connect_postgres(place.url, backend)
        seconds: list[float] = []
        for _ in range(claims):
            start = time.perf_counter()
            await session.rows(CLAIM, 10)
            seconds.append(time.perf_counter() - start)
        sample["ms"] = median(seconds) * 1e3
        await session.close()

    remake(place, RAW, raw_ddl(place.dialect), 1000)
    run_in(backend, main)
    return sample
