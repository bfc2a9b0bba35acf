"""FIFO groups: one row of a group in work at a time, in order; in the forms that serve them."""

from __future__ import annotations

from inboxkit import Column

from .bench import FINISH, GIVE_BACK, SECOND, TO_DEAD, Bench, hold, ids, postpone
from .suite import Conformance, on_bench

__all__ = ["FifoTests"]


class FifoTests(Conformance):
    """One row of a group in work at a time, in order."""

    @on_bench
    async def test_claim_takes_the_head_or_nothing(self, b: Bench) -> None:
        await b.create(fifo=True)
        first, second, other = await b.insert({}, {}, {"grp": "b"})
        row = await b.claim_one(10)
        assert row.fence.id == first
        assert ids(await b.claim(10)) == []
        assert ids(await b.claim(10, by="two")) == []
        assert ids(await b.claim(10, "b", by="two")) == [other]
        await b.settle(row, FINISH)
        assert ids(await b.claim(10, by="two")) == [second]

    @on_bench
    async def test_head_that_is_not_due_holds_its_group(self, b: Bench) -> None:
        await b.create(fifo=True)
        head, _ = await b.insert({"prio": 0, "due": b.now + 5 * SECOND}, {"prio": 1, "due": b.now})
        assert ids(await b.claim()) == []
        b.advance(seconds=5)
        assert ids(await b.claim()) == [head]

    @on_bench
    async def test_null_due_time_is_the_head(self, b: Bench) -> None:
        await b.create(fifo=True, nullable=True, priority=None)
        earlier, null = await b.insert({"due": b.now - SECOND}, {})
        await b.set(null, due=None)
        row = await b.claim_one()
        assert row.fence.id == null
        await b.settle(row, FINISH)
        assert ids(await b.claim()) == [earlier]

    @on_bench
    async def test_row_ahead_of_the_one_in_work_waits_for_it(self, b: Bench) -> None:
        await b.create(fifo=True)
        (behind,) = await b.insert({"prio": 5})
        row = await b.claim_one()
        (ahead,) = await b.insert({"prio": 1})
        assert ids(await b.claim()) == []
        assert ids(await b.claim(by="two")) == []
        await b.settle(row, GIVE_BACK)
        row = await b.claim_one(by="two")
        assert row.fence.id == ahead
        await b.settle(row, FINISH)
        assert ids(await b.claim()) == [behind]

    @on_bench
    async def test_retry_keeps_its_place_and_postponing_moves_it_behind(self, b: Bench) -> None:
        await b.create(fifo=True)
        first, second = await b.insert({}, {})
        for end in (GIVE_BACK, hold(7)):
            row = await b.claim_one()
            assert row.fence.id == first
            await b.settle(row, end)
        if b.rules.back_after_hold:
            assert ids(await b.claim()) == []
            b.advance(seconds=b.rules.back_after_hold, milliseconds=1)
        row = await b.claim_one()
        assert (row.fence.id, row.attempt) == (first, 3)
        await b.settle(row, postpone(1))
        row = await b.claim_one()
        assert row.fence.id == second
        await b.settle(row, FINISH)
        assert ids(await b.claim()) == []
        b.advance(seconds=1)
        assert ids(await b.claim()) == [first]

    @on_bench
    async def test_released_head_is_the_head_again(self, b: Bench) -> None:
        await b.create(fifo=True)
        first, _ = await b.insert({}, {})
        for give_back in (True, False):
            row = await b.claim_one()
            assert row.fence.id == first
            await b.release(row, give_back=give_back)

    @on_bench
    async def test_dead_and_finished_rows_do_not_hold_their_group(self, b: Bench) -> None:
        await b.create(fifo=True, processed_at=Column("done"))
        first, second, third = await b.insert({}, {}, {})
        for id, end in ((first, FINISH), (second, TO_DEAD), (third, FINISH)):
            row = await b.claim_one()
            assert row.fence.id == id
            await b.settle(row, end)
        assert ids(await b.claim()) == []
        assert ids(await b.claim(5, "dead")) == [second]

    @on_bench
    async def test_group_of_a_crashed_holder_goes_on_with_its_row(self, b: Bench) -> None:
        await b.create(fifo=True)
        first, _ = await b.insert({}, {})
        row = await b.claim_one()
        await b.crash(row)
        if b.rules.back_after_crash:
            assert ids(await b.claim(by="two")) == []
            b.advance(seconds=b.rules.back_after_crash, milliseconds=1)
        again = await b.claim_one(5, by="two")
        assert (again.fence.id, again.attempt) == (first, b.rules.after_crash)
