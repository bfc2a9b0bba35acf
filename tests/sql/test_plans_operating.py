"""What an operator asks of a long queue goes by the recommended indexes, and walks little."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import psycopg
import pytest
from postgres_plans import CACHES, explain, nodes

from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql import dead
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.scope import Scope
from inboxkit._sql.statement import Statement
from inboxkit._sql.stats import count
from inboxkit._sql.table import Table, bind
from inboxkit.database import Database
from inboxkit.errors import DatabaseError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = datetime(2040, 1, 1, tzinfo=UTC)
ROWS = 10_000


async def fill(db: Database, name: str) -> Table:
    """Many rows of another group, many that wait for their time, and few of each other kind."""
    spec = InboxSpec(
        name,
        id=Column("id", generated=True, type=int),
        group=Column("grp"),
        retry_after=Column("due", default=None),
        attempt=Column("tries", generated=True),
        locked_until=Column("lease"),
    )
    dialect = get_dialect(db.dialect)
    for statement in create_table(dialect, spec):
        await db.execute(statement)
    table = bind(dialect, spec, await db.run(dialect.describe(spec)))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) "
    insert = f"INSERT INTO {table.sql} (grp, due, lease) "
    later, now = table.instant(LATER), table.instant(NOW)
    cast = {"postgres": "::timestamptz", "sqlite": "", "mysql": ""}[db.dialect]
    async with db.transaction() as tx:
        if db.dialect == "mysql":
            for setting in ("max_recursive_iterations", "cte_max_recursion_depth"):
                try:
                    await tx.execute(f"SET SESSION {setting} = {ROWS}")
                except DatabaseError:  # the other server's
                    continue
        for number, values in (
            (ROWS, "'other', NULL, NULL"),
            (ROWS, f"'a', $1{cast}, NULL"),
            (5, f"'a', NULL, $1{cast}"),
            (5, "'a', NULL, NULL"),
            (5, "'a.dead', NULL, NULL"),
        ):
            given = (later,) if "$1" in values else ()
            text = f"SELECT {values} FROM n"
            series = numbers.format(number)
            await tx.execute(
                f"{insert}{series}{text}" if db.dialect == "mysql" else f"{series}{insert}{text}",
                *given,
            )
    await db.execute(f"ANALYZE {'TABLE ' if db.dialect == 'mysql' else ''}{table.sql}")
    assert now
    return table


def questions(table: Table) -> Iterator[Statement]:
    own, letters = Scope(group="a"), Scope(group="a.dead")
    yield count((table, own), (table, letters), now=table.instant(NOW))
    yield dead.select(table, letters, limit=50)
    yield dead.find(table, letters, limit=500, after=7)
    yield dead.lock(table, letters, [1, 2, 3], now=table.instant(NOW))


def test_postgres(postgres_url: str, table: str) -> None:
    async def main() -> None:
        async with Database(postgres_url) as db:
            bound = await fill(db, table)
            for question in questions(bound):
                for cache in CACHES:
                    assert bound.dialect.by_indexes is not None
                    with psycopg.connect(postgres_url, autocommit=True) as session:
                        plan = explain(session, question, cache, bound.dialect.by_indexes)
                    walked = sum(
                        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                        * node["Actual Loops"]
                        for node in nodes(plan)
                        if "Scan" in node["Node Type"] and "Relation Name" in node
                    )
                    # The rows that wait are counted; nothing else is many.
                    most = ROWS + 100 if question.name == "stats" else 100
                    met = [
                        (node["Node Type"], node.get("Index Name"), node["Actual Rows"])
                        for node in nodes(plan)
                    ]
                    assert walked <= most, (question.name, cache, met)

    anyio.run(main)


def test_sqlite(tmp_path: Any, table: str) -> None:
    async def main() -> None:
        async with Database(f"sqlite:///{tmp_path / 'inbox.db'}") as db:
            bound = await fill(db, table)
            for question in questions(bound):
                rows = await db.fetch(f"EXPLAIN QUERY PLAN {question.text}", *question.parameters)
                plan = [str(row[3]) for row in rows]
                # What is read once more is a list that was made before.
                assert plan.count("SCAN q") == plan.count("CO-ROUTINE q"), plan
                if question.name == "dead list":
                    assert any("USING" in one and "grp=?" in one for one in plan), plan

    anyio.run(main)


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_mysql(server: str, table: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"shared_{server}_url")

    async def main() -> None:
        async with Database(url) as db:
            bound = await fill(db, table)
            for question in questions(bound):
                async with db.transaction() as tx:
                    before = await handled(tx)
                    await tx.fetch(question.text, *question.parameters)
                    walked = await handled(tx) - before
                # Each count reads its derived table once more.
                most = 3 * ROWS + 300 if question.name == "stats" else 300
                assert walked <= most, (question.name, walked)

    anyio.run(main)


async def handled(tx: Any) -> int:
    """Rows that the session has read so far."""
    rows = await tx.fetch("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(row[1]) for row in rows)
