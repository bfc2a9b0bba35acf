"""Which rows a claim takes, in which order, and what it says of them: in every form."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from inboxkit import Column
from inboxkit.errors import DecodeError

from .bench import FINISH, SECOND, Bench, ids, postpone
from .suite import Conformance, on_bench

__all__ = ["ClaimTests"]

MICROSECOND = timedelta(microseconds=1)


class ClaimTests(Conformance):
    """Which rows a claim takes, in which order, and what it says of them."""

    @on_bench
    async def test_claim_order_is_priority_then_due_time_then_id(self, b: Bench) -> None:
        await b.create()
        now = b.now
        later, never, first, tie, urgent = await b.insert(
            {"prio": 5, "due": now - SECOND},
            {"prio": 5, "due": now + SECOND},
            {"prio": 5, "due": now - 2 * SECOND},
            {"prio": 5, "due": now - SECOND},
            {"prio": -1, "due": now},
        )
        assert ids(await b.claim(10)) == [urgent, first, later, tie]
        assert ids(await b.claim(10)) == []
        b.advance(seconds=1)
        assert ids(await b.claim(10)) == [never]

    @on_bench
    async def test_null_priority_and_null_due_time_come_first(self, b: Bench) -> None:
        await b.create(nullable=True)
        priority, due, null = {"prio": 0}, {"due": b.now - SECOND}, {"due": b.now}
        both, second, third, last = await b.insert(null, {"prio": None} | due, null, priority)
        await b.set(both, prio=None, due=None)
        await b.set(third, due=None)
        assert ids(await b.claim(10)) == [both, second, third, last]

    @on_bench
    async def test_null_due_times_come_first_without_a_priority(self, b: Bench) -> None:
        await b.create(nullable=True, priority=None)
        late, second, first, null, other = await b.insert(
            *({"due": b.now - n * SECOND} for n in range(5))
        )
        await b.set(null, due=None)
        await b.set(other, due=None)
        taken = []
        while rows := await b.claim(2):
            taken += ids(rows)
            for row in rows:
                await b.settle(row, FINISH)
        assert taken == [null, other, first, second, late]

    @on_bench
    async def test_row_is_due_to_the_microsecond(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({"due": b.now + SECOND})
        b.advance(seconds=1, microseconds=-1)
        assert ids(await b.claim()) == []
        b.advance(microseconds=1)
        row = await b.claim_one()
        assert row.reading.now == b.now
        settled = await b.settle(row, postpone(0.000001))
        assert settled.due == b.now + MICROSECOND
        assert ids(await b.claim()) == []
        b.advance(microseconds=1)
        assert ids(await b.claim()) == [id]

    @on_bench
    async def test_claim_takes_at_most_its_limit(self, b: Bench) -> None:
        await b.create()
        stored = await b.insert(*({} for _ in range(4)))
        most = b.rules.rows_a_claim or 3
        claim = await b.claim_once(b.form(), most)
        assert ids(claim) == stored[:most]
        assert (claim.reading.now, claim.undecodable) == (b.now, 0)
        assert ids(await b.claim(9)) == stored[most:]

    @on_bench
    async def test_rows_in_work_are_passed_over_by_every_instance(self, b: Bench) -> None:
        await b.create()
        one, two, three = await b.insert({}, {}, {})
        row = await b.claim_one()
        assert row.fence.id == one
        assert ids(await b.claim(by="two")) == [two]
        await b.settle(row, FINISH)
        assert ids(await b.claim(5, by="two")) == [three]
        assert ids(await b.claim(5)) == []

    @on_bench
    async def test_groups_are_apart_and_finished_rows_stay_out(self, b: Bench) -> None:
        await b.create(processed_at=Column("done"))
        mine, other, done = await b.insert({}, {"grp": "b"}, {})
        await b.set(done, done=b.now)
        assert ids(await b.claim(9, "b")) == [other]
        assert ids(await b.claim(9)) == [mine]
        assert ids(await b.claim(9, "c")) == []

    @on_bench
    async def test_claim_says_how_the_row_stood_before_it(self, b: Bench) -> None:
        await b.create()
        (id,) = await b.insert({"body": b"\x00\xff", "tries": 4, "prio": 3})
        row = await b.claim_one()
        assert (row.attempt, row.counted, row.spent) == (4, True, False)
        assert (row.group, row.key, row.headers, row.payload) == ("a", None, {}, b"\x00\xff")
        expected = {"id": id, "grp": "a", "prio": 3, "due": b.now, "tries": 4, "body": b"\x00\xff"}
        assert {"lease": None} | dict(row.values) == {"lease": None} | expected
        assert await b.rows("tries") == [4 + b.rules.in_work - 1]
        assert row.fence.attempt == 4 + b.rules.in_work - 1

    @on_bench
    async def test_table_with_nothing_but_an_id(self, b: Bench) -> None:
        await b.create(group=None, priority=None, retry_after=None, attempt=None, payload=None)
        first, second = await b.insert({}, {})
        rows = await b.claim(9)
        assert ids(rows) == [first, second]
        for row in rows:
            assert (row.attempt, row.fence.attempt, row.payload) == (None, None, None)
            assert (row.counted, row.spent) == (False, False)
            assert (await b.settle(row, FINISH)).result == "written"
        assert await b.rows("id") == []

    @on_bench
    async def test_values_are_decoded_by_the_description(self, b: Bench) -> None:
        await b.create(
            id=Column("id", type=UUID),
            partition_key=Column("key", type=UUID),
            headers=Column("heads"),
            payload=Column("body", type=str),
            columns=(Column("ok", type=bool), Column("when", type=type(b.now))),
        )
        id, key, heads = UUID(int=7), UUID(int=8), {"a": "1", "ü": "\N{GRINNING FACE}"}
        given = {"id": id, "key": key, "heads": heads, "body": "é", "ok": True, "when": b.now}
        assert await b.insert(given) == [id]
        row = await b.claim_one()
        assert (row.fence.id, row.key, row.headers, row.payload) == (id, key, heads, "é".encode())
        assert {name: row.values[name] for name in given} == given
        assert (await b.settle(row, FINISH)).result == "written"

    @on_bench
    async def test_value_that_cannot_be_decoded_is_an_error_in_its_place(self, b: Bench) -> None:
        await b.create(headers=Column("heads"), columns=(Column("data", type=dict[str, int]),))
        id, healthy = await b.insert(*[{"heads": {"a": "b"}, "data": {}}] * 2)
        await b.spoil(id, "heads")
        await b.spoil(id, "data")
        row, other = await b.claim(2)
        for column in ("heads", "data"):
            error = row.values[column]
            assert isinstance(error, DecodeError)
            assert (error.queue, error.id, error.where) == (b.table, id, column)
        assert (row.fence.id, row.headers, row.payload, row.attempt) == (id, {}, b"{}", 1)
        assert (other.fence.id, other.headers) == (healthy, {"a": "b"})
