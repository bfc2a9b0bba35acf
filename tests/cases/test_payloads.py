"""Payloads that some column takes and another does not: as published to the handler, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from cases_kit import JOBS, SECOND, Job, everywhere, make, on, serve

from inboxkit import ConstraintError, Database, EncodeError, Inbox, InboxQueue, insert_rows, role
from inboxkit_testing import TestApp, VirtualClock


class Texts(Inbox, table="jobs"):
    """A payload of text or JSON."""

    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: str = role.payload()


class Keys(Inbox, table="jobs"):
    """Ids that are texts."""

    id: str = role.id()
    name: str = role.group()
    account: str = role.partition_key()
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


TEXT_COLUMNS = {
    "sqlite": ("TEXT",),
    "postgres": ("text", "json", "jsonb"),
    "mariadb": ("longtext", "json"),
    "mysql": ("longtext", "json"),
}
CELLS = [
    pytest.param(db, ("asyncio", "trio")[n % 2], kind, id=f"{db}-{kind}")
    for db, kinds in TEXT_COLUMNS.items()
    for n, kind in enumerate(kinds)
]
in_each_text_column = pytest.mark.parametrize(("inbox_db", "inbox_backend", "kind"), CELLS)


async def handed_out(
    db: Database, queue: InboxQueue[Any, Any], message: Any, **columns: Any
) -> Any:
    """What the handler gets of a message; an EncodeError where it was refused, by every way alike and
    with nothing sent."""
    app, seen = serve(db, queue, lambda *_: None)
    async with TestApp(app) as kit:
        try:
            await kit.publish(queue, message, **columns)
        except ConstraintError as error:
            return error
        except EncodeError as error:
            async with db.transaction() as tx:
                with pytest.raises(EncodeError):
                    await kit.broker.publish(queue, message, within=tx, **columns)
                with pytest.raises(EncodeError):
                    await insert_rows(tx, queue.row.of(message, name=queue.name, **columns))
                assert await tx.fetch_value("SELECT count(*) FROM jobs") == 0
            return error
        assert await kit.rows(queue.row) == []
    ((got, _),) = seen
    return got


@in_each_text_column
async def test_nul_characters_are_kept_or_refused_by_place(
    kind: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, payload=f"payload {kind}", heads=f"heads {kind}")
    queue = InboxQueue(Texts, "q", dict[str, Any])
    is_kept = kind != "jsonb"
    for message in ({"a": "x\0y"}, {"a\0": 1}):
        got = await handed_out(db, queue, message)
        if is_kept:  # as JSON spells it
            assert got == message
        else:
            assert isinstance(got, EncodeError)
            assert (got.table, got.queue, got.where) == ("jobs", "q", "payload")
            assert "NUL" in str(got)
            assert kind in str(got)
    got = await handed_out(db, queue, {}, heads={"h": "x\0y"})
    assert got == {} if is_kept else got.where == "heads"
    assert await handed_out(db, queue, {"a": "\\u0000 \\\\u0000"}) == {"a": "\\u0000 \\\\u0000"}


@everywhere
async def test_nul_characters_in_ids_keys_and_raw_text(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(
        db,
        id="id varchar(40) NOT NULL PRIMARY KEY",
        account="account varchar(40)",
    )
    queue = InboxQueue(Keys, "q", bytes)
    for columns in ({"id": "a\0b", "account": ""}, {"id": "a", "account": "\0"}):
        got = await handed_out(db, queue, b"\0", **columns)
        if db.dialect == "postgres":
            assert isinstance(got, EncodeError)
            assert got.where == ("id" if "\0" in columns["id"] else "account")
        else:
            assert got == b"\0"


@dataclass
class Numbers:
    values: list[int]
    price: Decimal
    ratio: float


@in_each_text_column
async def test_numbers_come_back_as_they_were_or_are_refused(
    kind: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """No column makes another number of them in silence."""
    db = inbox_database
    await make(db, payload=f"payload {kind}", heads=f"heads {kind}")
    queue = InboxQueue(Texts, "q", Numbers)
    for value in (0, 2**53 + 1, -(2**63), 2**64 - 1, 2**64 + 1, 10**30 + 1, 10**400):
        message = Numbers([value], Decimal("0.10"), 0.1)
        got = await handed_out(db, queue, message)
        if isinstance(got, EncodeError):
            assert (db.dialect, kind) == ("mysql", "json")
            assert abs(value) >= 2**64
            assert got.where == "payload"
        else:
            assert got == message
    for ratio in (1e308, 5e-324, -0.0, 1e22, 123456789012345.67):
        message = Numbers([], Decimal(10) ** 40, ratio)
        assert await handed_out(db, queue, message) == message


@in_each_text_column
async def test_text_that_is_no_json_is_refused_by_a_json_column(
    kind: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, payload=f"payload {kind}", heads=f"heads {kind}")
    got = await handed_out(db, InboxQueue(Texts, "q", str), 'say "hi"')
    if db.dialect == "mysql" and isinstance(got, ConstraintError):
        assert kind == "json"  # MariaDB's: a longtext and a CHECK
    elif "json" in kind:
        assert isinstance(got, EncodeError)
        assert got.where == "payload"
        assert "JSON" in str(got)
    else:
        assert got == 'say "hi"'


@everywhere
async def test_empty_none_and_null_are_told_apart(
    inbox_database: Database, frozen_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db = inbox_database
    await make(db)
    for kind, message in (
        (bytes, b""),
        (str, ""),
        (dict, {}),
        (list[int], []),
        (dict[str, int] | None, None),
        (dict[str, int] | None, {}),
    ):
        assert await handed_out(db, InboxQueue(Job, "q", kind), message) == message
    for kind in (bytes, str, dict[str, int] | None):
        await db.execute("INSERT INTO jobs (name, payload) VALUES ('q', NULL)")
        app, seen = serve(
            db, InboxQueue(Job, "q", kind), lambda *_: None, max_attempts=1, dead_letter="dead"
        )
        async with TestApp(app) as kit:
            await kit.settle()
            assert seen == []
            assert [row.name for row in await kit.rows(Job)] == ["dead"]
            await db.execute("DELETE FROM jobs")
    assert "'payload' is NULL" in caplog.text


TWENTY_MB = 20_000_000


@on("sqlite", "postgres", "mariadb", "mysql", once=True)
async def test_payload_beyond_what_the_server_takes(
    inbox_database: Database, virtual_clock: VirtualClock, inbox_db: str
) -> None:
    """It comes whole through publish, claim and dead letter; or publish tells the limit, and the
    connection that the server cut is not lent again."""
    db = inbox_database
    await make(db)
    message = b"\0'\\\xff" * (TWENTY_MB // 4)
    app, seen = serve(db, JOBS, lambda *_: 1 / 0, workers=2, max_attempts=1, dead_letter="dead")
    async with TestApp(app) as kit:
        if inbox_db == "mariadb":
            assert await db.fetch_value("SELECT @@max_allowed_packet") <= 2**24
            with pytest.raises(EncodeError, match="max_allowed_packet") as caught:
                await kit.publish(JOBS, message)
            assert caught.value.where == "payload"
            await kit.publish(JOBS, message[: 2**22])
            message = message[: 2**22]
        else:
            await kit.publish(JOBS, message)
        await kit.advance(SECOND)
        ((got, _attempt),) = seen
        assert got == message
        (row,) = await kit.rows(Job)
        assert (row.name, row.payload) == ("dead", message)


@on("mariadb", "mysql", once=True)
@pytest.mark.parametrize(
    ("declared", "longest"), [("blob", 2**16 - 1), ("tinyblob", 255), ("varbinary(9)", 9)]
)
async def test_payload_beyond_its_column_is_refused_whatever_the_mode(
    declared: str, longest: int, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    await make(db, payload=f"payload {declared}")
    async with db.connection() as connection:
        await connection.execute("SET SESSION sql_mode = ''")
        with pytest.raises(EncodeError) as caught:
            await insert_rows(connection, Job.of(b"x" * (longest + 1), name="q"))
        assert caught.value.where == "payload"
        assert f"takes {longest} bytes" in str(caught.value)
        await insert_rows(connection, Job.of(b"x" * longest, name="q"))
        assert await connection.fetch_value("SELECT length(payload) FROM jobs") == longest
