"""What partitioning a queue's table by group does to its claims, on PostgreSQL.

    python docs/benchmarks/partitions.py postgresql://postgres@127.0.0.1/postgres

Two tables with the same rows, one partitioned by LIST over the group: claims and settlements of ten rows
through the lease form, on one connection, in turns. It prints how many claims a second each table gave, the
CPU that the server's process took for one (where it runs on this machine), the pages that a claim touched,
and the claim's plan.

A partitioned table of PostgreSQL has no unique index that leaves its partition key out, so a service refuses
it at the start ("no unique index of its own"). This goes round that check; the ids come from one sequence.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from inboxkit import Database, InboxSpec
from inboxkit._sql.postgres.claim import claim_text
from inboxkit._sql.table import bind
from inboxkit.errors import SchemaError
from inboxkit_testing.conformance import FINISH, DatabaseBench, ManualClock

ROWS_A_CLAIM = 10


class _Undone(Exception):  # noqa: N818 - a signal
    """Rolls a transaction back."""


class Measured(DatabaseBench):
    """A table whose id may have no unique index of its own."""

    refused = ""

    def __init__(self, database: Database, table: str, groups: list[str], *, parts: bool) -> None:
        super().__init__(database, "lease", table)
        self._groups = groups
        self._parts = parts

    def ddl(self, spec: InboxSpec, *, nullable: bool) -> list[str]:
        key = "grp, id" if self._parts else "id"
        made = (
            f"CREATE TABLE {self.name} (id bigint NOT NULL DEFAULT nextval('partition_ids'), "
            "grp text NOT NULL, prio int NOT NULL, due timestamptz, tries int NOT NULL DEFAULT 1, "
            f"lease timestamptz, body bytea NOT NULL, PRIMARY KEY ({key}))"
        )
        parts = [
            f"CREATE TABLE {self.table}_{group} PARTITION OF {self.name} FOR VALUES IN ('{group}')"
            for group in self._groups
        ]
        indexes = self.dialect.create_table(spec)[1:]
        if not self._parts:
            return [made, *indexes]
        # The primary key begins with the group; writes by id alone need an index too.
        by_id = f"CREATE INDEX ON {self.name} (id)"
        return [f"{made} PARTITION BY LIST (grp)", *parts, *indexes, by_id]

    async def look(self) -> None:
        try:
            await super().look()
        except SchemaError as error:
            self.refused = str(error)
            self._bound = bind(self.dialect, self.spec, self.info)
            self._columns = {column.name: column for column in self._bound.columns}

    async def fill(self, rows: int) -> None:
        """The same rows for every table."""
        await self.db.execute(
            f"INSERT INTO {self.name} (grp, prio, due, body) SELECT 'g' || n % {len(self._groups)}, 0, "
            f"'2029-12-31'::timestamptz + n * interval '1 millisecond', repeat('x', 200)::bytea "
            f"FROM generate_series(1, {rows}) n"
        )
        await self.db.execute(f"VACUUM ANALYZE {self.name}")

    async def work(self, claims: int) -> None:
        """Claim and settle, group after group."""
        for n in range(claims):
            form = self.form(self._groups[n % len(self._groups)])
            claim = await form.claim(limit=ROWS_A_CLAIM)
            assert len(claim.rows) == ROWS_A_CLAIM
            settled = await form.settle([(row.fence, FINISH) for row in claim.rows])
            assert all(one.result == "written" for one in settled)

    async def plan(self) -> tuple[list[str], int]:
        """The claim's plan as it was run (the statement is rolled back), and the pages it touched."""
        text = claim_text(self._bound, threshold=1_000, limit=ROWS_A_CLAIM)
        given = (self.now, self.now + timedelta(seconds=30), self._groups[0])
        found: list[Any] = []
        for form in (
            "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF",
            "ANALYZE, BUFFERS, FORMAT JSON",
        ):
            with suppress(_Undone):
                async with self.db.transaction() as tx:
                    found.append(await tx.fetch(f"EXPLAIN ({form}) {text}", *given))
                    raise _Undone
        lines = [row[0] for row in found[0]]
        whole = found[1][0][0]
        root = (json.loads(whole) if isinstance(whole, str) else whole)[0]["Plan"]
        return lines, root["Shared Hit Blocks"] + root["Shared Read Blocks"]


def cpu_seconds(pid: int) -> float:
    """What a process of this machine has used; 0 where it is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(url: str, *, groups: int, rows: int, claims: int, rounds: int) -> None:
    """Fill both tables, work on them in turns, and print."""
    names = [f"g{n}" for n in range(groups)]
    async with Database(url, pool_size=1, clock=ManualClock()) as db:
        print(await db.fetch_value("SELECT version()"))
        pid = await db.fetch_value("SELECT pg_backend_pid()")
        await db.execute("DROP SEQUENCE IF EXISTS partition_ids CASCADE")
        await db.execute("CREATE SEQUENCE partition_ids")
        plain = Measured(db, "jobs_plain", names, parts=False)
        parted = Measured(db, "jobs_parted", names, parts=True)
        async with plain, parted:
            for bench in (plain, parted):
                await bench.create()
                await bench.fill(rows)
            print(f"start-up check of the partitioned table: {parted.refused or 'accepted'}\n")
            figures: dict[str, list[tuple[float, float]]] = {plain.table: [], parted.table: []}
            for turn in range(rounds):
                for bench in (plain, parted) if turn % 2 else (parted, plain):
                    cpu, wall = cpu_seconds(pid), time.perf_counter()
                    await bench.work(claims)
                    figures[bench.table].append(
                        (claims / (time.perf_counter() - wall), (cpu_seconds(pid) - cpu) / claims)
                    )
            for bench in (plain, parted):
                rates = [rate for rate, _ in figures[bench.table]]
                cpus = [cpu * 1e3 for _, cpu in figures[bench.table]]
                lines, pages = await bench.plan()
                print(
                    f"{bench.table}: {statistics.median(rates):.0f} claims/s "
                    f"({min(rates):.0f}-{max(rates):.0f}), server CPU {statistics.median(cpus):.2f} ms "
                    f"a claim with its settlement ({min(cpus):.2f}-{max(cpus):.2f}), "
                    f"{pages} pages touched"
                )
                print("\n".join(f"    {line}" for line in lines), end="\n\n")
            pairs = zip(figures[plain.table], figures[parted.table], strict=True)
            ratios = [parts[1] / whole[1] for whole, parts in pairs if whole[1]]
            if ratios:
                print(
                    f"CPU, partitioned to plain, in each round: {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f}-{max(ratios):.2f})"
                )
        await db.execute("DROP SEQUENCE partition_ids CASCADE")


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--claims", type=int, default=1_000, help="in each turn")
    parser.add_argument("--rounds", type=int, default=7)
    given = vars(parser.parse_args())
    url = given.pop("url")
    anyio.run(lambda: measure(url, **given))


if __name__ == "__main__":
    main()
