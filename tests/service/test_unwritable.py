"""What cannot be written is refused by its place, before anything is sent: the table stays as it was."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from inboxkit import (
    Broker,
    Database,
    EncodeError,
    Inbox,
    InboxQueue,
    Service,
    insert_rows,
    role,
    subscriber,
)
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import TestApp, VirtualClock

SECRET = "hunter2"


@dataclass
class Line:
    name: str
    more: Any = None


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)
    extra: dict[Any, Any] = field(default_factory=dict)


class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    urgency: int = role.priority(default=10)
    account: bytes = role.partition_key(default=b"")
    due: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    heads: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()
    note: str = ""
    count: int = 0
    flag: bool = False
    ratio: float = 0.5
    price: Decimal = Decimal(0)
    ref: UUID = UUID(int=0)
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    blob: bytes = b""


class Notes(Inbox, table="notes"):
    id: int = role.id(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: str = role.payload()


ORDERS = InboxQueue(Jobs, "orders", Order)
TEXTS = InboxQueue(Notes, "texts", str)


@subscriber(ORDERS)
async def handle(order: Order) -> None: ...
@subscriber(TEXTS)
async def read(text: str) -> None: ...


async def create_schema(db: Database) -> None:
    for row in (Jobs, Notes):
        for statement in create_table(get_dialect(db.dialect), row.spec):
            await db.execute(statement)


def service(db: Database) -> Service:
    app = Service("service", Broker(db))
    app.on_startup(create_schema)
    app.include(handle)
    app.include(read)
    return app


MESSAGES: dict[str, tuple[Any, str]] = {
    "object in a set in a list": (
        Order(1, [Line(SECRET), Line("x", {object()})]),
        "$.lines[1].more",
    ),
    "NaN": (Order(1, [Line(SECRET, math.nan)]), "$.lines[0].more"),
    "infinity": (Order(1, [Line(SECRET, [1.0, -math.inf])]), "$.lines[0].more[1]"),
    "NaN as a key": (Order(1, extra={math.nan: SECRET}), "$.extra"),
    "lone surrogate": (Order(1, [Line(SECRET), Line("\ud800")]), "$.lines[1].name"),
    "lone surrogate as a key": (Order(1, extra={"a": {"\udfff": SECRET}}), "$.extra"),
    "function": (Order(1, extra={"a": [SECRET, print]}), "$.extra"),
    "complex number": (Order(1, [Line(SECRET, 1j)]), "$.lines[0].more"),
}


@pytest.mark.parametrize("case", MESSAGES)
async def test_unwritable_message_names_its_place_and_changes_nothing(
    case: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    message, place = MESSAGES[case]
    async with TestApp(service(inbox_database)) as app:
        with pytest.raises(EncodeError) as caught:
            await app.publish(ORDERS, message)
        assert await app.rows(Jobs) == []
        async with inbox_database.transaction() as tx:
            with pytest.raises(EncodeError):
                await app.broker.publish(ORDERS, message, within=tx)
            kept = await app.broker.publish(ORDERS, Order(2), within=tx, due=LATER)
        assert [row.id for row in await app.rows(Jobs)] == [kept]
        app.subscriber(handle).assert_not_called()
    assert (caught.value.table, caught.value.queue) == ("jobs", "orders")
    assert caught.value.where.startswith(place)
    assert f"at {caught.value.where}" in str(caught.value)
    assert "'jobs'" in str(caught.value)
    assert SECRET not in str(caught.value)


LATER = datetime(2031, 1, 1, tzinfo=UTC)
NAIVE = datetime(2031, 1, 1)  # noqa: DTZ001

COLUMNS: dict[str, tuple[str, Any]] = {
    "huge priority": ("urgency", 2**70),
    "priority beyond the column": ("urgency", 2**31 + 77),
    "text as a priority": ("urgency", "1"),
    "text as a key": ("account", "x"),
    "naive due time": ("due", NAIVE),
    "text as a due time": ("due", "2031-01-01T00:00:00Z"),
    "number as a header": ("heads", {"a": 1}),
    "list of headers": ("heads", [1]),
    "lone surrogate in a header": ("heads", {"a": "\ud800"}),
    "NUL in a header's text": ("heads", {"a": object()}),
    "bytes as text": ("note", b"x"),
    "number as text": ("note", 7),
    "lone surrogate": ("note", "x\ud800"),
    "NUL": ("note", "a\0b"),
    "huge int": ("count", 2**70),
    "bool as int": ("count", True),
    "float as int": ("count", 1.0),
    "int as bool": ("flag", 1),
    "text as float": ("ratio", "0.5"),
    "float as Decimal": ("price", 0.5),
    "text as UUID": ("ref", str(UUID(int=0))),
    "naive time": ("at", NAIVE),
    "date beyond UTC": ("at", datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))),
    "text as bytes": ("blob", "x"),
}
TAKEN = {"NUL": ("sqlite", "mysql"), "priority beyond the column": ("sqlite",)}
"""Where a column does hold it."""


@pytest.mark.parametrize("case", COLUMNS)
async def test_unwritable_column_is_named_and_changes_nothing(
    case: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    name, value = COLUMNS[case]
    columns: dict[str, Any] = {"due": LATER, name: value}
    async with TestApp(service(inbox_database)) as app:
        if inbox_database.dialect in TAKEN.get(case, ()):
            await app.publish(ORDERS, Order(1), **columns)
            assert [getattr(row, name) for row in await app.rows(Jobs)] == [value]
            return
        with pytest.raises(EncodeError) as caught:
            await app.publish(ORDERS, Order(1), **columns)
        good, bad = (
            Jobs.of(Order(1), name="orders", **given) for given in ({"due": LATER}, columns)
        )
        async with inbox_database.transaction() as tx:
            with pytest.raises(EncodeError):
                await insert_rows(tx, good, bad)
        assert await app.rows(Jobs) == []
        app.subscriber(handle).assert_not_called()
    assert (caught.value.table, caught.value.queue, caught.value.where) == ("jobs", "orders", name)
    assert f"column {name!r}" in str(caught.value)
    assert repr(value) not in str(caught.value)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_message_that_no_text_column_takes(
    text: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    async with TestApp(service(inbox_database)) as app:
        if text == "a\0b" and inbox_database.dialect != "postgres":
            await app.publish(TEXTS, text)
            app.subscriber(read).assert_called_with(text)
            return
        with pytest.raises(EncodeError) as caught:
            await app.publish(TEXTS, text)
        assert await app.rows(Notes) == []
        app.subscriber(read).assert_not_called()
    assert caught.value.table == "notes"
    assert caught.value.where in ("$", "payload")


def test_no_case_is_lost() -> None:
    assert (len(MESSAGES), len(COLUMNS), len(TAKEN)) == (8, 24, 2)
