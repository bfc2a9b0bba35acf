"""What each settlement and release writes, in every form."""

from __future__ import annotations

from datetime import timedelta

from inboxkit import Column
from inboxkit.abc import Destination, Settlement, Verb

from .bench import FINISH, GIVE_BACK, SECOND, TO_DEAD, Bench, hold, ids, postpone
from .suite import Conformance, on_bench

__all__ = ["SettlementTests"]

IMAGE = ("id", "grp", "prio", "due", "tries", "lease", "body")


class SettlementTests(Conformance):
    """What each settlement and release writes."""

    @on_bench
    async def test_finish_deletes_its_row_alone(self, b: Bench) -> None:
        await b.create()
        _, two, _ = await b.insert({}, {}, {})
        rows = await b.claim(3)
        for row in (rows[0], rows[2]):
            settled = await b.settle(row, FINISH)
            assert (settled.result, settled.due, settled.error) == ("written", None, None)
        assert await b.rows("id") == [two]

    @on_bench
    async def test_finish_stamps_where_finished_rows_stay(self, b: Bench) -> None:
        await b.create(processed_at=Column("done"))
        await b.insert({"tries": 3})
        row = await b.claim_one()
        b.advance(seconds=3)
        assert (await b.settle(row, FINISH)).result == "written"
        assert await b.rows("done", "lease", "tries") == [(b.now, None, 3 + b.rules.in_work - 1)]
        b.advance(days=1)
        assert ids(await b.claim()) == []

    @on_bench
    async def test_give_back_is_claimable_at_once_and_counts(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({"prio": 2})
        row = await b.claim_one()
        due = b.now
        b.advance(seconds=3)
        settled = await b.settle(row, GIVE_BACK)
        assert settled.result == "written"
        assert settled.due in (None, b.now)
        assert await b.rows(*IMAGE) == [(id, "a", 2, due, b.rules.after_retry, None, b"{}")]
        again = await b.claim_one()
        assert (again.fence.id, again.attempt) == (id, 2)

    @on_bench
    async def test_postpone_counts_from_the_settlement(self, b: Bench) -> None:
        await b.create()
        await b.insert({}, {})
        short, endless = await b.claim(2)
        b.advance(seconds=10)
        first = await b.settle(short, postpone(5))
        second = await b.settle(endless, Settlement(Verb.POSTPONE, timedelta.max))
        assert (first.result, second.result) == ("written", "written")
        assert first.due == b.now + 5 * SECOND
        assert second.due is not None
        assert second.due.year == 9999
        tries = b.rules.after_retry
        assert await b.rows("due", "lease", "tries") == [
            (first.due, None, tries),
            (second.due, None, tries),
        ]
        b.advance(seconds=5)
        again = await b.claim_one(5)
        assert (again.fence.id, again.attempt) == (short.fence.id, 2)

    @on_bench
    async def test_row_that_is_held_back_keeps_its_due_time_and_counts(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({})
        due = b.now
        b.advance(seconds=1)
        row = await b.claim_one()
        assert (await b.settle(row, hold(7))).result == "written"
        assert await b.rows("due", "tries") == [(due, b.rules.after_retry)]
        if b.rules.back_after_hold:
            b.advance(seconds=b.rules.back_after_hold, microseconds=-1)
            assert ids(await b.claim()) == []
            b.advance(milliseconds=1)
        again = await b.claim_one()
        assert (again.fence.id, again.attempt) == (id, 2)

    @on_bench
    async def test_move_to_a_group_keeps_the_attempt_as_stored(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({"tries": 3, "prio": 2})
        due = b.now
        row = await b.claim_one(cap=3)
        b.advance(seconds=1)
        settled = await b.settle(row, TO_DEAD)
        assert (settled.result, settled.due) == ("written", None)
        stored = 3 + b.rules.moved - 1
        assert await b.rows(*IMAGE) == [(id, "dead", 2, due, stored, None, b"{}")]
        assert ids(await b.claim()) == []
        dead = await b.claim_one(group="dead")
        assert (dead.fence.id, dead.attempt, dead.spent) == (id, stored, False)

    @on_bench
    async def test_move_to_a_table_takes_every_column_along(self, b: Bench) -> None:
        dead = b.table + " dead"
        await b.create(
            group=None,
            dead=dead,
            columns=(Column("note", type=str, default=""), Column("n", type=int)),
        )
        one, two = await b.insert({"n": 7, "note": "ü", "tries": 3, "prio": 2}, {"n": 8, "prio": 3})
        rows = await b.claim(2)
        move = Settlement(Verb.MOVE, destination=Destination(table=dead))
        assert (await b.settle(rows[0], move)).result == "written"
        assert await b.rows("id") == [two]
        columns = ("id", "prio", "due", "tries", "lease", "body", "note", "n")
        stored = 3 + b.rules.moved - 1
        assert await b.rows(*columns, table=dead) == [(one, 2, b.now, stored, None, b"{}", "ü", 7)]

    @on_bench
    async def test_rows_brought_back_by_hand_begin_anew(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({"tries": 5})
        row = await b.claim_one(cap=5)
        await b.settle(row, TO_DEAD)
        await b.set(id, grp="a", tries=1)
        again = await b.claim_one(cap=5)
        assert (again.fence.id, again.attempt, again.spent) == (id, 1, False)

    @on_bench
    async def test_release_takes_the_count_back_where_asked(self, b: Bench) -> None:
        await b.create()
        await b.insert({}, {})
        given, counted = await b.claim(2)
        b.advance(seconds=2)
        for row, flag in ((given, True), (counted, False)):
            released = await b.release(row, give_back=flag)
            assert released.result == "written"
            assert released.due in (None, b.now)
        expected = [b.rules.after_give_back, b.rules.after_retry]
        assert await b.rows("tries", "lease") == [(number, None) for number in expected]
        assert [row.attempt for row in await b.claim(2)] == [1, 2]

    @on_bench
    async def test_table_without_attempts_gives_rows_back_as_they_were(self, b: Bench) -> None:
        await b.create(attempt=None)
        ends: list[Settlement | bool] = [GIVE_BACK, postpone(0), hold(0), True, False]
        stored = await b.insert(*({} for _ in ends))
        for row, end in zip(await b.claim(9), ends, strict=True):
            if isinstance(end, bool):
                assert (await b.release(row, give_back=end)).result == "written"
            else:
                assert (await b.settle(row, end)).result == "written"
        b.advance(milliseconds=1)  # a lease of no length ends some microseconds late
        rows = await b.claim(9)
        assert ids(rows) == stored
        assert {row.attempt for row in rows} == {None}

    @on_bench
    async def test_nothing_to_settle_is_no_settlement(self, b: Bench) -> None:
        await b.create()
        assert await b.form().settle([]) == []
        assert await b.form().release([]) == []
        renewal = await b.form().renew([], timeout=5)
        assert (renewal.reading, renewal.lost, renewal.failed) == (None, frozenset(), frozenset())
