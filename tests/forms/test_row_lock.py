"""The row lock form at its port: what a claim takes, what each verb leaves in the row, and whose session it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column
from inboxkit.abc import Claimed
from inboxkit.errors import ConstraintError, DatabaseError

pytestmark = pytest.mark.parametrize("url", ["postgres"], indirect=True)

FINISH = Settlement(Verb.FINISH)
GIVE_BACK = Settlement(Verb.GIVE_BACK)
POSTPONE = Settlement(Verb.POSTPONE, timedelta(minutes=5))


@pytest.fixture(name="bench")
def _closed_bench(bench: Any) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    """Run a test with a `Bench` whose forms are closed at its end."""

    def run(test: Callable[[Any], Awaitable[None]]) -> None:
        async def main(bench: Any) -> None:
            forms: list[Any] = []
            make = bench.form

            def form(*args: Any, **settings: Any) -> Any:
                forms.append(make(*args, **settings))
                return forms[-1]

            bench.form = form
            try:
                await test(bench)
            finally:
                for each in forms:
                    await each.close()
            assert in_use(bench) == 0

        bench(main)

    return run


def in_use(bench: Any) -> int:
    """Sessions of the pool that are not back."""
    count: int = bench.db._pool.in_use
    return count


async def take(form: Any) -> Claimed:
    claim = await form.claim(limit=1)
    (row,) = claim.rows
    assert row.fence.tokens == ()
    return row  # type: ignore[no-any-return]


async def drain(form: Any) -> list[Claimed]:
    """Claim, row by row, until there is no more."""
    taken = []
    while (claim := await form.claim(limit=1)).rows:
        taken += claim.rows
    return taken


async def settle(form: Any, row: Claimed, settlement: Settlement = FINISH) -> str:
    (answer,) = await form.settle([(row.fence, settlement)])
    return str(answer.result)


async def end_sessions(bench: Any) -> None:
    """Kill every session that holds a row, and let the loop hear of it."""
    await bench.db.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_claims_take_due_rows_in_order_and_pass_over_locked_ones(
    bench: Any, is_indexed: bool
) -> None:
    async def test(bench: Any) -> None:
        # With an index on due times, and no priority, NULLs and times are looked at apart.
        priority = None if is_indexed else Column("prio")
        await bench.create(locked_until=None, priority=priority)
        due = [bench.now, bench.now, bench.now, bench.now - timedelta(hours=1), bench.now]
        ids = await bench.insert(*({"due": each} for each in due))
        for id in (ids[0], ids[2]):
            await bench.set(id, due=None)
        await bench.insert({"due": bench.now + timedelta(seconds=1)}, {"grp": "b"})
        order = [ids[0], ids[2], ids[3], ids[1], ids[4]]
        if not is_indexed:
            await bench.set(ids[4], prio=-1)
            order = [ids[4], *order[:-1]]
        async with bench.db.connection() as other:
            await other.execute("BEGIN")
            await other.fetch(f"SELECT FROM {bench.name} WHERE id = $1 FOR UPDATE", order[1])
            mine, rival = bench.form(), bench.form()
            first = await take(mine)
            # No row but the one that was taken is locked by the claim.
            rest = await drain(rival)
            assert [first.fence.id, *(row.fence.id for row in rest)] == [order[0], *order[2:]]
            assert (first.attempt, first.counted, first.spent, first.group) == (1, True, False, "a")
            assert in_use(bench) == len(order)
            await other.execute("ROLLBACK")
        assert (await take(mine)).fence.id == order[1]
        numbers = {row.fence.hold for row in rest}
        assert len(numbers) == len(rest)
        assert None not in numbers
        await mine.close()
        await rival.close()
        assert in_use(bench) == 0
        assert len(await drain(bench.form())) == 5

    bench(test)


def test_what_each_verb_leaves_in_the_row(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None)
        ids = await bench.insert(*({} for _ in range(8)))
        form = bench.form()
        rows = await drain(form)
        move = Settlement(Verb.MOVE, destination=Destination(group="dead"))
        hold = Settlement(Verb.HOLD, timedelta(minutes=5))
        start = bench.now
        bench.advance(seconds=10)
        given = [FINISH, GIVE_BACK, POSTPONE, move, hold]
        fences = [row.fence for row in rows]
        answers = await form.settle(list(zip(fences[:5], given, strict=True)))
        answers += await form.release([(fences[5], True), (fences[6], False)])
        assert {answer.result for answer in answers} == {"written"}
        assert [answer.due for answer in answers[1:4]] == [
            bench.now,
            bench.now + timedelta(minutes=5),
            None,
        ]
        postponed = bench.now + timedelta(minutes=5)
        assert await bench.rows("id", "grp", "tries", "due") == [
            (ids[1], "a", 2, start),
            (ids[2], "a", 2, postponed),
            (ids[3], "dead", 1, start),
            (ids[4], "a", 2, start),
            (ids[5], "a", 1, start),
            (ids[6], "a", 2, start),
            (ids[7], "a", 1, start),
        ]
        assert in_use(bench) == 1
        assert await settle(form, rows[0]) == "lost", "its session was given back"
        again = await drain(bench.form())
        assert [(row.fence.id, row.attempt) for row in again] == [
            (ids[1], 2),
            (ids[4], 2),
            (ids[5], 1),
            (ids[6], 2),
        ]

    bench(test)


def test_finished_rows_stay_and_others_move_to_a_table(bench: Any) -> None:
    async def test(bench: Any) -> None:
        dead = f"{bench.table} dead"
        await bench.create(
            f'CREATE TABLE "{dead}" (LIKE {{table}} INCLUDING ALL)',
            locked_until=None,
            group=None,
            attempt=None,
            processed_at=Column("done"),
        )
        await bench.insert({"prio": 1}, {"prio": 2}, {"prio": 3})
        form = bench.form()
        rows = await drain(form)
        assert {(row.attempt, row.counted) for row in rows} == {(None, False)}
        move = Settlement(Verb.MOVE, destination=Destination(table=dead))
        assert [
            await settle(form, row, settlement)
            for row, settlement in zip(rows, [FINISH, GIVE_BACK, move], strict=True)
        ] == ["written"] * 3
        assert await bench.rows("prio", "done") == [(1, bench.now), (2, None)]
        assert [tuple(row) for row in await bench.db.fetch(f'SELECT prio, done FROM "{dead}"')] == [
            (3, None)
        ]
        assert [row.fence.id for row in await drain(form)] == [rows[1].fence.id]
        await bench.db.execute(f'DROP TABLE "{dead}"')

    bench(test)


def test_an_attempt_that_is_missing_reads_1_and_the_largest_stays(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ddl = "CREATE TABLE {table} (id bigserial PRIMARY KEY, tries smallint, body bytea)"

    async def test(bench: Any) -> None:
        roles = dict.fromkeys(["group", "priority", "retry_after", "locked_until"])
        await bench.create(ddl=ddl, **roles)
        await bench.insert({"tries": None}, {"tries": 32766}, {"tries": 32767})
        form = bench.form()
        rows = await drain(form)
        assert [(row.attempt, row.spent) for row in rows] == [
            (1, False),
            (32766, False),
            (32767, False),
        ]
        for row in rows:
            assert await settle(form, row, GIVE_BACK) == "written"
        assert await bench.rows("tries") == [2, 32767, 32767]

    bench(test)
    assert len([r for r in caplog.records if "it reads 1" in r.getMessage()]) == 1


def test_a_session_that_ended_is_noticed_and_nothing_is_written_on_another(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None)
        await bench.insert({}, {})
        form = bench.form()
        rows = await drain(form)
        holds = [(row.fence, row.reading) for row in rows]
        assert (await form.renew(holds, timeout=1)).lost == frozenset()
        await end_sessions(bench)
        lost = await form.renew(holds, timeout=1)
        assert lost.lost == {row.fence.id for row in rows}
        assert (lost.renewed, lost.failed, lost.reading) == ({}, frozenset(), None)
        again = await drain(bench.form())
        assert [(row.fence.id, row.attempt) for row in again] == [(r.fence.id, 1) for r in rows]
        assert await settle(form, rows[0]) == "lost"
        assert [one.result for one in await form.release([(rows[1].fence, True)])] == ["lost"]
        assert await bench.rows("tries") == [1, 1]
        assert in_use(bench) == len(again)

    bench(test)


def test_a_fifo_group_has_one_row_in_work_over_all_forms(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None, fifo=True, priority=None)
        first, second, *_ = await bench.insert({}, {}, {"grp": "b"})
        mine, rival = bench.form(), bench.form()
        row = await take(mine)
        assert row.fence.id == first
        # Also where a row came ahead of the one in work.
        await bench.set(second, due=bench.now - timedelta(days=1))
        assert not (await rival.claim(limit=1)).rows
        assert not (await mine.claim(limit=5)).rows
        assert (await take(bench.form("b"))).group == "b", "another group's guard is another"
        assert await settle(mine, row, GIVE_BACK) == "written"
        assert (await take(rival)).fence.id == second
        await rival.close()
        for id in (first, second):
            await bench.set(id, due=bench.now + timedelta(seconds=id))
        assert not (await mine.claim(limit=1)).rows, "the head is not due"
        bench.advance(hours=1)
        async with bench.db.connection() as other:
            await other.execute("BEGIN")
            await other.fetch(f"SELECT FROM {bench.name} WHERE id = $1 FOR UPDATE", first)
            assert not (await mine.claim(limit=1)).rows, "the head is locked, and stays the head"
            await other.execute("ROLLBACK")
        assert (await take(mine)).fence.id == first

    bench(test)


def test_a_settlement_that_fails_gives_the_row_back_at_once(bench: Any) -> None:
    async def test(bench: Any) -> None:
        check = "ALTER TABLE {table} ADD CONSTRAINT few CHECK (tries < 2)"
        parent = f'CREATE TABLE "{bench.table} parent" (grp text PRIMARY KEY)'
        deferred = (
            f'ALTER TABLE {{table}} ADD FOREIGN KEY (grp) REFERENCES "{bench.table} parent" '
            "DEFERRABLE INITIALLY DEFERRED"
        )
        seed = f"INSERT INTO \"{bench.table} parent\" VALUES ('a')"
        never = (
            "CREATE OR REPLACE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN NULL; END $$; "
        )
        trigger = (
            "CREATE TRIGGER never BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION never()"
        )
        await bench.create(check, parent, deferred, seed, never, trigger, locked_until=None)
        (id,) = await bench.insert({})
        form = bench.form()
        elsewhere = Settlement(Verb.MOVE, destination=Destination(group="no parent"))
        for settlement, kind in [
            (GIVE_BACK, ConstraintError),
            (elsewhere, ConstraintError),  # found at the COMMIT
            (FINISH, DatabaseError),
        ]:
            (answer,) = await form.settle([((await take(form)).fence, settlement)])
            assert (answer.result, type(answer.error)) == ("failed", kind)
            assert in_use(bench) == 0
        assert "a trigger" in str(answer.error)
        assert await bench.rows("id", "tries", "grp") == [(id, 1, "a")]

    bench(test)


def test_a_row_whose_id_cannot_be_read_is_passed_over_for_a_while(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Any) -> None:
        roles = dict.fromkeys(["group", "priority", "retry_after", "locked_until"])
        await bench.create(**roles)
        # The start-up check would refuse this type; it may be altered later.
        await bench.db.execute(f"ALTER TABLE {bench.name} ALTER id DROP IDENTITY")
        await bench.db.execute(f"ALTER TABLE {bench.name} ALTER id TYPE numeric")
        await bench.db.execute(f"ALTER TABLE {bench.name} ALTER body DROP NOT NULL")
        bench.info = await bench.db.run(bench.dialect.describe(bench.spec))
        await bench.db.execute(f"INSERT INTO {bench.name} (id) VALUES (1.5), (1.75), (2)")
        form = bench.form()
        claims = [await form.claim(limit=1) for _ in range(4)]
        assert [(len(claim.rows), claim.undecodable) for claim in claims] == [
            (0, 1),
            (0, 1),
            (1, 0),
            (0, 0),
        ]
        assert in_use(bench) == 1
        bench.advance(seconds=30)
        assert (await form.claim(limit=1)).undecodable == 1

    bench(test)
    aside = [r.getMessage() for r in caplog.records if "set aside" in r.getMessage()]
    assert len(aside) == 3
    assert "'id'" in aside[0]
    assert "2030-01-01T00:00:30" in aside[0]


def test_a_claim_that_fails_or_is_cancelled_keeps_no_session(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None)
        await bench.insert({})
        form = bench.form()
        async with bench.db.connection() as other:
            await other.execute("BEGIN")
            await other.execute(f"LOCK TABLE {bench.name}")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: form.claim(limit=1))
                while not await bench.db.fetch_value(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted"
                ):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert in_use(bench) == 1
            await other.execute(f"ALTER TABLE {bench.name} RENAME COLUMN body TO gone")
            await other.execute("COMMIT")
        with pytest.raises(DatabaseError, match="body"):
            await form.claim(limit=1)
        assert in_use(bench) == 0

    bench(test)


def test_rows_of_one_claim_end_together_on_its_session(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None)
        ids = await bench.insert(*({} for _ in range(6)))
        form = bench.form()
        rows = (await form.claim(limit=4)).rows
        assert [row.fence.id for row in rows] == ids[:4]
        assert len({row.fence.hold for row in rows}) == 1
        assert in_use(bench) == 1
        rest = (await form.claim(limit=4)).rows
        assert [row.fence.id for row in rest] == ids[4:]

        # Two of four are settled; the one that is not named is given back as it is.
        move = Settlement(Verb.MOVE, destination=Destination(group="dead"))
        endings = zip(rows, [FINISH, move, POSTPONE], strict=False)
        mixed = [(row.fence, ending) for row, ending in endings]
        answers = await form.settle([*mixed, (rest[0].fence, FINISH)])
        assert [answer.result for answer in answers] == ["written"] * 4
        assert answers[2].due == bench.now + POSTPONE.delay
        assert in_use(bench) == 0
        assert await bench.rows("id", "grp", "tries") == [
            (ids[1], "dead", 1),
            (ids[2], "a", 2),
            (ids[3], "a", 1),
            (ids[5], "a", 1),
        ]
        assert await settle(form, rows[3]) == "lost", "its session was given back"
        rows = (await form.claim(limit=9)).rows
        assert [row.fence.id for row in rows] == [ids[3], ids[5]]
        flags = zip(rows, [False, True], strict=True)
        answers = await form.release([(row.fence, flag) for row, flag in flags])
        assert [answer.result for answer in answers] == ["written"] * 2
        assert await bench.rows("tries") == [1, 2, 2, 1]

    bench(test)


def test_one_failed_settlement_undoes_those_of_its_session_and_is_passed_over(bench: Any) -> None:
    async def test(bench: Any) -> None:
        await bench.create(locked_until=None)
        ids = await bench.insert(*({} for _ in range(3)))
        form, rival = bench.form(), bench.form()
        await bench.db.execute(
            f"ALTER TABLE {bench.name} ADD CHECK (id <> {ids[1]} OR grp <> 'dead')"
        )
        rows = (await form.claim(limit=3)).rows
        move = Settlement(Verb.MOVE, destination=Destination(group="dead"))
        answers = await form.settle([(row.fence, move) for row in rows])
        assert [answer.result for answer in answers] == ["failed"] * 3
        assert [type(answer.error) for answer in answers] == [
            type(None),
            ConstraintError,
            type(None),
        ]
        again = bench.now + timedelta(seconds=10)
        assert [answer.due for answer in answers] == [None, again, None]
        assert in_use(bench) == 0
        assert await bench.rows("grp") == ["a"] * 3
        healthy = (await form.claim(limit=3)).rows
        assert [row.fence.id for row in healthy] == [ids[0], ids[2]]
        assert [row.fence.id for row in await drain(rival)] == [ids[1]], "by this form alone"
        await rival.close()
        bench.advance(seconds=10)
        assert (await take(form)).fence.id == ids[1]
        await end_sessions(bench)
        answers = await form.settle([(row.fence, FINISH) for row in healthy])
        assert [answer.result for answer in answers] == ["lost"] * 2
        assert await bench.rows("id") == ids

    bench(test)
