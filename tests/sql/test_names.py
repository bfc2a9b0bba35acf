"""Identifiers: any name works, and what cannot be is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from inboxkit._core.lease import ExpirySteps
from inboxkit._core.rows import NewRow
from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._forms import open_form
from inboxkit._sql.check import check
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.insert import insert
from inboxkit.database import Database
from inboxkit.errors import DialectError, SchemaError

WithDatabase = Callable[[Callable[[Database], Awaitable[Any]]], Any]

NASTY = [
    'double " quote',
    "single ' quote",
    "back ` tick",
    "dot.ted",
    "[brackets]",
    "UPPER",
    "select",
    "semi;colon -- and /* comment",
    "$1",
    "?1",
    ":name",
    "%s",
    "back\\slash",
    "new\nline",
    "\N{GRINNING FACE}",
    "held",
    "due",
    "q",
    "part1",
    " ",
]


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("fifo", [False, True])
def test_any_name_works_throughout(with_database: WithDatabase, name: str, fifo: bool) -> None:
    async def test(db: Database) -> None:
        dialect = get_dialect(db.dialect)
        if db.dialect == "mysql" and (name > "\uffff" or name.endswith(" ")):
            with pytest.raises(DialectError, match="choose another name"):
                dialect.describe(InboxSpec(name, id=Column("id")))
            return
        roles = ("id", "group", "retry_after", "attempt", "locked_until", "payload")
        columns: dict[str, Any] = {role: Column(f"{name} {role}") for role in roles}
        columns["id"] = Column(name, generated=True, type=int)
        spec = InboxSpec(name, fifo=fifo, **columns)
        for statement in create_table(dialect, spec):
            await db.execute(statement)
        try:
            info = await db.run(dialect.describe(spec))
            check(dialect, spec, info)
            values = {f"{name} group": name, f"{name} payload": b"x", f"{name} attempt": 1}
            new = [NewRow(spec, {**values, f"{name} retry_after": None})] * 6
            script = insert(dialect, spec, info, new, on_conflict="ignore", now=db.clock.now())
            assert len(set(await db.run(script))) == 6
            await use(db, spec, info)
        finally:
            await db.execute(f"DROP TABLE {dialect.table(name, None)}")

    with_database(test)


async def use(db: Database, spec: InboxSpec, info: Any) -> None:
    form = open_form(
        db,
        spec,
        info,
        get_dialect(db.dialect),
        group=spec.table,
        lease=timedelta(seconds=30),
        cap=3,
        steps=ExpirySteps(0),
    )
    settlements = [
        Settlement(Verb.POSTPONE, timedelta(days=1)),
        Settlement(Verb.MOVE, destination=Destination(group="dead")),
        Settlement(Verb.FINISH),
    ]
    while settlements:
        rows = (await form.claim(limit=1)).rows
        if not rows:  # a FIFO head that is not due any more
            assert spec.fifo
            break
        renewal = await form.renew([(rows[0].fence, rows[0].reading)], timeout=5)
        assert set(renewal.renewed) == {rows[0].fence.id}
        fence = type(rows[0].fence)(
            rows[0].fence.id, tuple(renewal.renewed.values()), rows[0].fence.attempt
        )
        (settled,) = await form.settle([(fence, settlements.pop())])
        assert settled.result == "written"
        (settled,) = await form.release([(fence, True)])
        assert settled.result in ("lost", "gone")


def test_misspelt_column_is_seen_on_sqlite_too(with_database: WithDatabase, table: str) -> None:
    """A double-quoted unknown name would be a string constant there."""

    async def test(db: Database) -> None:
        dialect = get_dialect(db.dialect)
        spec = InboxSpec(table, id=Column("id", generated=True), locked_until=Column("lease"))
        for statement in create_table(dialect, spec):
            await db.execute(statement)
        wrong = InboxSpec(table, id=Column("idd"), locked_until=Column("lease"))
        info = await db.run(dialect.describe(wrong))
        with pytest.raises(SchemaError, match="'idd'"):
            check(dialect, wrong, info)

    with_database(test)


def test_postgres_refuses_names_that_it_would_cut() -> None:
    dialect = get_dialect("postgres")
    assert dialect.quote("é" * 31 + "e") == f'"{"é" * 31}e"'
    with pytest.raises(DialectError, match="63 bytes"):
        dialect.quote("é" * 32)
    with pytest.raises(DialectError, match="63 bytes"):
        dialect.describe(InboxSpec("x" * 64, id=Column("id")))


def test_mysql_has_names_of_64_characters() -> None:
    dialect = get_dialect("mysql")
    assert dialect.table("é" * 64, "a`b") == f"`a``b`.`{'é' * 64}`"
    with pytest.raises(DialectError, match="64 characters"):
        dialect.describe(InboxSpec("é" * 65, id=Column("id")))


@pytest.mark.parametrize(
    ("name", "length", "limit"), [("postgres", 64, "63 bytes"), ("mysql", 65, "64 characters")]
)
def test_start_up_refuses_a_column_name_that_is_too_long(
    name: str, length: int, limit: str
) -> None:
    spec = InboxSpec("jobs", id=Column("x" * length))
    with pytest.raises(DialectError, match=limit):
        check(get_dialect(name), spec, TableInfo("jobs"))


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_names_that_no_database_has_are_refused(dialect: str) -> None:
    for name in ("", "a\0b"):
        with pytest.raises(DialectError):
            get_dialect(dialect).quote(name)
