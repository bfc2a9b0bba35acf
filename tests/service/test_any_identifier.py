"""Any identifier works from publish to the dead letter and back: tables, schemas, columns, groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from inboxkit import (
    Backoff,
    Broker,
    Column,
    Database,
    Delivery,
    DialectError,
    InboxQueue,
    InboxSpec,
    Outcome,
    Service,
    ack,
    retry,
    retry_after,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock

NAMES = {
    "double quotes": 'a"b""c"',
    "single quotes": "it's ''x''",
    "dots": "a.b..c",
    "spaces": " a  b ",
    "emoji": "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}\N{SNOWMAN}",
    "upper case": "JobsInWork",
    "keyword": "select",
    "another keyword": "order",
    "backticks": "a`b``c",
    "brackets": "a]b[c",
    "placeholder": "a$1b$2",
    "dollar quotes": "$$a$x$",
    "question marks": "a?b?1",
    "percent": "100%s%%(x)s",
    "colons": ":a::b",
    "injection": "x;--\"'; DROP TABLE jobs",
    "comment": "/* a */",
    "backslashes": "a\\b\\'",
    "newline": "a\nb\tc",
    "leading digit": "1st",
    "accents": "Größe",
    "braces": "{a}{0}",
}

NOT_ON_MYSQL = {
    "spaces": "do not end with a space",
    "emoji": "no characters beyond U\\+FFFF",
}
"""What MariaDB and MySQL call nothing, and what the service says of it."""

ROLES = (
    "id",
    "group",
    "priority",
    "partition_key",
    "retry_after",
    "attempt",
    "processed_at",
    "locked_until",
    "headers",
    "payload",
)


def described(
    name: str, *, table: str | None = None, schema: str | None = None, **left: Any
) -> InboxSpec:
    """A table that has every role, each column called by the name and a number."""
    columns = {
        role: Column(
            f"{name}{number}",
            generated=role in ("id", "attempt"),
            type={"id": int, "partition_key": str, "payload": bytes}.get(role),
        )
        for number, role in enumerate(ROLES)
    }
    for role in left:
        del columns[role]
    return InboxSpec(
        table or name,
        schema=schema,
        columns=(Column(name, type=str),),
        # Python code calls each by its role.
        fields={f"{role}_": column.name for role, column in columns.items()},
        **columns,  # type: ignore[arg-type]
    )


async def make(db: Database, spec: InboxSpec) -> None:
    for statement in create_table(get_dialect(db.dialect), spec):
        await db.execute(statement)


async def refuse(db: Database, spec: InboxSpec, told: str) -> None:
    """Start a service over a table that cannot be."""

    @subscriber(InboxQueue(spec, "queue", bytes))
    async def handle(message: bytes) -> None: ...

    app = Service("service", Broker(db))
    app.include(handle)
    with pytest.raises(DialectError, match=told):
        await app.run()


async def serve(db: Database, spec: InboxSpec, name: str, dead: str) -> tuple[Any, Any]:
    """Publish three messages: one is acked, one retried and acked, one ends as a dead letter."""
    queue: InboxQueue[Any, Any] = InboxQueue(spec, name, bytes)
    seen: list[tuple[bytes, int, Any]] = []

    @subscriber(queue)
    async def handle(message: bytes, delivery: Delivery) -> Outcome:
        seen.append((message, delivery.attempt, (delivery.key, dict(delivery.headers))))
        if message == b"bad":
            return retry()
        if message == b"later" and delivery.attempt == 1:
            return retry_after(timedelta(seconds=5))
        return ack()

    app = Service(name, Broker(db))
    app.include(handle, max_attempts=2, dead_letter=dead, on_error=Backoff.immediate())
    columns = {"priority_": 1, "partition_key_": name, "headers_": {name: name}, name: name}
    async with TestApp(app) as kit:
        for message in (b"good", b"later", b"bad"):
            await kit.publish(name, message, retry_after_=None, **columns)
        await kit.advance(timedelta(seconds=5))
        rest = (name, {name: name})
        assert seen == [
            (b"good", 1, rest),
            (b"later", 1, rest),
            (b"bad", 1, rest),
            (b"bad", 2, rest),
            (b"later", 2, rest),
        ]
        return await kit.rows(spec), await kit.dead(spec)


@pytest.mark.parametrize("case", NAMES)
async def test_any_name_of_schema_table_columns_and_queue(
    case: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    name = NAMES[case]
    schema = None  # on SQLite an attached file, known to one connection
    if inbox_database.dialect == "postgres":
        schema = name
        await inbox_database.execute(f"CREATE SCHEMA {get_dialect('postgres').quote(name)}")
    spec = described(name, schema=schema)
    if inbox_database.dialect == "mysql" and case in NOT_ON_MYSQL:
        await refuse(inbox_database, spec, NOT_ON_MYSQL[case])
        return
    await make(inbox_database, spec)
    await inbox_database.execute("CREATE TABLE jobs (id integer)")
    rows, dead = await serve(inbox_database, spec, name, name + " dead")
    assert [row["payload_"] for row in rows] == [b"good", b"later", b"bad"]
    (row,) = dead
    assert (row["payload_"], row["group_"], row["attempt_"]) == (b"bad", name + " dead", 3)
    assert (row[name], row["headers_"], row["partition_key_"]) == (name, {name: name}, name)
    assert await inbox_database.fetch("SELECT * FROM jobs") == []


@pytest.mark.parametrize("case", NAMES)
async def test_any_name_of_a_dead_letter_table(
    case: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    name = NAMES[case]
    spec = described(name, group=False, processed_at=False)
    dead = described(name, table=name + "+", group=False, processed_at=False)
    if inbox_database.dialect == "mysql" and case in NOT_ON_MYSQL:
        await refuse(inbox_database, dead, NOT_ON_MYSQL[case])
        return
    await make(inbox_database, spec)
    await make(inbox_database, dead)
    target: Any = InboxQueue(dead, "dead", bytes)
    rows, _ = await serve(inbox_database, spec, name, target)
    assert rows == []
    async with TestApp(Service("reader", Broker(inbox_database))) as kit:
        (row,) = await kit.rows(dead)
    assert (row["payload_"], row["attempt_"], row[name]) == (b"bad", 3, name)


LONGEST = {"postgres": "63 bytes", "mysql": "64 characters"}
"""PostgreSQL cuts longer names, and two may then be one; MariaDB and MySQL have none."""


def too_long(dialect: str, letter: str) -> str:
    """A name that is one longer than the longest."""
    longest = int(LONGEST.get(dialect, "63").partition(" ")[0])

    def size(text: str) -> int:
        return len(text) if dialect == "mysql" else len(text.encode())

    name = letter * (longest // size(letter))
    return name + "x" * (longest + 1 - size(name))


@pytest.mark.parametrize("letter", ["x", "é", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("where", ["table", "schema", "column", "dead letter table"])
async def test_name_that_is_longer_than_the_database_has_any_is_refused(
    where: str, letter: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    if db.dialect == "sqlite" and where == "schema":
        pytest.skip("a schema of SQLite is an attached file, known to one connection")
    long = too_long(db.dialect, letter)
    names = {"table": "jobs", "schema": None, "column": "note", "dead letter table": "dead"}
    names[where] = long

    def spec(table: str) -> InboxSpec:
        return InboxSpec(
            table,
            schema=names["schema"],
            id=Column("id", generated=True, type=int),
            attempt=Column("attempt", generated=True),
            locked_until=Column("lease"),
            payload=Column("payload", type=bytes),
            columns=(Column(names["column"] or "", type=str, default=""),),
        )

    @subscriber(InboxQueue(spec(names["table"] or ""), "q", bytes))
    async def handle(message: bytes) -> None: ...

    app = Service("service", Broker(db))
    app.include(
        handle, max_attempts=1, dead_letter=InboxQueue(spec(names["dead letter table"] or ""), "d")
    )

    async def create(db: Database) -> None:
        await make(db, spec(names["table"] or ""))
        if db.dialect == "sqlite":
            await make(db, spec(names["dead letter table"] or ""))

    if db.dialect == "sqlite":
        app.on_startup(create)
        async with TestApp(app) as kit:
            await kit.publish("q", b"x")
            kit.subscriber(handle).assert_called_with(b"x")
        return
    if where == "dead letter table":
        app.on_startup(create)
    with pytest.raises(DialectError) as caught:
        await app.run()
    is_beyond = db.dialect == "mysql" and letter > "\uffff"
    assert ("beyond U+FFFF" if is_beyond else LONGEST[db.dialect]) in str(caught.value)
    assert repr(long) in str(caught.value)


def test_no_case_is_lost() -> None:
    assert len(NAMES) == 22
