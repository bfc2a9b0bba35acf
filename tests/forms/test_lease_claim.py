"""The lease form's claim, on every database."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from inboxkit_testing.conformance import FINISH, SECOND, ids


def test_claim_writes_an_expiry_that_is_its_token(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (id,) = await b.insert({"tries": 4})
        (row,) = (await b.form(step=6).claim(limit=1)).rows
        expiry = b.now + timedelta(seconds=30, microseconds=7)
        assert (row.fence.id, row.fence.tokens, row.fence.attempt) == (id, (expiry,), 5)
        assert (row.fence.hold, row.values["lease"]) == (None, None)
        assert await b.rows("lease", "tries") == [(expiry, 5)]

    bench(test)


def test_claim_takes_an_ended_lease_and_no_lease_in_force(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        ended, just, force = await b.insert({}, {}, {})
        await b.set(ended, lease=b.now - timedelta(days=1))
        await b.set(just, lease=b.now)
        await b.set(force, lease=b.now + timedelta(microseconds=1))
        assert ids(await b.form().claim(limit=10)) == [ended, just]

    bench(test)


@pytest.mark.parametrize("cap", [None, 2**70])
def test_attempt_saturates_at_its_columns_maximum(bench: Any, cap: int | None) -> None:
    async def test(b: Any) -> None:
        largest = 2**63 - 1 if b.dialect.name == "sqlite" else 2**31 - 1
        await b.create()
        await b.insert({"tries": largest - 1}, {"tries": largest})
        claim = await b.form(cap=cap).claim(limit=10)
        assert await b.rows("tries") == [largest, largest]
        assert [(row.attempt, row.counted) for row in claim.rows] == [
            (largest - 1, True),
            (largest, False),
        ]
        done = [(row.fence, FINISH) for row in claim.rows]
        assert {one.result for one in await b.form().settle(done)} == {"written"}

    bench(test)


def test_claims_agree_whatever_indexes_there_are(bench: Any) -> None:
    """On Postgres the claim takes another shape where an index on the lease stands."""

    async def test(b: Any) -> None:
        rng = random.Random(5)
        await b.create()
        times = [None, *(b.now + n * SECOND for n in range(-3, 3))]
        rows = await b.insert(
            *(
                {"prio": rng.randrange(3), "due": b.now + rng.randrange(-3, 2) * SECOND}
                for _ in range(60)
            )
        )
        for id in rows:
            if (lease := rng.choice(times)) is not None:
                await b.set(id, lease=lease)
        stored = await b.rows("prio", "due", "id", "lease", "tries")
        now = b.now
        expected = [
            row[2]
            for row in sorted(stored, key=lambda row: row[:3])
            if row[1] <= now and (row[3] is None or row[3] <= now)
        ]
        before = await b.rows("lease")
        assert ids(await b.form().claim(limit=20)) == expected[:20]
        if b.is_postgres:
            for id, lease in zip(rows, before, strict=True):
                await b.set(id, lease=lease)
            await b.db.execute(f"DROP INDEX {b.dialect.quote(b.table + '_lease')}")
            await b.look()
            assert ids(await b.form().claim(limit=20)) == expected[:20]

    bench(test)
