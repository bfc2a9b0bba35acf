"""The texts of what an operator asks, as files to be read in review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql import dead
from inboxkit._sql.column_types import python_type
from inboxkit._sql.control import control_spec, create_control, read_paused, resume
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit._sql.every_group import Others
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo
from inboxkit._sql.scope import Scope
from inboxkit._sql.sqlite.time_text import odd_times
from inboxkit._sql.statement import Answer, Reading, Statement, Steps
from inboxkit._sql.stats import count
from inboxkit._sql.table import Table, bind

FULL = InboxSpec(
    "mail_jobs",
    schema="app",
    id=Column("id", generated=True, type=int),
    group=Column("name"),
    priority=Column("priority"),
    retry_after=Column("retry_after", default=None),
    attempt=Column("attempt"),
    processed_at=Column("done"),
    locked_until=Column("locked_until"),
    payload=Column("payload", type=bytes),
)
ALONE = replace(FULL, group=None, priority=None, processed_at=None)
BARE = replace(ALONE, retry_after=None, locked_until=None)
DIALECTS = ("postgres", "sqlite", "mysql")
TIME = {"postgres": "timestamp with time zone", "sqlite": "TEXT", "mysql": "datetime"}
TYPES = {int: "bigint", str: "text", bytes: "bytea"}
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def table(dialect: Dialect, spec: InboxSpec) -> Table:
    """Bound to what a database would say of the recommended table."""
    columns = []
    for role, column in spec.roles():
        python = python_type(role, column) or int
        kind = TYPES.get(python, TIME[dialect.name])
        cast = kind if dialect.name == "postgres" else ""
        nullable = role in (Role.PROCESSED_AT, Role.RETRY_AFTER, Role.LOCKED_UNTIL)
        columns.append(ColumnInfo(column.name, kind, kind, nullable=nullable, cast=cast))
    by_id = IndexInfo((spec.id.name,), unique=True, name="PRIMARY")
    return bind(
        dialect, spec, TableInfo(spec.table, spec.schema, "table", tuple(columns), (by_id,))
    )


def drive(steps: Steps[object], *answers: Answer) -> Iterator[Statement]:
    """Every statement of a script with these answers; the last one's is the answer of all that follow."""
    left = iter(answers)
    try:
        statement = next(steps)
        while True:
            yield statement
            statement = steps.send(next(left, answers[-1]))
    except StopIteration:
        return


def shown(statements: Iterator[Statement]) -> str:
    texts = (f"-- {one.name} {one.parameters}\n{one.text};\n" for one in statements)
    return "\n".join(texts)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_stats(dialect: str, golden: Callable[[str, str], None]) -> None:
    made = get_dialect(dialect)
    full, alone, bare = (table(made, spec) for spec in (FULL, ALONE, BARE))
    shape = GroupShape("", ".dead")
    golden(
        f"{dialect}/stats.sql",
        shown(
            iter(
                [
                    count((full, Scope(group="a")), (full, Scope(group="a.dead")), now="<now>"),
                    count(
                        (full, Scope(others=Others(("mine",), shape))),
                        (full, Scope(shape=shape)),
                        now="<now>",
                    ),
                    count((alone, Scope()), None, now="<now>"),
                    count((bare, Scope()), (bare, Scope()), now="<now>"),
                ]
            )
        ),
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dead_letters(dialect: str, golden: Callable[[str, str], None]) -> None:
    made = get_dialect(dialect)
    full, alone = table(made, FULL), table(made, ALONE)
    back = table(made, replace(ALONE, table="jobs"))
    scope = Scope(group="a.dead")

    def all_of_them() -> Iterator[Statement]:
        yield dead.select(full, scope, limit=50)
        yield dead.find(full, scope, limit=500, after=7, due_before=NOW)
        yield dead.find(alone, Scope(), limit=2, ids=[7, 8])
        yield dead.lock(full, scope, [7, 8], now="<now>")
        yield dead.lock(full, Scope(shape=GroupShape("x.", "")), [7], now="<now>")
        yield dead.requeue(full, [7, 8], "a", now="<now>")
        yield dead.live(back, [7, 8])
        each = 1 if dialect == "mysql" else 2  # rows that a DELETE names
        yield from drive(
            dead.move_back(alone, back, [7, 8], now="<now>"),
            Answer(rowcount=2),
            Answer(rowcount=each),
        )
        yield from drive(dead.purge(full, [7, 8]), Answer(rowcount=each))

    golden(f"{dialect}/dead.sql", shown(all_of_them()))


@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_dead_letters_of_the_advisory_lock_form(
    dialect: str, golden: Callable[[str, str], None]
) -> None:
    made = get_dialect(dialect)
    spec = replace(FULL, locked_until=None, advisory_lock="mail-{id}")
    statements = made.advisory(table(made, spec), group=None, cap=None)
    assert statements.kept_by == "session"
    golden(f"{dialect}/dead_advisory.sql", shown(iter([statements.nobodys([7, 8])])))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_control_table(dialect: str, golden: Callable[[str, str], None]) -> None:
    made, spec = get_dialect(dialect), control_spec("app.inbox_control")
    reading = Reading(NOW, 0.0)

    def all_of_them() -> Iterator[Statement]:
        yield Statement("create", create_control(made, spec))
        yield from drive(read_paused(made, spec).steps(reading), Answer(rows=[("a",)]))
        yield from drive(resume(made, spec, "a").steps(reading), Answer(rowcount=1))

    golden(f"{dialect}/control.sql", shown(all_of_them()))


def test_times_that_sort_wrong(golden: Callable[[str, str], None]) -> None:
    full = table(get_dialect("sqlite"), FULL)
    golden(
        "sqlite/odd_times.sql",
        shown(iter([odd_times(full, full.get(Role.RETRY_AFTER), limit=4)])),
    )
