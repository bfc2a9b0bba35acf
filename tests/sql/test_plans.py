"""Claims, renewals and settlements use the recommended indexes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from postgres_plans import CACHES, explain, nodes

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.rounds import Turn
from inboxkit._core.settlement import Verb
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.lease import RELEASE, Held, Write
from inboxkit._sql.postgres.every_group import STEPS
from inboxkit._sql.statement import Answer, Reading, Script, Statement, Steps
from inboxkit._sql.table import bind
from inboxkit.database import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]


def spec(table: str, **roles: Any) -> InboxSpec:
    given = {
        "id": Column("id", generated=True, type=int),
        "group": Column("grp"),
        "attempt": Column("tries", generated=True),
        "locked_until": Column("lease"),
    }
    return InboxSpec(table, **{**given, **roles})


async def fill(db: Database, described: InboxSpec, *rows: str, analyze: bool = True) -> Any:
    """Make the recommended table with rows; each of `rows` is count, due and lease in SQL."""
    dialect = get_dialect(db.dialect)
    for statement in create_table(dialect, described):
        await db.execute(statement)
    name = dialect.table(described.table, None)
    columns = "grp, lease" + (", due" if described.retry_after else "")
    for row in rows:
        count, values = row.split(":", 1)
        if db.dialect == "mysql":
            lines = ", ".join([f"({values})"] * int(count))
            await db.execute(f"INSERT INTO {name} ({columns}) VALUES {lines}")
            continue
        series = (
            f"generate_series(1, {count})"
            if db.dialect == "postgres"
            else f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
            "SELECT i FROM n)"
        )
        await db.execute(f"INSERT INTO {name} ({columns}) SELECT {values} FROM {series}")
    if analyze:
        await db.execute(f"ANALYZE {'TABLE ' if db.dialect == 'mysql' else ''}{name}")
    info = await db.run(dialect.describe(described))
    return bind(dialect, described, info)


def drive(steps: Steps[Any], rows: int, width: int) -> Iterator[Statement]:
    answer = Answer(rows=[(n,) * width for n in range(1, rows + 1)])
    try:
        statement = next(steps)
        while True:
            yield statement
            statement = steps.send(answer)
    except StopIteration:
        return


def statements(table: Any) -> Iterator[Statement]:
    lease = table.dialect.lease(table, group="a", cap=3)
    now = table.instant(NOW)
    yield from drive(lease.claim(now=now, expiry=now, limit=10), 10, len(table.columns))
    rows = [Held(n, (now,), 2, now) for n in range(1, 11)]
    yield from drive(lease.renew(rows, now=now), 10, 1)
    yield lease.still_held(rows, now=now)
    for write in (Write(Verb.FINISH), Write(Verb.GIVE_BACK), Write(Verb.HOLD)):
        yield from drive(lease.write(write, rows, now=now), 10, 1)
    released = [Held(n, (now,), 2, 1) for n in range(1, 11)]
    yield from drive(lease.write(RELEASE, released, now=now), 10, 1)
    yield lease.unfinished(list(range(1, 11)))


def explained(statement: Statement, option: str) -> Script[list[Any]]:
    def steps(_reading: Reading) -> Steps[list[Any]]:
        answer = yield Statement("explain", f"{option} {statement.text}", statement.parameters)
        return list(answer.rows)

    return Script("explain", steps, "none")


@pytest.fixture
def session(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres(postgres_url: str) -> WithDatabase:
    def run(test: Callable[[Database], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Database(postgres_url) as db:
                return await test(db)

        return anyio.run(main)

    return run


@pytest.mark.parametrize("fifo", [False, True])
def test_postgres_scans_and_sorts_no_table(
    postgres: WithDatabase, session: psycopg.Connection[Any], table: str, fifo: bool
) -> None:
    async def test(db: Database) -> None:
        described = spec(table, fifo=fifo, retry_after=Column("due", default=None))
        rows = ["20000:'a', NULL, now()", "500:'a', NULL, NULL", "5000:'b', NULL, now()"]
        bound = await fill(db, described, *rows, "50:'a', now() + interval '10 years', now()")
        for statement in statements(bound):
            if statement.name == "claim guard":
                continue
            for cache in CACHES:
                plan = explain(session, statement, cache)
                scans = {node["Node Type"] for node in nodes(plan)}
                assert "Seq Scan" not in scans, (statement.name, cache, plan)
                sorted_rows = [n["Actual Rows"] for n in nodes(plan) if n["Node Type"] == "Sort"]
                assert max(sorted_rows, default=0) < 100, (statement.name, cache, plan)

    postgres(test)


@pytest.mark.parametrize(
    "ahead",
    [
        "20000:'a', now() + interval '10 years', NULL",
        "20000:'a', NULL, now() + interval '10 years'",
        "20000:'a', NULL, NULL",
        "20000:'a', NULL, now() - interval '1 day'",
    ],
    ids=["leased", "not due", "due by NULL", "due"],
)
def test_postgres_claim_walks_no_rows_that_are_not_its_own(
    postgres: WithDatabase, table: str, ahead: str
) -> None:
    """Neither where enough rows wait behind them nor where none does."""

    async def test(db: Database) -> None:
        described = spec(table, retry_after=Column("due", default=None))
        rows = [ahead, "20:'a', NULL, NULL"]
        bound = await fill(db, described, *rows)
        claim = next(iter(statements(bound)))
        for _round in range(4):
            async with db.transaction() as tx:
                answer = await tx.fetch_value(
                    f"EXPLAIN (ANALYZE, FORMAT JSON) {claim.text}", *claim.parameters
                )
            plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
            walked = sum(
                node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                for node in nodes(plan)
                if "Scan" in node["Node Type"] and "Relation Name" in node
            )
            assert walked < 200, plan

    postgres(test)


@pytest.mark.parametrize("done", [None, Column("done")], ids=["deleted", "kept"])
@pytest.mark.parametrize("fifo", [False, True])
def test_mysql_scans_no_table_and_sorts_few_rows(
    mysql_url: str, table: str, fifo: bool, done: Column | None
) -> None:
    """Locking reads would lock what they scan."""

    async def main() -> None:
        async with Database(mysql_url) as db:
            described = spec(
                table, fifo=fifo, retry_after=Column("due", default=None), processed_at=done
            )
            past, future = "'2020-01-01'", "'2040-01-01'"
            rows = [f"5000:'a', NULL, {past}", "100:'a', NULL, NULL", f"2000:'b', NULL, {past}"]
            bound = await fill(db, described, *rows, f"500:'a', {future}, {past}")
            for statement in statements(bound):
                plan = await db.fetch(
                    f"EXPLAIN FORMAT=TRADITIONAL {statement.text}", *statement.parameters
                )
                reads = [line for line in plan if line.table and not line.table.startswith("<")]
                for line in reads:
                    assert line.type in ("const", "eq_ref", "ref", "range"), (statement, plan)
                    is_sorted = "filesort" in (line.Extra or "")
                    assert not is_sorted or int(line.rows) < 50, (statement, plan)
                assert reads or statement.name == "claim due", statement

    anyio.run(main)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("analyze", [True, False])
def test_sqlite_scans_no_table(tmp_path: Path, fifo: bool, kind: type, analyze: bool) -> None:
    async def main() -> None:
        async with Database(f"sqlite:///{tmp_path / 'q.db'}") as db:
            described = spec(
                "jobs",
                fifo=fifo,
                id=Column("id", generated=kind is int, type=kind),
                retry_after=Column("due", default=None),
            )
            later = get_dialect("sqlite").instant(NOW + timedelta(days=1))
            rows = ["500:'a', NULL, NULL", f"500:'b', '{later}', NULL"] if kind is int else []
            bound = await fill(db, described, *rows, analyze=analyze)
            for statement in statements(bound):
                lines = await db.run(explained(statement, "EXPLAIN QUERY PLAN"))
                details = [line[3] for line in lines]
                scans = [
                    one for one in details if one.startswith(("SCAN q", "SCAN w", "SCAN jobs"))
                ]
                # The outer select over a claim's parts scans their few rows.
                assert scans == ["SCAN q"] * (len(scans) if statement.name == "claim due" else 0)
                assert len(scans) <= 1, details

    anyio.run(main)


def every_group_statements(table: Any, groups: list[str]) -> Iterator[Statement]:
    every = get_every_group(table, cap=3, others=Others(("x", "y"), GroupShape("", ".dead")))
    now = table.instant(NOW)
    yield every.look(Look(None, (), 18), now=now)
    yield every.look(Look(groups[0], groups[1:5], 18), now=now)
    turns = [Turn(group, is_again=False) for group in groups[:10]]
    for most in (1, 4):
        steps = every.take(turns, now=now, expiry=now, limit=10, most=most)
        statement = next(steps)
        yield statement
        if table.dialect.name == "sqlite":
            row = tuple(1 if column is table.id else None for column in table.columns)
            for _ in turns:
                statement = steps.send(Answer(rows=[row]))
            yield statement


@pytest.mark.parametrize(
    ("fifo", "due", "case"),
    [
        (False, True, "free"),
        (False, True, "leased"),
        (False, False, "not analysed"),
        (True, True, "free"),
        (True, False, "leased"),
        (True, True, "not analysed"),
    ],
)
def test_postgres_walks_no_more_groups_than_it_looks_at(
    postgres: WithDatabase,
    session: psycopg.Connection[Any],
    table: str,
    fifo: bool,
    due: bool,
    case: str,
) -> None:
    async def test(db: Database) -> None:
        described = spec(
            table, fifo=fifo, **({"retry_after": Column("due", default=None)} if due else {})
        )
        end = ", NULL" if due else ""
        name = "'g' || generate_series % 1000"
        lease = "now() + interval '10 years'" if case == "leased" else "NULL"
        rows = [f"1000:{name}, {lease}{end}", f"20000:{name}, NULL{end}"]
        rows.append(f"1:'one', NULL{end}")
        bound = await fill(db, described, *rows, analyze=case != "not analysed")
        groups = [f"g{n}" for n in range(100, 120)]
        for statement in every_group_statements(bound, groups):
            for cache in CACHES:
                plan = explain(session, statement, cache)
                found_nodes = [node for node in nodes(plan) if "Relation Name" in node]
                scans = {node["Node Type"] for node in found_nodes}
                assert "Seq Scan" not in scans, (statement.name, cache, plan)
                walked = sum(
                    (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                    * node["Actual Loops"]
                    for node in found_nodes
                    if "Scan" in node["Node Type"]
                )
                assert walked < 10 * STEPS, (statement.name, cache, walked, plan)

    postgres(test)


@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
@pytest.mark.parametrize("analyze", [True, False], ids=["analysed", "not analysed"])
def test_sqlite_scans_no_table_for_all_groups(tmp_path: Path, fifo: bool, analyze: bool) -> None:
    async def main() -> None:
        async with Database(f"sqlite:///{tmp_path / 'q.db'}") as db:
            described = spec("jobs", fifo=fifo, retry_after=Column("due", default=None))
            rows = ["2000:'g' || (i % 100), NULL, NULL", "5:'a', '2099', NULL"]
            bound = await fill(db, described, *rows, analyze=analyze)
            for statement in every_group_statements(bound, [f"g{n}" for n in range(20)]):
                lines = await db.run(explained(statement, "EXPLAIN QUERY PLAN"))
                details = [line[3] for line in lines]
                scans = [one for one in details if one in ("SCAN q", "SCAN w", "SCAN jobs")]
                # The outer select over a claim's parts scans their few rows.
                assert len(scans) <= (not fifo), details
                assert not [one for one in details if "AUTOMATIC" in one], details

    anyio.run(main)
