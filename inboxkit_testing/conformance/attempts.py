"""What is counted, caps, and what a crash leaves behind: in every form."""

from __future__ import annotations

from inboxkit import Column
from inboxkit.abc import Settlement

from .bench import FINISH, GIVE_BACK, TO_DEAD, Bench, ids, postpone
from .suite import Conformance, on_bench

__all__ = ["AttemptTests"]


class AttemptTests(Conformance):
    """What is counted, caps, and what a crash leaves behind."""

    @on_bench
    async def test_attempts_as_read_and_as_stored(self, b: Bench) -> None:
        await b.create()
        await b.insert({})
        for number in (1, 2, 3):
            row = await b.claim_one()
            assert (row.attempt, row.counted) == (number, True)
            assert await b.rows("tries") == [number + b.rules.in_work - 1]
            await b.settle(row, GIVE_BACK if number == 1 else postpone(0))
            assert await b.rows("tries") == [number + b.rules.after_retry - 1]

    @on_bench
    async def test_row_past_its_cap_is_spent_and_not_counted(self, b: Bench) -> None:
        await b.create()
        await b.insert({"tries": 2}, {"tries": 3}, {"tries": 4}, {"tries": 9})
        rows = await b.claim(9, cap=3)
        found = [(row.attempt, row.counted, row.spent) for row in rows]
        assert found == [(2, True, False), (3, True, False), (4, False, True), (9, False, True)]
        more = b.rules.in_work - 1
        stored = [2 + more, 3 + more, 4, 9]
        assert await b.rows("tries") == stored
        assert [row.fence.attempt for row in rows] == stored
        assert (await b.settle(rows[2], TO_DEAD)).result == "written"
        assert (await b.release(rows[3], give_back=False)).result == "written"
        groups = ["a", "a", "dead", "a"]
        assert await b.rows("tries", "grp") == list(zip(stored, groups, strict=True))

    @on_bench
    async def test_null_attempt_reads_1(self, b: Bench) -> None:
        await b.create(nullable=True)
        ends: list[Settlement | bool] = [True, False, GIVE_BACK]
        await b.insert(*({"tries": None} for _ in ends))
        rows = await b.claim(3, cap=3)
        assert [(r.attempt, r.spent, r.fence.attempt) for r in rows] == [(1, False, None)] * 3
        for row, end in zip(rows, ends, strict=True):
            if isinstance(end, bool):
                assert (await b.release(row, give_back=end)).result == "written"
            else:
                assert (await b.settle(row, end)).result == "written"
        assert [row.attempt for row in await b.claim(3, cap=3)] == [1, 2, 2]

    @on_bench
    async def test_row_of_a_crashed_holder_comes_back(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({})
        row = await b.claim_one()
        await b.crash(row)
        if b.rules.back_after_crash:
            b.advance(seconds=b.rules.back_after_crash, microseconds=-1)
            assert ids(await b.claim(by="two")) == []
            b.advance(milliseconds=1)
        again = await b.claim_one(by="two")
        assert (again.fence.id, again.attempt) == (id, b.rules.after_crash)

    @on_bench
    async def test_late_holder_writes_nothing(self, b: Bench) -> None:
        await b.create(processed_at=Column("done"))
        await b.insert(*({} for _ in range(5)))
        late = await b.claim(5)
        for row in late:
            await b.crash(row)
        b.advance(seconds=31)
        new = await b.claim(5, by="two")
        assert ids(new) == ids(late)
        columns = ("grp", "due", "tries", "done", "lease")
        stored = await b.rows(*columns)
        renewal = await b.form().renew([(row.fence, row.reading) for row in late], timeout=5)
        assert renewal.lost == set(ids(late))
        ends = zip(late, (FINISH, GIVE_BACK, postpone(9), TO_DEAD), strict=False)
        results = {end.verb.value: (await b.settle(row, end)).result for row, end in ends}
        results["release"] = (await b.release(late[4], give_back=True)).result
        assert results == dict.fromkeys(results, "lost")
        assert await b.rows(*columns) == stored
        assert [(await b.settle(row, FINISH)).result for row in new] == ["written"] * 5
        assert None not in await b.rows("done")
