"""The claims of the advisory lock form: what holds a row is a key, of a session or of this process."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import anyio
import pytest
from advisory_kit import FINISH, Watched, claim_all, create, end, ids, locks, no_locks, opened

from inboxkit._core.spec import Column
from inboxkit._sql.mysql.lock_names import try_lock
from inboxkit.database import Database
from inboxkit.errors import DatabaseError

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "mariadb"], indirect=True)


def test_rows_are_claimed_one_by_one_in_claim_order(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b, processed_at=Column("done"))
        late, second, first, other, coming, done = await b.insert(
            {"prio": 2, "tries": 7},
            {"prio": 1, "due": b.now},
            {"prio": 1, "due": b.now - timedelta(seconds=1)},
            {"grp": "b"},
            {"due": b.now + timedelta(seconds=1)},
            {},
        )
        await b.set(done, done=b.now)
        async with opened(b) as form, opened(b, group="b") as beside:
            rows = await claim_all(form)
            assert ids(rows) == [first, second, late]
            assert [(row.attempt, row.fence.attempt, row.counted) for row in rows] == [
                (1, 2, True),
                (1, 2, True),
                (7, 8, True),
            ]
            assert {row.fence.tokens for row in rows} == {()}
            assert len({row.fence.hold for row in rows}) == 3
            assert rows[0].payload == b"{}"
            assert rows[0].values["tries"] == 1
            assert form.lease is None
            assert ids(await claim_all(beside)) == [other]
            assert await locks(b) == 4
            b.advance(seconds=1)
            assert ids(await claim_all(form)) == [coming]
            renewal = await form.renew([(row.fence, row.reading) for row in rows], timeout=1)
            assert (renewal.lost, dict(renewal.renewed)) == (frozenset(), {})
        await no_locks(b)  # a form that closes lets go of all
        assert await b.rows("tries") == [8, 2, 2, 2, 2, 1]

    bench(test)


@pytest.mark.parametrize("index", ["of the due times", "none"])
def test_claim_order_with_due_times_that_are_null(bench: Any, index: str) -> None:
    async def test(b: Any) -> None:
        await create(b, priority=None)
        if index == "none":
            await b.db.execute(f"DROP INDEX {b.dialect.quote(b.table + '_queue')}" + on(b))
            b.info = await b.db.run(b.dialect.describe(b.spec))
        at = [b.now - timedelta(seconds=n) for n in range(3)]
        one, two, three, four, five = await b.insert(*({"due": at[0]} for _ in range(5)))
        await b.set(one, due=at[1])
        await b.set(two, due=None)
        await b.set(three, due=at[2])
        await b.set(four, due=None)
        async with opened(b) as form:
            assert ids(await claim_all(form)) == [two, four, three, one, five]

    bench(test)


def on(b: Any) -> str:
    """What MariaDB wants to be told of an index."""
    return f" ON {b.name}" if b.is_mysql else ""


KEYS = ["{account}", "a 'quoted' \\ {{key}} {account}-{n}-{when}-{raw}"]


@pytest.mark.parametrize("key", KEYS, ids=["one column", "all kinds"])
def test_one_row_of_a_key_is_in_work_whoever_claims(bench: Any, url: str, key: str) -> None:
    names = {"account": 'Schlüssel \N{SNOWMAN}"`'}

    async def test(b: Any) -> None:
        columns = (
            Column(names["account"], type=str),
            Column("n", type=int),
            Column("when", type=type(b.now)),
            Column("raw", type=bytes),
        )
        await create(b, key, columns=columns, fields=names)
        same = {"n": 1, "when": b.now, "raw": b"\xff"}
        first, second, third, null, other_null = await b.insert(
            {names["account"]: "x'", **same},
            {names["account"]: "x'", **same},
            {names["account"]: "x'", **same},
            {names["account"]: None, **same},
            {names["account"]: None, **same},
        )
        async with (
            Database(url, clock=b.clock) as db,
            opened(b) as one,
            opened(b, db) as two,
        ):
            if b.is_mysql:
                await db.execute("SET time_zone = '+05:45', character_set_connection = latin1")
            if b.is_postgres:  # another session's settings do not change a key
                await db.execute("SET TimeZone = 'Asia/Kathmandu'")
                await db.execute("SET bytea_output = 'escape'")
            (held,) = (await one.claim(limit=1)).rows
            others = await claim_all(two)
            assert ids([held, *others]) == [first, null]
            assert await claim_all(one) == []
            assert (await end(one, held)).result == "written"
            rows = await claim_all(two)
            assert ids(rows) == [second]
            for row in (*others, *rows):
                assert (await end(two, row)).result == "written"
            assert ids(await claim_all(one)) == [third, other_null]
        await no_locks(b)

    bench(test)


def test_many_rows_of_a_key_in_work_do_not_hide_the_rows_behind(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b, "{n}", columns=(Column("n", type=int),))
        first, *_, behind = await b.insert(*({"n": 1} for _ in range(30)), {"n": 2})
        async with opened(b) as form, opened(b) as other:
            assert ids(list((await form.claim(limit=1)).rows)) == [first]
            assert ids(await claim_all(other)) == [behind]
            assert await claim_all(form) == []

    bench(test)


def test_claims_side_by_side_take_different_rows(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        stored = await b.insert(*({} for _ in range(8)))
        found: list[Any] = []

        async with opened(b) as one, opened(b) as two:

            async def claim(form: Any) -> None:
                found.extend((await form.claim(limit=1)).rows)

            while len(found) < len(stored):
                async with anyio.create_task_group() as tasks:
                    for form in (one, two, one, two):
                        tasks.start_soon(claim, form)
        assert sorted(ids(found)) == stored
        assert await b.rows("tries") == [2] * 8

    bench(test)


def test_claim_does_not_count_a_row_past_its_cap(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({"tries": 2}, {"tries": 3}, {"tries": 4}, {"tries": 9})
        async with opened(b, cap=3) as form:
            rows = await claim_all(form)
            assert [(row.attempt, row.counted, row.spent) for row in rows] == [
                (2, True, False),
                (3, True, False),
                (4, False, True),
                (9, False, True),
            ]
            assert await b.rows("tries") == [3, 4, 4, 9]

    bench(test)


def test_attempt_saturates_and_a_null_one_reads_1(bench: Any) -> None:
    async def test(b: Any) -> None:
        key = "bigint GENERATED BY DEFAULT AS IDENTITY" if b.is_postgres else "INTEGER"
        key = "bigint AUTO_INCREMENT" if b.is_mysql else key
        await create(
            b,
            ddl=f"CREATE TABLE {{table}} (id {key} PRIMARY KEY, tries smallint)",
            group=None,
            priority=None,
            retry_after=None,
            payload=None,
        )
        most = 2**63 - 1 if b.db.dialect == "sqlite" else 2**15 - 1
        await b.insert({"tries": most - 1}, {"tries": most}, {"tries": None})
        async with opened(b) as form:
            rows = await claim_all(form)
            assert [(row.attempt, row.counted) for row in rows] == [
                (most - 1, True),
                (most, False),
                (1, True),
            ]
            assert await b.rows("tries") == [most, most, 2]
            await form.release([(row.fence, row.counted) for row in rows])
            assert await b.rows("tries") == [most - 1, most, 1]

    bench(test)


def test_table_without_attempt_and_claims_of_several(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b, group=None, priority=None, retry_after=None, attempt=None, payload=None)
        stored = await b.insert({}, {}, {})
        async with opened(b) as form:
            rows = [*(await form.claim(limit=2)).rows, *await claim_all(form)]
            assert ids(rows) == stored
            assert {(row.attempt, row.fence.attempt, row.counted) for row in rows} == {
                (None, None, False)
            }
            await form.release([(rows[0].fence, True)])
            assert [(await end(form, row)).result for row in rows[1:]] == ["written"] * 2
        assert await b.rows("id") == stored[:1]
        await no_locks(b)

    bench(test)


CHANGES = {
    "finished": "UPDATE {} SET done = due",
    "gone": "DELETE FROM {}",
    "moved": "UPDATE {} SET grp = 'b'",
    "postponed": "UPDATE {} SET due = DATE '2040-01-01'",
    "of another key": "UPDATE {} SET n = n + 1",
}


def test_row_that_has_changed_when_its_key_is_got_is_not_taken_as_it_was(server: Any) -> None:
    """On SQLite candidates are read, and taken, under one write lock."""

    async def test(b: Any) -> None:
        await create(b, "{n}", columns=(Column("n", type=int),), processed_at=Column("done"))
        for kind, text in CHANGES.items():
            await b.insert({"n": 1})

            async def change(name: str, text: str = text) -> None:
                if name == "claim lock":
                    await b.db.execute(text.format(b.name))

            async with opened(b, Watched(b.db, change)) as form:
                claim = await form.claim(limit=1)
                assert claim.rows == (), kind
                assert await locks(b) == 0
                assert await b.rows("tries") in ([1], []), kind
                await b.db.execute(f"DELETE FROM {b.name}")

    server(test)


def test_rows_that_another_transaction_has_locked_are_passed_over(server: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        *others, free = await b.insert(*({} for _ in range(6)))
        async with b.locked(*others), opened(b) as form:
            assert ids(await claim_all(form)) == [free]

    server(test)


@pytest.mark.parametrize("roles", [{}, {"priority": None}], ids=["one part", "two parts"])
def test_one_key_is_locked_and_not_that_of_every_due_row(
    server: Any, roles: dict[str, Any]
) -> None:
    """In parts, where due times and NULLs are looked at apart."""

    async def test(b: Any) -> None:
        await create(b, **roles)
        stored = await b.insert(*({} for _ in range(50)))
        await b.db.execute(f"UPDATE {b.name} SET due = NULL WHERE id > {stored[25]}")
        async with opened(b) as form:
            rows = list((await form.claim(limit=3)).rows)
            assert ids(rows) == stored[26:29]
            if b.is_mysql:  # all are asked for, not only those that the form has noted
                tries = [try_lock("try", form._table, f"jobs-{id}") for id in stored]
                b.locks |= {(one.text, one.parameters) for one in tries}
            assert await locks(b) == 3
            await form.settle([(row.fence, FINISH) for row in rows])
        await no_locks(b)

    server(test)


def test_claims_side_by_side_take_a_statement_for_each_step(server: Any) -> None:
    """However many keys are in others' hands: by the key, the row, its end and the key's end."""

    async def test(b: Any) -> None:
        await create(b)
        jobs, names = 40, Counter[str]()
        await b.insert(*({} for _ in range(jobs)))

        async def note(name: str) -> None:
            names[name] += 1

        async with opened(b, Watched(b.db, note)) as form, opened(b) as other:
            (held,) = (await other.claim(limit=1)).rows

            async def work() -> None:
                while rows := (await form.claim(limit=1)).rows:
                    assert (await end(form, rows[0])).result == "written"

            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(work)
            assert (await end(other, held)).result == "written"
        # Each worker's last claim finds nothing; and a few met a row that was ended just now.
        assert sum(names.values()) <= (5 if b.is_mysql else 4) * (jobs - 1) * 1.25 + 12, names
        assert await b.rows("id") == []

    server(test)


@pytest.mark.parametrize("at", ["claim lock", "claim"])
def test_cancelled_claim_leaves_no_lock(bench: Any, at: str) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({})
        with anyio.CancelScope() as scope:

            async def cancel(name: str) -> None:
                if name == at:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()

            watched = Watched(b.db, cancel)
            async with opened(b, b.db if b.is_sqlite else watched) as form:
                if b.is_sqlite:
                    scope.cancel()
                await form.claim(limit=1)
        assert scope.cancelled_caught
        await no_locks(b)
        if not b.is_sqlite:
            assert watched.sessions[0].is_closed
        async with opened(b) as form:
            assert len(await claim_all(form)) == 1

    bench(test)


def test_claim_that_fails_leaves_no_lock(bench: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        await b.insert({})
        if not b.is_sqlite:
            await b.db.execute(f"ALTER TABLE {b.name} ADD CHECK (tries < 2)")
        else:
            await b.db.execute(
                f"CREATE TRIGGER {b.dialect.quote(b.table + ' no')} BEFORE UPDATE ON {b.name} "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        async with opened(b) as form:
            with pytest.raises(DatabaseError):
                await form.claim(limit=1)
            assert await locks(b) == 0

    bench(test)


def test_a_claim_takes_a_row_of_each_key_as_far_as_sessions_are_free(bench: Any, url: str) -> None:
    async def test(b: Any) -> None:
        await create(b, "{account}", columns=(Column("account", type=str),), priority=None)
        accounts = ["x", "x", "y", None, "z", "y"]
        given = await b.insert(*({"account": account} for account in accounts))
        async with opened(b) as form:
            rows = list((await form.claim(limit=3)).rows)
            assert ids(rows) == [given[0], given[2], given[3]]
            assert len({row.fence.hold for row in rows}) == 3
            more = (await form.claim(limit=9)).rows
            assert ids(list(more)) == [given[4]]
            answers = await form.settle([(row.fence, FINISH) for row in rows])
            assert [answer.result for answer in answers] == ["written"] * 3
            if url == "postgres":
                pool = b.db._pool
                taken = [await b.db.acquire() for _ in range(pool.size - pool.in_use - 1)]
                (row,) = (await form.claim(limit=9)).rows
                assert row.fence.id == given[1], "where no second session is free it takes one row"
                for session in taken:
                    await b.db.release(session)
        await no_locks(b)

    bench(test)
