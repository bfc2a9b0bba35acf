"""How much the statements of PostgreSQL read of large tables, also by plans that know no values.

A session runs a statement by such a plan from its sixth execution on, where it takes it to be no dearer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import psycopg
import pytest
from postgres_plans import CACHES, blocks, explain, nodes

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.rounds import Turn
from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql import dead
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.lease import RELEASE, Held, Write
from inboxkit._sql.postgres.every_group import STEPS
from inboxkit._sql.scope import Scope
from inboxkit._sql.statement import Answer, Statement, Steps
from inboxkit._sql.stats import MOST, count
from inboxkit._sql.table import Table, bind
from inboxkit.database import Database

ROWS = 100_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)
FAR = "timestamptz '2040-01-01'"
SHAPES = {
    "one group": [f"{ROWS}: 'a', NULL"],
    "its head in work": [f"1: 'a', {FAR}", f"{ROWS}: 'a', NULL"],
    "many groups": [
        f"{ROWS // 10}: 'g' || n % 1000, {FAR}",
        f"{ROWS // 2}: 'a', NULL",
        f"{ROWS // 2}: 'g' || n % 1000, NULL",
    ],
}
WRITES = [
    Write(Verb.FINISH),
    Write(Verb.GIVE_BACK),
    Write(Verb.POSTPONE),
    Write(Verb.MOVE, Destination(group="a.dead")),
]
BOUNDS = {"claim look": 20 * STEPS, "stats": MOST // 2, "every group": 250}
"""Blocks; of other statements, which are about ten rows at most, 150. Stats count so many rows."""


def described(form: str, table: str, *, due: bool, fifo: bool) -> InboxSpec:
    return InboxSpec(
        table,
        id=Column("id", generated=True, type=int),
        group=Column("grp"),
        fifo=fifo,
        retry_after=Column("due", default=None) if due else None,
        attempt=Column("tries", generated=True),
        locked_until=Column("lease") if form == "lease" else None,
        advisory_lock="jobs-{id}" if form == "advisory lock" else None,
    )


def drive(steps: Steps[Any], table: Table) -> Iterator[Statement]:
    answer = Answer(rows=[(1,) * len(table.columns)])
    try:
        statement = next(steps)
        while True:
            yield statement
            statement = steps.send(answer)
    except StopIteration:
        return


def of_lease(table: Table, group: str) -> Iterator[Statement]:
    lease, now = table.dialect.lease(table, group=group, cap=3), NOW
    yield from drive(lease.claim(now=now, expiry=now, limit=10), table)
    rows = [Held(n, (now,), 2, now) for n in range(1, 11)]
    yield from drive(lease.renew(rows, now=now), table)
    yield lease.still_held(rows, now=now)
    for write in [*WRITES, Write(Verb.HOLD), RELEASE]:
        if write.verb is not Verb.POSTPONE or table.spec.retry_after is not None:
            held = [Held(n, (now,), 2, 1 if write == RELEASE else now) for n in range(1, 11)]
            yield from drive(lease.write(write, held, now=now), table)
    yield lease.unfinished(list(range(1, 11)))


def of_row_lock(table: Table, group: str) -> Iterator[Statement]:
    made = table.dialect.row_lock(table, group=group)
    for limit in (1, 10):
        yield from drive(made.claim(now=NOW, limit=limit, aside=()), table)
    for write in WRITES:
        if write.verb is not Verb.POSTPONE or table.spec.retry_after is not None:
            yield from drive(made.write(write, 5, value=NOW, now=NOW), table)


def of_advisory(table: Table, group: str) -> Iterator[Statement]:
    made = table.dialect.advisory(table, group=group, cap=3)
    assert made.kept_by == "session"
    for aside in ((), (1, 2)):
        yield made.lock(now=NOW, limit=10, aside=aside)
    yield made.nobodys([1, 2, 3])
    yield from drive(made.take(5, "jobs-5", now=NOW), table)
    for write in [*WRITES, RELEASE]:
        if write.verb not in (Verb.GIVE_BACK, Verb.POSTPONE):
            yield from drive(made.write(write, Held(5, (), 2, 1), now=NOW), table)


def of_every_group(table: Table) -> Iterator[Statement]:
    every = get_every_group(table, cap=3, others=Others(("x", "y"), GroupShape("", ".dead")))
    groups = ["a", *(f"g{n}" for n in range(100, 120))]
    yield every.look(Look(None, (), 18), now=NOW)
    yield every.look(Look("a", groups[1:5], 18), now=NOW)
    turns = [Turn(group, is_again=False) for group in groups[:10]]
    for most in (1, 4) if table.spec.locked_until is not None else ():
        steps = every.take(turns, now=NOW, expiry=NOW, limit=10, most=most)
        taken = next(steps)
        yield Statement("every group", taken.text, taken.parameters)


def of_operators(table: Table) -> Iterator[Statement]:
    own, letters = Scope(group="a"), Scope(group="a.dead")
    yield count((table, own), (table, letters), now=NOW)
    yield dead.select(table, letters, limit=50)
    yield dead.find(table, letters, limit=500, after=7)
    yield dead.lock(table, letters, [1, 2, 3], now=NOW)


def read(connection: psycopg.Connection[Any], table: Table) -> Iterator[tuple[str, str, int, Any]]:
    """Name, setting, blocks and plan of each statement of a table's form."""
    forms = {"lease": of_lease, "row lock": of_row_lock, "advisory lock": of_advisory}
    made = [one for group in ("a", "nobody's") for one in forms[table.spec.form](table, group)]
    if table.spec.form != "advisory lock":
        made += of_every_group(table)
    assert table.dialect.by_indexes is not None
    asked = [(one, [table.dialect.by_indexes]) for one in of_operators(table)]
    for statement, first in [*((one, []) for one in made), *asked]:
        for cache in CACHES:
            plan = explain(connection, statement, cache, *first)
            yield statement.name, cache, blocks(plan), plan


@pytest.mark.parametrize("due", [False, True], ids=["by id", "by due time"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_statement_reads_more_where_a_queue_is_long(
    postgres_url: str, due: bool, shape: str
) -> None:
    """One table of all rows in the claim order serves every form but the lease without FIFO."""

    async def main() -> None:
        async with Database(postgres_url) as db:
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                for name, served in SERVED.items():
                    await fill(db, described("lease", name, due=due, fifo=name == "heads"), shape)
                    for form, fifo in served:
                        spec = described(form, name, due=due, fifo=fifo)
                        info = await db.run(get_dialect("postgres").describe(spec))
                        for found in read(connection, bind(get_dialect("postgres"), spec, info)):
                            check(form, fifo, *found)

    anyio.run(main)


SERVED = {
    "heads": [
        ("lease", True),
        ("row lock", False),
        ("row lock", True),
        ("advisory lock", False),
    ],
    "waiting": [("lease", False)],
}
"""By tables: forms, and whether they are FIFO."""


async def fill(db: Database, spec: InboxSpec, shape: str) -> None:
    for statement in create_table(get_dialect("postgres"), spec):
        await db.execute(statement)
    for line in SHAPES[shape]:
        number, values = line.split(":", 1)
        await db.execute(
            f"INSERT INTO {spec.table} (grp, lease) SELECT {values} FROM generate_series(1, {number}) AS n"
        )
    await db.execute(f"ANALYZE {spec.table}")


def check(form: str, fifo: bool, name: str, cache: str, number: int, plan: Any) -> None:
    shown = (form, "FIFO" if fifo else "", name, cache, number, plan)
    assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}, shown
    assert number <= BOUNDS.get(name, 150), shown
