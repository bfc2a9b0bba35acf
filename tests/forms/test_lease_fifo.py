"""FIFO groups in the lease form: one row of a group in work at a time, in order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from inboxkit_testing.conformance import ids


def test_renewal_of_a_group_that_was_taken_over_is_lost(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        await b.insert({"prio": 5})
        form = b.form()
        (old,) = (await form.claim(limit=1)).rows
        b.advance(seconds=31)
        (ahead,) = await b.insert({"prio": 1, "due": b.now})
        claim = await form.claim(limit=1)
        assert ids(claim) == [ahead]
        renewal = await form.renew([(old.fence, old.reading)], timeout=5)
        assert renewal.lost == {old.fence.id}
        (new,) = claim.rows
        renewal = await form.renew([(new.fence, new.reading)], timeout=5)
        assert set(renewal.renewed) == {ahead}

    bench(test)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_group_at_which_another_claim_is_gives_nothing(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        (id,) = await b.insert({})
        async with b.db.transaction() as other:
            await other.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))",
                f'"public".{b.name}:a',
            )
            assert ids(await b.form().claim(limit=1)) == []
        assert ids(await b.form().claim(limit=1)) == [id]

    bench(test)


@pytest.mark.parametrize(
    ("url", "bench"), [("mariadb", "asyncio"), ("mysql", "trio")], indirect=True
)
def test_rows_that_are_locked_hold_no_other_group(bench: Any) -> None:
    """As by a transaction of a handler, for as long as that takes; whether they are next to the
    group's in an index or not."""

    async def test(b: Any) -> None:
        await b.create(fifo=True)
        rows = await b.insert(*({"grp": grp} for grp in "aabbcc"))
        for id, seconds in ((rows[0], 60), (rows[4], 60), (rows[1], -60)):
            await b.set(id, lease=b.now + timedelta(seconds=seconds))
        async with b.locked(*rows[:2], *rows[4:]):
            (row,) = (await b.form("b").claim(limit=1)).rows
        assert row.fence.id == rows[2]

    bench(test)
