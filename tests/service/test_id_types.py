"""Ids of every type through a whole life: claimed, renewed, retried, finished, moved, read again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from database_cells import if_chosen

from inboxkit import (
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
    retry_after,
    subscriber,
)
from inboxkit_testing import TestApp, VirtualClock

LOW, HIGH = UUID(int=0), UUID(int=2**128 - 1)


@dataclass(frozen=True)
class Ids:
    """Ids of one Python type, in the order of claims, and the column that holds them."""

    python: type
    values: tuple[Any, ...]
    sqlite: tuple[str, ...]
    postgres: tuple[str, ...]
    mysql: tuple[str, ...]


INTS = Ids(
    int, (-(2**63), -1, 0, 7, 2**63 - 1), ("INTEGER", "BIGINT", ""), ("bigint",), ("bigint",)
)
SMALL = Ids(int, (-(2**15), 0, 2**15 - 1), (), ("smallint", "integer"), ("smallint", "int"))
TEXTS = Ids(
    str,
    ("", "00042", "42", "4e2", "a", "a ", "a\N{GRINNING FACE}", "é'\"$1?%s"),
    ("TEXT", "VARCHAR(40)", ""),
    ('text COLLATE "C"', 'varchar(40) COLLATE "C"'),
    ("varchar(40) COLLATE {exact}",),
)
UUIDS = Ids(
    UUID,
    (LOW, UUID("01234567-89ab-cdef-0123-456789abcdef"), HIGH),
    ("TEXT", "BLOB", "UUID", ""),
    ("uuid",),
    ("char(36) CHARACTER SET ascii", "varchar(36) CHARACTER SET ascii", "binary(16)"),
)
EXACT = {"mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
"""Collations that tell all texts apart; for most others a space at the end is nothing."""


def name_of(ids: Ids, declared: str) -> str:
    return f"{ids.python.__name__}-{declared or 'untyped'}"


CELLS = [
    pytest.param(database, ids, declared, id=f"{database}-{name_of(ids, declared)}", marks=marks)
    for database, dialect, marks in (
        ("sqlite", "sqlite", ()),
        ("postgres", "postgres", ()),
        ("mariadb", "mysql", if_chosen),
        ("mysql", "mysql", if_chosen),
    )
    for ids in (INTS, SMALL, TEXTS, UUIDS)
    for declared in getattr(ids, dialect)
]
TIMES = {"sqlite": "TEXT", "postgres": "timestamptz", "mysql": "datetime(6)"}
BYTES = {"sqlite": "BLOB", "postgres": "bytea", "mysql": "longblob"}


@pytest.mark.parametrize(("inbox_db", "ids", "declared"), CELLS)
async def test_ids_through_a_whole_life(
    inbox_db: str, ids: Ids, declared: str, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    time, payload = TIMES[db.dialect], BYTES[db.dialect]
    declared = declared.format(exact=EXACT.get(inbox_db))
    spec = InboxSpec(
        "jobs",
        id=Column("id", type=ids.python),
        group=Column("name"),
        retry_after=Column("due", default=None),
        attempt=Column("attempt"),
        locked_until=Column("lease"),
        payload=Column("payload", type=bytes),
    )
    await db.execute(
        f"CREATE TABLE jobs (id {declared} NOT NULL PRIMARY KEY, name text NOT NULL, due {time}, "
        f"attempt integer NOT NULL, lease {time}, payload {payload} NOT NULL)"
    )
    queue = InboxQueue(spec, "q", bytes, lease=timedelta(seconds=2))
    seen: list[tuple[Any, int]] = []

    @subscriber(queue)
    async def handle(message: bytes, delivery: Delivery) -> Outcome:
        seen.append((delivery.id, delivery.attempt))
        if message == b"slow":
            await delivery.clock.sleep(3)  # beyond its lease: it is renewed
            return ack()
        return retry_after(timedelta(seconds=1))

    app = Service("service", Broker(db))
    app.include(handle, workers=20, max_attempts=2, dead_letter="dead")
    first, *rest = ids.values
    async with TestApp(app) as kit:
        assert await kit.publish("q", b"slow", id=first) == first
        for id in rest:
            assert await kit.publish("q", b"bad", id=id) == id
        await kit.advance(timedelta(seconds=4))
        assert seen[: len(ids.values)] == [(id, 1) for id in ids.values]
        assert sorted(seen) == sorted([(first, 1), *((id, n) for id in rest for n in (1, 2))])
        rows = await kit.rows(spec)
    assert {row["id"]: (row["name"], row["attempt"]) for row in rows} == dict.fromkeys(
        rest, ("dead", 3)
    )
    assert all(type(row["id"]) is ids.python for row in rows)


async def test_ids_that_the_database_makes(
    inbox_database: Database, inbox_db: str, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    made = {
        "sqlite": "id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(16))))",
        "postgres": "id uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        "mysql": "id char(36) CHARACTER SET ascii PRIMARY KEY DEFAULT (uuid())",
    }
    kind = str if db.dialect == "sqlite" else UUID
    time, payload = TIMES[db.dialect], BYTES[db.dialect]
    await db.execute(f"CREATE TABLE jobs ({made[db.dialect]}, lease {time}, payload {payload})")
    spec = InboxSpec(
        "jobs",
        id=Column("id", generated=True, type=kind),
        locked_until=Column("lease"),
        payload=Column("payload", type=bytes),
    )
    seen: list[Any] = []

    @subscriber(InboxQueue(spec, "q", bytes))
    async def handle(message: bytes, delivery: Delivery) -> None:
        seen.append(delivery.id)

    app = Service("service", Broker(db))
    app.include(handle)
    async with TestApp(app) as kit:
        if inbox_db == "mysql":  # it has no RETURNING, so the row comes by other means
            with pytest.raises(DialectError, match="does not tell what it filled in"):
                await kit.publish("q", b"x")
            await db.execute("INSERT INTO jobs (payload) VALUES ('x')")
            await kit.advance(timedelta(seconds=1))
            assert [type(id) for id in seen] == [UUID]
            return
        ids = [await kit.publish("q", b"x") for _ in range(3)]
        assert seen == ids
        assert all(type(id) is kind for id in ids)
        assert await kit.rows(spec) == []


def test_no_case_is_lost() -> None:
    counts = Counter(cell.values[0] for cell in CELLS)
    assert counts == {"sqlite": 10, "postgres": 6, "mariadb": 7, "mysql": 7}
