"""FIFO groups in the lease form: one row of a group in work at a time, in order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import Column

FINISH = Settlement(Verb.FINISH)


def ids(claim: Any) -> list[Any]:
    return [row.fence.id for row in claim.rows]


def test_claim_takes_the_head_alone(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        first, second, other = await b.insert({}, {}, {"grp": "b"})
        form = b.form()
        claim = await form.claim(limit=10)
        assert ids(claim) == [first]
        assert ids(await form.claim(limit=10)) == []
        assert ids(await b.form("b").claim(limit=10)) == [other]
        await form.settle([(claim.rows[0].fence, FINISH)])
        assert ids(await form.claim(limit=10)) == [second]

    bench(test)


def test_head_that_is_not_due_holds_its_group(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        head, _behind = await b.insert(
            {"prio": 0, "due": b.now + timedelta(seconds=5)}, {"prio": 1, "due": b.now}
        )
        assert ids(await b.form().claim(limit=1)) == []
        b.advance(seconds=5)
        assert ids(await b.form().claim(limit=1)) == [head]

    bench(test)


def test_row_ahead_of_the_one_in_work_waits_for_it(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        await b.insert({"prio": 5})
        form = b.form()
        claim = await form.claim(limit=1)
        (ahead,) = await b.insert({"prio": 1})
        assert ids(await form.claim(limit=1)) == []
        await form.settle([(claim.rows[0].fence, FINISH)])
        assert ids(await form.claim(limit=1)) == [ahead]

    bench(test)


def test_finished_rows_do_not_hold_their_group(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True, processed_at=Column("done"))
        first, second = await b.insert({}, {})
        form = b.form()
        claim = await form.claim(limit=1)
        await form.settle([(claim.rows[0].fence, FINISH)])
        assert await b.rows("id", "lease") == [(first, None), (second, None)]
        assert ids(await form.claim(limit=1)) == [second]

    bench(test)


def test_ownerless_lease_keeps_the_rows_place(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        head, _behind = await b.insert({}, {})
        form = b.form()
        claim = await form.claim(limit=1)
        hold = Settlement(Verb.HOLD, timedelta(seconds=7))
        (settled,) = await form.settle([(claim.rows[0].fence, hold)])
        assert settled.due is not None
        assert timedelta(seconds=7) <= settled.due - b.now < timedelta(seconds=7.001)
        assert ids(await form.claim(limit=1)) == []
        b.advance(seconds=7.001)
        assert ids(await form.claim(limit=1)) == [head]

    bench(test)


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


def test_group_at_which_another_claim_is_gives_nothing(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        (id,) = await b.insert({})
        if not b.is_postgres:
            return
        async with b.db.transaction() as other:
            await other.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))",
                f'"public".{b.name}:a',
            )
            assert ids(await b.form().claim(limit=1)) == []
        assert ids(await b.form().claim(limit=1)) == [id]

    bench(test)
