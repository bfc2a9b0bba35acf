"""The text of the advisory lock form's statements, as files to be read in review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from inboxkit._core.settlement import Destination, Verb
from inboxkit._core.spec import Column, InboxSpec, Role
from inboxkit._sql.column_types import python_type
from inboxkit._sql.dialect import Dialect, get_dialect
from inboxkit._sql.info import ColumnInfo, IndexInfo, TableInfo
from inboxkit._sql.lease import RELEASE, Held, Write
from inboxkit._sql.statement import Answer, Statement
from inboxkit._sql.table import bind

SPECS = {
    "full": InboxSpec(
        "mail_jobs",
        schema="app",
        id=Column("id", generated=True, type=int),
        group=Column("name"),
        priority=Column("priority"),
        retry_after=Column("retry_after", default=None),
        attempt=Column("attempt"),
        processed_at=Column("processed_at"),
        payload=Column("payload", type=bytes),
        columns=(Column("since", type=datetime), Column("raw", type=bytes)),
        advisory_lock="it's {{{id}}} \\ {since} {raw}",
    ),
    "due": InboxSpec(
        "ledger_jobs",
        id=Column("id", generated=True, type=int),
        partition_key=Column("account", type=str),
        retry_after=Column("due", default=None),
        advisory_lock="{account}",
    ),
    "bare": InboxSpec("select", id=Column('a `b` "c".d'), advisory_lock='jobs-{a `b` "c".d}'),
}
NOW = datetime(2030, 1, 1, tzinfo=UTC)
TYPES: dict[str, dict[Any, str]] = {
    "postgres": {
        int: "bigint",
        str: "text",
        bytes: "bytea",
        datetime: "timestamp with time zone",
    },
    "sqlite": {int: "INT", str: "TEXT", bytes: "BLOB", datetime: "TEXT"},
    "mysql": {int: "bigint", str: "varchar", bytes: "longblob", datetime: "datetime"},
}


def described(dialect: str, spec: InboxSpec) -> TableInfo:
    """What a database would say of the recommended table."""
    columns = []
    for role, column in spec.roles():
        family = TYPES[dialect][python_type(role, column) or int]
        cast = family if dialect == "postgres" else ""
        nullable = role in (Role.PROCESSED_AT, Role.RETRY_AFTER, Role.DATA)
        collation = "utf8mb4_bin" if family == "varchar" else ""
        columns.append(
            ColumnInfo(
                column.name,
                family,
                family,
                nullable=nullable,
                cast=cast,
                charset="utf8mb4" if collation else "",
                collation=collation,
            )
        )
    keys = [column.name for column in (spec.group, spec.priority, spec.retry_after) if column]
    by_id = IndexInfo((spec.id.name,), unique=True, name="PRIMARY" if dialect == "mysql" else "")
    indexes = (by_id, IndexInfo((*keys, spec.id.name)))
    return TableInfo(spec.table, spec.schema, "table", tuple(columns), indexes)


def statements_of(dialect: Dialect, spec: InboxSpec) -> Iterator[Statement]:
    table = bind(dialect, spec, described(dialect.name, spec))
    made = dialect.advisory(table, group="a" if spec.group is not None else None, cap=5)
    now = NOW if dialect.name == "mysql" else "<now>"
    if made.kept_by == "session":
        yield made.lock(now=now, limit=3, aside=())
        yield made.lock(now=now, limit=3, aside=(7, 8))
        steps = made.take(1, "<key>", now=now)
        yield next(steps)
        if table.dialect.name == "mysql" and spec.attempt is not None:
            yield steps.send(Answer(rows=[(2,) * len(table.columns)]))
        yield made.unlock("<key>")
    else:
        yield made.candidates(now=now, limit=1, keys=(), ids=())
        yield made.candidates(now=now, limit=2, keys=("<key>", "<other>"), ids=("<damaged>",))
        if (count := made.count([1, 2])) is not None:
            yield count
    writes = [Write(Verb.FINISH)]
    writes += [Write(Verb.POSTPONE)] if spec.retry_after is not None else []
    writes += [RELEASE] if spec.attempt is not None else []
    writes += [Write(Verb.MOVE, Destination(group="dead"))] if spec.group is not None else []
    writes.append(Write(Verb.MOVE, Destination(table="dead", schema="app")))
    for write in writes:
        steps = made.write(write, Held(1, (), 2, "<value>"), now=now)
        with suppress(StopIteration):
            yield next(steps)
            answer = Answer(rows=[(1,)], rowcount=1) if table.dialect.name == "mysql" else Answer()
            while True:
                yield steps.send(answer)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dialect", TYPES)
def test_advisory_form(dialect: str, name: str, golden: Callable[[str, str], None]) -> None:
    made = statements_of(get_dialect(dialect), SPECS[name])
    shown = [f"-- {one.name}\n{one.text};\n" for one in made]
    golden(f"{dialect}/advisory_{name}.sql", "\n".join(shown))
