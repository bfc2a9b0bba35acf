"""The texts of the row lock form, as files to be read in review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from inboxkit._core.group_shape import GroupShape
from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo
from inboxkit._sql.lease import Write
from inboxkit._sql.statement import Answer, Statement, Steps
from inboxkit._sql.table import bind

FULL = InboxSpec(
    "mail_jobs",
    schema="app",
    id=Column("id", generated=True, type=int),
    group=Column("name"),
    priority=Column("priority"),
    retry_after=Column("retry_after", default=None),
    attempt=Column("attempt"),
    payload=Column("payload", type=bytes),
)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
SPECS = {
    "full": FULL,
    "fifo": replace(FULL, fifo=True, priority=None),
    "due": replace(FULL, group=None, priority=None),
    "finished": InboxSpec("email_jobs", id=Column("id", type=str), processed_at=Column("done")),
}
TYPES = {
    "postgres": {
        int: "bigint",
        str: "text",
        bytes: "bytea",
        "time": "timestamp with time zone",
    },
    "mysql": {int: "bigint", str: "varchar", bytes: "longblob", "time": "datetime"},
}


def described(dialect: str, spec: InboxSpec) -> TableInfo:
    """What a database would say of the recommended table."""
    types = TYPES[dialect]
    columns = []
    is_mysql = dialect == "mysql"
    for role, column in spec.roles():
        found = types.get(python_type(role, column) or int, types["time"])
        nullable = role in (Role.PROCESSED_AT, Role.RETRY_AFTER)
        collation = "utf8mb4_bin" if found == "varchar" else ""
        columns.append(
            ColumnInfo(
                column.name,
                found,
                found,
                nullable=nullable,
                cast="" if is_mysql else found,
                charset="utf8mb4" if collation else "",
                collation=collation,
            )
        )
    group = [spec.group.name] if spec.group is not None else []
    due = [spec.retry_after.name] if spec.retry_after is not None else []
    by_id = IndexInfo((spec.id.name,), unique=True, name="PRIMARY" if is_mysql else "")
    indexes = (by_id, IndexInfo((*group, *due, spec.id.name)))
    return TableInfo(spec.table, spec.schema, "table", tuple(columns), indexes)


def drive(steps: Steps[object], answer: Answer) -> Iterator[Statement]:
    """Every statement of a script that is always answered the same."""
    try:
        statement = next(steps)
        while True:
            yield statement
            statement = steps.send(answer)
    except StopIteration:
        return


def statements(dialect: Dialect, spec: InboxSpec) -> Iterator[Statement]:
    table = bind(dialect, spec, described(dialect.name, spec))
    group = "a" if spec.group is not None else None
    made = dialect.row_lock(table, group=group)
    now = NOW if dialect.name == "mysql" else "<now>"
    for limit in (1, 10):
        yield from drive(made.claim(now="<now>", limit=limit, aside=[7]), Answer(rows=[(True,)]))
    writes = [Write(Verb.FINISH), Write(Verb.GIVE_BACK)]
    writes += [Write(Verb.POSTPONE)] if spec.retry_after is not None else []
    writes += [Write(Verb.MOVE, Destination(group="dead"))] if group is not None else []
    writes.append(Write(Verb.MOVE, Destination(table="dead", schema="app")))
    for write in filter(made.writes, writes):
        answer = Answer(rows=[(1,)], rowcount=1)
        yield from drive(made.write(write, 1, value="<due>", now=now), answer)
    if (after := made.after()) is not None:
        yield after


@pytest.mark.parametrize("name", ["full", "fifo", "timeless"])
@pytest.mark.parametrize("dialect", TYPES)
def test_every_group(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    timeless = replace(FULL, priority=None, retry_after=None)
    spec = {**SPECS, "timeless": timeless}[name]
    table = bind(get_dialect(dialect), spec, described(dialect, spec))
    others = Others(("mine",), GroupShape("", ".dead"))
    every = get_every_group(table, cap=5, others=others)
    shown = [
        every.look(Look(None, (), 9), now="<now>"),
        every.look(Look("m", ("n", "o"), 9, ["resting"], ["!"]), now="<now>"),
    ]
    one = get_dialect(dialect).row_lock(table, group=None).of_group("a")
    shown += drive(one.claim(now="<now>", limit=1, aside=[]), Answer(rows=[(True,)]))
    shown += [] if (after := one.after()) is None else [after]
    golden(
        f"{dialect}/row_lock_every_group_{name}.sql",
        "\n".join(f"-- {one.name} {one.parameters}\n{one.text};\n" for one in shown),
    )


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dialect", TYPES)
def test_row_lock_form(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    shown = (
        f"-- {one.name} {one.parameters}\n{one.text};\n"
        for one in statements(get_dialect(dialect), SPECS[name])
    )
    golden(f"{dialect}/row_lock_{name}.sql", "\n".join(shown))
