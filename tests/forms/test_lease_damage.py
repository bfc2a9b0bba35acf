"""Rows that hold what they should not: SQLite keeps any value in any column."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID, uuid4

import pytest

from inboxkit._core.spec import Column
from inboxkit.errors import DecodeError

# Elsewhere columns hold values of their type only.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def test_row_whose_id_cannot_be_read_is_set_aside(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(b: Any) -> None:
        await b.create(id=Column("id", type=UUID))
        good = uuid4()
        await b.insert({"id": good})
        await b.db.execute(
            f"INSERT INTO {b.name} (id, grp, prio, body) VALUES ('no uuid', 'a', -1, 'x')"
        )
        with caplog.at_level(logging.ERROR, "inboxkit"):
            claim = await b.form().claim(limit=5)
        assert [row.fence.id for row in claim.rows] == [good]
        assert claim.undecodable == 1
        (record,) = caplog.records
        assert b.table in record.getMessage()
        assert "'id'" in record.getMessage()
        assert (await b.form().claim(limit=5)).undecodable == 0  # until its lease ends
        b.advance(seconds=31)
        assert (await b.form().claim(limit=5)).undecodable == 1

    bench(test)


@pytest.mark.parametrize(
    "text", ["2029-12-31 00:00:00", "2029-12-31T00:00:00Z", "2029-12-31T00:00:00.000000+01:00", ""]
)
def test_row_whose_due_time_sorts_wrong_is_set_aside(bench: Any, text: str) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (id,) = await b.insert({})
        await b.set_raw(id, due=text)
        claim = await b.form().claim(limit=5)
        assert (claim.rows, claim.undecodable) == ((), 1)

    bench(test)


def test_due_time_of_three_digits_is_read(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (id,) = await b.insert({})
        await b.set_raw(id, due="2029-12-31T23:59:59.999+00:00")
        (row,) = (await b.form().claim(limit=5)).rows
        assert row.values["due"].microsecond == 999000

    bench(test)


def test_attempt_that_is_no_number_reads_1(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (id,) = await b.insert({})
        await b.set_raw(id, tries="many")
        (row,) = (await b.form(cap=3).claim(limit=5)).rows
        assert (row.attempt, row.counted, row.spent, row.fence.attempt) == (1, True, False, None)
        assert isinstance(row.values["tries"], DecodeError)
        assert await b.rows("tries") == [2]

    bench(test)


def test_row_without_id_is_never_claimed(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(
            ddl="CREATE TABLE {table} (id TEXT PRIMARY KEY, lease TEXT)",
            id=Column("id", type=str),
            group=None,
            priority=None,
            retry_after=None,
            attempt=None,
            payload=None,
        )
        await b.db.execute(f"INSERT INTO {b.name} (id) VALUES (NULL), ('x')")
        claim = await b.form().claim(limit=1)
        assert [row.fence.id for row in claim.rows] == ["x"]

    bench(test)
