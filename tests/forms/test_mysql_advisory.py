"""The advisory lock form on MariaDB and MySQL: names of locks, and what a claim does not wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from advisory_kit import claim_all, create, end, ids, no_locks, opened

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column

pytestmark = pytest.mark.parametrize(
    ("url", "bench"), [("mariadb", "asyncio"), ("mysql", "trio")], indirect=True
)


def test_keys_that_differ_little_are_different(bench: Any) -> None:
    """The servers' own names are cut, folded or compared without case, by kind and version."""

    async def test(b: Any) -> None:
        await create(b, "{owner}", columns=(Column("owner", type=str),))
        long = "x" * 64
        owners = ["a", "A", "a ", "ä", "Ä", "", " ", long, long + "y", "\N{OLD KEY}", "\N{LOCK}"]
        stored = await b.insert(*({"owner": owner} for owner in (*owners, *owners)))
        async with opened(b) as form, opened(b) as other:
            rows = [*await claim_all(form), *await claim_all(other)]
            assert ids(rows) == stored[: len(owners)]
        await no_locks(b)

    bench(test)


def test_a_plain_name_is_the_database_and_the_key(bench: Any) -> None:
    """So that other programs can take it too."""

    async def test(b: Any) -> None:
        await create(b, "j-{id}")
        database = await b.db.fetch_value("SELECT DATABASE()")
        (first, second) = await b.insert({}, {})
        async with b.db.connection() as theirs, opened(b) as form:
            await theirs.fetch("SELECT GET_LOCK($1, 0)", f"{database}.j-{first}")
            assert ids(await claim_all(form)) == [second]
            asked = "SELECT IS_USED_LOCK($1) IS NOT NULL"
            assert await b.db.fetch_value(asked, f"{database}.j-{second}")
            await theirs.fetch("DO RELEASE_ALL_LOCKS()")
            assert ids(await claim_all(form)) == [first]

    bench(test)


def test_rows_in_a_database_that_the_description_names(bench: Any) -> None:
    """Services that come from different databases to one table agree on its keys."""

    async def test(b: Any) -> None:
        database = await b.db.fetch_value("SELECT DATABASE()")
        await create(b)
        (id,) = await b.insert({})
        async with opened(b) as here:
            b.spec = replace(b.spec, schema=database)
            await b.look()
            async with opened(b) as there:
                (row,) = await claim_all(here)
                assert await claim_all(there) == []
                assert (await end(here, row, Settlement(Verb.GIVE_BACK))).result == "written"
                assert ids(await claim_all(there)) == [id]

    bench(test)


def test_a_claim_waits_for_no_row_and_a_move_takes_what_is_there(bench: Any) -> None:
    async def test(b: Any) -> None:
        dead = f"{b.table} dead"
        await create(b, dead=dead, processed_at=Column("done"))
        *locked, gone, moved = await b.insert(*({} for _ in range(5)))
        async with b.locked(*locked), opened(b) as form:
            rows = await claim_all(form)
            assert ids(rows) == [gone, moved]
            await b.set(gone, done=b.now)
            to_dead = Settlement(Verb.MOVE, destination=Destination(table=dead))
            assert [(await end(form, row, to_dead)).result for row in rows] == ["gone", "written"]
        assert await b.rows("id", "tries") == [*((id, 1) for id in locked), (gone, 2)]
        assert await b.rows("id", "tries", table=dead) == [(moved, 2)]
        await no_locks(b)

    bench(test)
