"""The ends of rows under an advisory lock: what is written, and that the key is let go."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import anyio
import pytest
from advisory_kit import FINISH, claim_all, create, end, ids, no_locks, opened

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column
from inboxkit.errors import DatabaseError

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "mariadb"], indirect=True)

ENDINGS: dict[str, tuple[Settlement, list[Any]]] = {
    "finish": (FINISH, []),
    "retry": (Settlement(Verb.GIVE_BACK), [(2, 0, "a")]),
    "hold": (Settlement(Verb.HOLD, timedelta(seconds=5)), [(2, 0, "a")]),
    "postpone": (Settlement(Verb.POSTPONE, timedelta(seconds=5)), [(2, 65, "a")]),
    "group": (Settlement(Verb.MOVE, destination=Destination(group="dead")), [(2, 0, "dead")]),
    "table": (Settlement(Verb.MOVE, destination=Destination(table="")), []),
}
"""And what is left: attempt, seconds until the due time, group."""


@pytest.mark.parametrize("kind", ENDINGS)
def test_each_settlement_writes_the_row_and_lets_the_key_go(bench: Any, kind: str) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({})
        start = b.now
        ending, left = ENDINGS[kind]
        if kind == "table":
            dead = b.dialect.quote(f"{b.table} dead")
            ending = Settlement(Verb.MOVE, destination=Destination(table=f"{b.table} dead"))
            await b.db.execute(f"CREATE TABLE {dead} AS SELECT * FROM {b.name} WHERE 1 = 0")
            b.tables.append(f"{b.table} dead")
        async with opened(b) as form:
            (row,) = (await form.claim(limit=1)).rows
            b.advance(seconds=60)
            settled = await end(form, row, ending)
            assert (settled.result, settled.error) == ("written", None)
            postponed = b.now + ending.delay if ending.verb is Verb.POSTPONE else None
            assert settled.due == postponed
            assert (await end(form, row)).result == "lost"
            await no_locks(b)
            stored = [(tries, start + timedelta(seconds=due), group) for tries, due, group in left]
            assert await b.rows("tries", "due", "grp") == stored
            if kind == "table":
                moved = await b.db.fetch(f"SELECT id, tries FROM {dead}")
                assert [tuple(one) for one in moved] == [(row.fence.id, 2)]

    bench(test)


def test_finished_rows_stay_and_are_not_written_again(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b, processed_at=Column("done"))
        kept, gone, stamped = await b.insert({}, {}, {})
        async with opened(b) as form:
            rows = await claim_all(form)
            await b.db.execute(f"DELETE FROM {b.name} WHERE id = {gone}")
            await b.set(stamped, done=b.now - timedelta(days=1))
            assert [(await end(form, row)).result for row in rows] == ["written", "gone", "gone"]
        times = [b.now - timedelta(days=n) for n in (0, 1)]
        assert await b.rows("id", "done") == [(kept, times[0]), (stamped, times[1])]
        await no_locks(b)

    bench(test)


def test_release_takes_the_count_back_or_leaves_it(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        back, counted, mended, null = await b.insert({}, {}, {}, {})
        await b.db.execute(f"ALTER TABLE {b.name} ADD COLUMN x integer")
        async with opened(b) as form:
            rows = await claim_all(form)
            await b.set(mended, tries=5)  # by an operator, meanwhile
            flags = [True, False, True, True]
            done = [
                (await form.release([(r.fence, f)]))[0] for r, f in zip(rows, flags, strict=True)
            ]
            assert {one.result for one in done} == {"written"}
            await no_locks(b)
            assert await b.rows("tries") == [1, 2, 5, 1]
            assert ids(await claim_all(form)) == [back, counted, mended, null]

    bench(test)


def test_settlement_that_fails_lets_the_key_go(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        (id,) = await b.insert({})
        if not b.is_sqlite:
            child = b.dialect.quote(b.table + " child")
            await b.db.execute(f"CREATE TABLE {child} (id bigint REFERENCES {b.name} (id))")
            b.tables.insert(0, b.table + " child")
            await b.db.execute(f"INSERT INTO {child} VALUES ({id})")
        else:
            await b.db.execute(
                f"CREATE TRIGGER {b.dialect.quote(b.table + ' no')} BEFORE DELETE ON {b.name} "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        async with opened(b) as form:
            (row,) = (await form.claim(limit=1)).rows
            settled = await end(form, row)
            assert settled.result == "failed"
            assert isinstance(settled.error, DatabaseError)
            await no_locks(b)
            assert [row.attempt for row in await claim_all(form)] == [2]

    bench(test)


async def pid_of(b: Any, form: Any) -> Any:
    """The server's session of the row in work."""
    (hold,) = form._holds.values()
    return await b.lender.number(hold.session)


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "not noticed"])
def test_session_that_ends_loses_its_row(server: Any, is_noticed: bool) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({})
        async with opened(b) as form, opened(b) as other:
            (row,) = (await form.claim(limit=1)).rows
            await b.lender.kill(await pid_of(b, form))
            if is_noticed:
                with anyio.fail_after(5):
                    while not (await form.renew([(row.fence, row.reading)], timeout=1)).lost:
                        await anyio.lowlevel.checkpoint()
            (again,) = (await other.claim(limit=1)).rows
            assert again.attempt == 2
            settled = await end(form, row)
            assert settled.result in ({"lost"} if is_noticed else {"lost", "unknown", "failed"})
            assert (await end(form, row)).result == "lost"
            assert await b.rows("tries") == [3]
            assert (await end(other, again)).result == "written"

    server(test)


def test_key_that_the_session_does_not_have_is_reported(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({})
        async with opened(b) as form:
            (row,) = (await form.claim(limit=1)).rows
            (hold,) = form._holds.values()
            await hold.session.execute(
                form._statements.unlock(hold.key)  # as behind a pooler of transactions
            )
            with caplog.at_level(logging.WARNING, "inboxkit"):
                assert (await end(form, row)).result == "written"
            assert hold.session.is_closed
            assert f"jobs-{row.fence.id}" in caplog.text

    server(test)
