"""Keys of advisory locks: rows of one key are in work one at a time, whoever serves them."""

from __future__ import annotations

from typing import Any

from inboxkit import Column

from .bench import FINISH, GIVE_BACK, TO_DEAD, Bench, hold, ids, postpone
from .suite import Conformance, on_bench

__all__ = ["KeyTests"]


def by_owner(b: Bench) -> dict[str, Any]:
    """A description whose key is made of a column that rows share."""
    owner = Column("owner", type=str)
    return {"columns": (owner,), "advisory_lock": b.table + "{{-}}{owner}"}


class KeyTests(Conformance):
    """Rows of one key are in work one at a time, whoever serves them."""

    @on_bench
    async def test_rows_of_one_key_are_in_work_one_at_a_time(self, b: Bench) -> None:
        await b.create(**by_owner(b))
        ends = (FINISH, GIVE_BACK, postpone(1), hold(1), TO_DEAD, True, False)
        await b.insert({"owner": "x"}, *({"owner": "x"} for _ in ends))
        for end in ends:
            row = await b.claim_one(5)
            assert ids(await b.claim(5, by="two")) == []
            if isinstance(end, bool):
                await b.release(row, give_back=end)
            else:
                await b.settle(row, end)
        row = await b.claim_one(5, by="two")
        await b.crash(row)
        assert len(await b.claim(5)) == 1

    @on_bench
    async def test_keys_in_work_hide_no_rows_behind_them(self, b: Bench) -> None:
        await b.create(**by_owner(b))
        owners = "xxxxyyyz"
        stored = await b.insert(*({"owner": owner} for owner in owners))
        assert ids(await b.claim(2)) == [stored[0], stored[4]]
        last = await b.claim_one(5, by="two")
        assert last.fence.id == stored[7]
        assert ids(await b.claim(5, by="three")) == []
        await b.settle(last, FINISH)
        assert await b.rows("tries") == [2, 1, 1, 1, 2, 1, 1]

    @on_bench
    async def test_null_in_a_key_is_empty_text(self, b: Bench) -> None:
        await b.create(nullable=True, **by_owner(b))
        first, _, other = await b.insert({"owner": None}, {"owner": ""}, {"owner": "-"})
        assert ids(await b.claim(5)) == [first, other]
