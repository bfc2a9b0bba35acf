"""Times that never come, and attempts that their column cannot count any further."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cases_kit import JOBS, SECOND, Job, everywhere, make, serve

from inboxkit import Database, ack, retry, retry_after
from inboxkit_testing import TestApp, VirtualClock

LAST = "9999-12-31 23:59:59.999999"
NEVER = {
    "sqlite": ("9999-12-31T23:59:59.999999+00:00", "+10000-01-01T00:00:00.000000+00:00"),
    "postgres": (f"{LAST}+00", "infinity", "10000-01-01 00:00:00+00", "294276-01-01 00:00:00+00"),
    "mysql": (LAST,),
}
LONG_AGO = {
    "sqlite": ("0001-01-01T00:00:00.000000+00:00",),
    "postgres": ("-infinity", "4713-01-01 00:00:00+00 BC"),
    "mysql": ("0000-00-00 00:00:00", "1000-01-01 00:00:00"),
}


@everywhere
async def test_times_that_never_come_disturb_nobody(
    inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """Nor do those before all time. They are slept until, listed and postponed to."""
    db = inbox_database
    await make(db)
    never, long_ago = NEVER[db.dialect], LONG_AGO[db.dialect]
    cast = "::timestamptz" if db.dialect == "postgres" else ""
    async with db.connection() as connection:
        if db.dialect == "mysql":
            await connection.execute("SET SESSION sql_mode = ''")
        for text in (*never, *long_ago):
            await connection.execute(
                f"INSERT INTO jobs (name, due, payload) VALUES ('jobs', '{text}'{cast}, $1)",
                text.encode(),
            )
        if db.dialect == "mysql":
            await connection.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")
    app, seen = serve(
        db, JOBS, lambda message, _: ack() if message == b"now" else retry_after(timedelta.max)
    )
    async with TestApp(app) as kit:
        await kit.publish(JOBS, b"now")
        await kit.publish(JOBS, b"later", due=datetime.max.replace(tzinfo=UTC))
        await kit.publish(JOBS, b"never again")
        await kit.advance(timedelta(minutes=1))
        done = {message for message, _ in seen}
        assert done == {b"now", b"never again", *(text.encode() for text in long_ago)}
        assert {attempt for _, attempt in seen} == {1}
        rows = await kit.rows(Job)
        undecodable = db.dialect == "sqlite" and NEVER["sqlite"][1].encode()
        for row in rows:
            if row.payload == undecodable:
                continue
            assert row.due is not None
            assert row.due.utcoffset() == timedelta(0)
            assert row.due.year == 9999
    assert len(rows) == len(never) + len(long_ago) + 2


SMALLEST = {"sqlite": ("integer", 2**63 - 1), "postgres": ("smallint", 2**15 - 1)}
TINY = ("tinyint unsigned", 255)


@everywhere
@pytest.mark.parametrize("capped", [False, True], ids=["uncapped", "capped"])
async def test_a_row_at_the_end_of_its_attempts_holds_up_nobody(
    capped: bool, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    db = inbox_database
    kind, most = SMALLEST.get(db.dialect, TINY)
    await make(db, attempt=f"attempt {kind} NOT NULL DEFAULT 1")
    await db.execute(
        "INSERT INTO jobs (name, attempt, payload) VALUES ('jobs', $1, $2)", most, b"0"
    )
    for number in range(1, 10):
        await db.execute("INSERT INTO jobs (name, payload) VALUES ('jobs', $1)", b"%d" % number)
    answers = iter([retry_after(SECOND), retry()])
    settings: dict[str, Any] = {"max_attempts": 5, "dead_letter": "dead"} if capped else {}
    app, seen = serve(
        db,
        JOBS,
        lambda message, _: next(answers, ack()) if message == b"0" else ack(),
        workers=3,
        **settings,
    )
    async with TestApp(app) as kit:
        await kit.advance(3 * SECOND)
        rows = await kit.rows(Job)
    assert sorted(one for one in seen if one[0] != b"0") == [(b"%d" % n, 1) for n in range(1, 10)]
    if capped:
        assert [(row.name, row.attempt) for row in rows] == [("dead", most)]
        assert len(seen) == 9
    else:
        assert [attempt for message, attempt in seen if message == b"0"] == [most] * 3
        assert rows == []
