"""The text of every statement, as a file to be read in review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.rounds import Turn
from inboxkit._core.rows import NewRow
from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo
from inboxkit._sql.insert import insert_statements
from inboxkit._sql.lease import RELEASE, Held, Write
from inboxkit._sql.statement import Answer, Reading, Statement, Steps
from inboxkit._sql.table import bind

NOW = datetime(2030, 1, 1, tzinfo=UTC)

FULL = InboxSpec(
    "mail_jobs",
    schema="app",
    id=Column("id", generated=True, type=int),
    group=Column("name"),
    priority=Column("priority"),
    retry_after=Column("retry_after", default=None),
    attempt=Column("attempt"),
    locked_until=Column("locked_until"),
    headers=Column("headers"),
    payload=Column("payload", type=bytes),
    columns=(Column("note", type=str),),
)
SPECS = {
    "full": FULL,
    "fifo": InboxSpec(
        "crm_jobs",
        id=Column("id", generated=True, type=int),
        group=Column("target"),
        fifo=True,
        attempt=Column("attempt"),
        locked_until=Column("locked_until"),
        payload=Column("payload", type=bytes),
    ),
    "fifo_due": InboxSpec(
        "crm_jobs",
        id=Column("id", generated=True, type=int),
        group=Column("target"),
        fifo=True,
        retry_after=Column("due", default=None),
        locked_until=Column("locked_until"),
    ),
    "due": InboxSpec(
        "mail_jobs",
        id=Column("id", generated=True, type=int),
        retry_after=Column("due", default=None),
        locked_until=Column("locked_until"),
    ),
    "finished": InboxSpec(
        "email_jobs",
        id=Column("id", type=str),
        processed_at=Column("processed_at"),
        locked_until=Column("locked_until"),
        payload=Column("payload", type=str),
    ),
    "bare": InboxSpec("select", id=Column("ID"), locked_until=Column('a `b` "c".d')),
}
TYPES: dict[str, dict[Any, tuple[str, str]]] = {
    "postgres": {
        int: ("bigint", "bigint"),
        str: ("text", "text"),
        bytes: ("bytea", "bytea"),
        datetime: ("timestamp with time zone", "timestamp with time zone"),
        dict: ("jsonb", "jsonb"),
    },
    "sqlite": {
        int: ("INT", ""),
        str: ("TEXT", ""),
        bytes: ("BLOB", ""),
        datetime: ("TEXT", ""),
        dict: ("TEXT", ""),
    },
    "mysql": {
        int: ("bigint", ""),
        str: ("varchar", ""),
        bytes: ("longblob", ""),
        datetime: ("datetime", ""),
        dict: ("json", ""),
    },
}


def described(dialect: str, spec: InboxSpec, *, server: str = "") -> TableInfo:
    """What a database would say of the recommended table."""
    columns = []
    for role, column in spec.roles():
        family, cast = TYPES[dialect][python_type(role, column) or int]
        nullable = role in (Role.PROCESSED_AT, Role.LOCKED_UNTIL, Role.RETRY_AFTER, Role.DATA)
        charset, collation = ("utf8mb4", "utf8mb4_bin") if family == "varchar" else ("", "")
        columns.append(
            ColumnInfo(
                column.name,
                family,
                family,
                nullable=nullable,
                cast=cast,
                charset=charset,
                collation=collation,
            )
        )
    assert spec.locked_until is not None
    group = [spec.group.name] if spec.group is not None else []
    due = [spec.retry_after.name] if spec.retry_after is not None else []
    indexes = [
        IndexInfo((spec.id.name,), unique=True),
        IndexInfo((*group, spec.locked_until.name), partial=True),
        IndexInfo((*group, *due, spec.id.name)),
    ]
    if dialect == "mysql" and not spec.fifo:
        indexes[1:] = [IndexInfo((*group, spec.locked_until.name, *due, spec.id.name))]
    if dialect == "mysql":
        names = ("PRIMARY", f"{spec.table}_queue", f"{spec.table}_lease")
        indexes = [replace(one, name=name) for one, name in zip(indexes, names, strict=False)]
    schema = spec.schema or "public" if dialect == "postgres" else spec.schema
    return TableInfo(
        spec.table,
        schema,
        "table",
        tuple(columns),
        tuple(indexes),
        server=server,  # type: ignore[arg-type]
    )


def drive(steps: Steps[Any], answer: Answer) -> Iterator[Statement]:
    """Every statement of a script that is always answered the same; a check finds others at all groups."""
    everywhere = Answer(rows=[(place,) for place in range(len(answer.rows))])
    try:
        statement = next(steps)
        while True:
            yield statement
            statement = steps.send(everywhere if statement.name == "claim check" else answer)
    except StopIteration:
        return


def lease_statements(dialect: Dialect, spec: InboxSpec) -> Iterator[Statement]:
    table = bind(dialect, spec, described(dialect.name, spec))
    group = "a" if spec.group is not None else None
    statements = dialect.lease(table, group=group, cap=5)
    now, then = NOW, "<expiry>"
    row = Answer(rows=[(True, *(None,) * (len(table.columns) - 1))])
    yield from drive(statements.claim(now=now, expiry=then, limit=10), row)
    rows = [Held(1, ("<token>", "<older>"), 2, "<one>"), Held(2, ("<token>",), None, "<other>")]
    found = Answer(rows=[(1,), (2,)]) if dialect.name == "mysql" else Answer()
    yield from drive(statements.renew(rows, now=now), found)
    yield statements.still_held(rows, now=now)
    verbs = [Verb.FINISH, Verb.GIVE_BACK, Verb.HOLD]
    verbs += [Verb.POSTPONE] if spec.retry_after is not None else []
    writes = [RELEASE, *map(Write, verbs)]
    if group is not None:
        writes.append(Write(Verb.MOVE, Destination(group="dead")))
    writes.append(Write(Verb.MOVE, Destination(table="dead", schema="app")))
    for write in writes:
        yield from drive(statements.write(write, rows, now=now), found)
        if dialect.name == "mysql":  # another statement for one row
            yield from drive(statements.write(write, rows[:1], now=now), found)
    yield statements.unfinished([1, 2])


def show(statement: Statement) -> str:
    return f"-- {statement.name}\n{statement.text};\n"


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_lease_form(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    shown = map(show, lease_statements(get_dialect(dialect), SPECS[name]))
    golden(f"{dialect}/lease_{name}.sql", "\n".join(shown))


@pytest.mark.parametrize("name", ["full", "fifo", "fifo_due"])
@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_every_group(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    spec = SPECS[name]
    table = bind(get_dialect(dialect), spec, described(dialect, spec))
    others = Others(("mine", "parked"), GroupShape("", ".dead"))
    every = get_every_group(table, cap=5, others=others)
    turns = [Turn("a", is_again=False), Turn("b", is_again=True)]
    shown = [
        every.look(Look(None, (), 9), now="<now>"),
        every.look(Look("m", ("n", "o"), 9, aside=("!", "?") if spec.fifo else ()), now="<now>"),
    ]
    guard = every.guard(turns, 2)
    shown += [] if guard is None else [guard]
    # Of FIFO groups both have a head.
    ids = (1, 2) if spec.fifo else (1,)
    row = Answer(rows=[(id, *(None,) * (len(table.columns) - 1)) for id in ids])
    for most in (1,) if spec.fifo else (1, 4):
        take = every.take(turns, now="<now>", expiry="<expiry>", limit=2, most=most)
        shown += drive(take, row)
    golden(f"{dialect}/every_group_{name}.sql", "\n".join(map(show, shown)))


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_claim_without_an_index_on_the_lease(
    dialect: str, golden: Callable[[str, str], None]
) -> None:
    known = described(dialect, FULL)
    info = TableInfo(known.table, known.schema, "table", known.columns, known.indexes[:1])
    table = bind(get_dialect(dialect), FULL, info)
    statements = get_dialect(dialect).lease(table, group="a", cap=None)
    claim = drive(statements.claim(now="", expiry="", limit=1), Answer())
    golden(f"{dialect}/claim_one_index.sql", "\n".join(map(show, claim)))


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_describe(dialect: str, golden: Callable[[str, str], None]) -> None:
    script = get_dialect(dialect).describe(FULL)
    row = ("id", "int8", "r" if dialect == "postgres" else 0, -1, 0, False, "", False)
    widths = {
        "postgres": {"table": 5, "columns": 8, "indexes": 3},
        "sqlite": {"tables": 2, "columns": 6, "indexes": 5},
        "mysql": {"server": 4, "table": 4, "columns": 11, "indexes": 4},
    }
    table = ("jobs", "app", "r", [], "PostgreSQL 17.0")
    rows: dict[str, tuple[Any, ...]] = {"describe table": table} if dialect == "postgres" else {}
    width = {f"describe {what}": count for what, count in widths[dialect].items()}
    if dialect == "mysql":
        row = ("8.4.0", "1", "app", 0, "", "", "", 6, None, "", "")
    steps = script.steps(Reading(NOW, 0.0))
    statement: Statement | None = next(steps)
    shown = []
    while statement is not None:
        shown.append(show(statement))
        answer = Answer(rows=[rows.get(statement.name, row)[: width[statement.name]]])
        try:
            statement = steps.send(answer)
        except StopIteration:
            statement = None
    golden(f"{dialect}/describe.sql", "\n".join(shown))


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_insert(dialect: str, golden: Callable[[str, str], None]) -> None:
    row = {
        "name": "a",
        "priority": 0,
        "retry_after": None,
        "attempt": 1,
        "locked_until": None,
        "headers": {},
        "payload": b"",
        "note": None,
    }
    rows = [NewRow(FULL, row)] * 2
    shown = []
    infos = [("described", described(dialect, FULL)), ("not described", None)]
    if dialect == "mysql":
        infos.insert(1, ("described on MariaDB", described(dialect, FULL, server="mariadb")))
    for title, info in infos:
        for on_conflict in ("error", "ignore"):
            made = insert_statements(
                get_dialect(dialect), FULL, info, rows, on_conflict=on_conflict, now=None
            )
            shown.append(f"-- {title}, {on_conflict}: {len(made)}\n{show(made[0].statement)}")
    golden(f"{dialect}/insert.sql", "\n".join(shown))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql"])
def test_recommended_table(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    statements = create_table(get_dialect(dialect), SPECS[name])
    golden(f"{dialect}/table_{name}.sql", "".join(f"{one};\n" for one in statements))
