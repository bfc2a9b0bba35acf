"""The lease form's settlements and releases, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column
from inboxkit._sql.statement import Reading, Script
from inboxkit.errors import (
    ConnectError,
    ConstraintError,
    DatabaseError,
    OutcomeUnknownError,
    PoolTimeoutError,
)
from inboxkit_testing.conformance import FINISH, GIVE_BACK, TO_DEAD


def results(settled: Any) -> list[str]:
    return [one.result for one in settled]


async def claimed(b: Any, count: int, **row: Any) -> list[Any]:
    await b.insert(*({**row} for _ in range(count)))
    fences = [one.fence for one in (await b.form().claim(limit=count)).rows]
    b.runs.clear()
    return fences


def test_finish_is_one_statement_for_all_rows(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        one, two, three = await claimed(b, 3)
        settled = await b.form().settle([(one, FINISH), (three, FINISH)])
        assert results(settled) == ["written", "written"]
        assert [one.due for one in settled] == [None, None]
        assert await b.rows("id") == [two.id]
        assert b.runs == ["settle none" if b.is_postgres else "settle write"]

    bench(test)


@pytest.mark.parametrize(
    ("url", "bench"), [("mariadb", "asyncio"), ("mysql", "trio")], indirect=True
)
@pytest.mark.parametrize("kept", [False, True], ids=["deleted", "kept"])
def test_one_row_is_settled_by_one_statement_as_the_server_counts(bench: Any, kept: bool) -> None:
    async def asked(b: Any) -> int:
        # One connection: the one used last is handed out first.
        ((_, count),) = await b.db.fetch("SHOW SESSION STATUS LIKE 'Questions'")
        return int(count)

    async def test(b: Any) -> None:
        await b.create(**({"processed_at": Column("done")} if kept else {}))
        postponed = Settlement(Verb.POSTPONE, delay=timedelta(hours=1))
        fences = await claimed(b, 5)
        for fence, settlement in zip(
            fences, (FINISH, GIVE_BACK, postponed, TO_DEAD, None), strict=True
        ):
            before = await asked(b)
            if settlement is None:
                answer = await b.form().release([(fence, True)])
            else:
                answer = await b.form().settle([(fence, settlement)])
            assert await asked(b) - before == 2  # and the question
            assert results(answer) == ["written"]
        late = replace(fences[2], tokens=(b.now,))
        assert results(await b.form().settle([(late, FINISH)])) == ["lost"]
        assert results(await b.form().settle([(fences[0], GIVE_BACK)])) == ["gone"]
        assert await b.rows("id") == [fence.id for fence in (fences if kept else fences[1:])]

    bench(test)


def test_finished_row_is_gone(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(processed_at=Column("done"))
        (fence,) = await claimed(b, 1)
        for expected in ("written", "gone"):
            assert results(await b.form().settle([(fence, FINISH)])) == [expected]

    bench(test)


def test_hold_leases_the_row_to_nobody(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (fence,) = await claimed(b, 1)
        hold = Settlement(Verb.HOLD, timedelta(seconds=5))
        (settled,) = await b.form().settle([(fence, hold)])
        assert await b.rows("lease", "due") == [(settled.due, b.now)]
        assert results(await b.form().settle([(fence, FINISH)])) == ["lost"]
        b.advance(seconds=5.001)
        assert len((await b.form().claim(limit=5)).rows) == 1

    bench(test)


def test_move_to_a_table_takes_every_column_along(bench: Any) -> None:
    async def test(b: Any) -> None:
        extra = "ALTER TABLE {table} ADD COLUMN " + b.dialect.quote('un"told') + " text"
        await b.create(extra, group=None)
        dead = b.table + " dead"
        made = (
            f"CREATE TABLE {b.dialect.quote(dead)} (LIKE {b.name} INCLUDING ALL)"
            if b.is_postgres
            else f"CREATE TABLE {b.dialect.quote(dead)} AS SELECT * FROM {b.name}"
        )
        await b.db.execute(made)
        b.tables.append(dead)
        one, two = await claimed(b, 2, tries=3)
        untold = b.dialect.quote('un"told')
        await b.db.execute(f"UPDATE {b.name} SET {untold} = 'kept'")
        move = Settlement(Verb.MOVE, destination=Destination(table=dead))
        lost = replace(two, attempt=99)
        assert results(await b.form().settle([(one, move), (lost, move)])) == ["written", "lost"]
        assert await b.rows("id") == [two.id]
        (row,) = await b.db.fetch(f"SELECT * FROM {b.dialect.quote(dead)}")
        names = ["id", "tries", "lease", "body", 'un"told']
        assert [row[name] for name in names] == [one.id, 4, None, b"{}", "kept"]

    bench(test)


def test_lost_and_gone_are_told_apart_and_nothing_is_written(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        stolen, recounted, gone, mine = await claimed(b, 4)
        await b.set(stolen.id, lease=b.now + timedelta(days=1))
        await b.set(recounted.id, tries=9)
        await b.db.execute(f"DELETE FROM {b.name} WHERE id = $1", gone.id)
        before = await b.rows("id", "lease", "tries")
        for settlement in (GIVE_BACK, TO_DEAD, FINISH):
            settled = await b.form().settle(
                [(fence, settlement) for fence in (stolen, recounted, gone)]
            )
            assert results(settled) == ["lost", "lost", "gone"]
        assert await b.rows("id", "lease", "tries") == before
        assert results(await b.form().settle([(stolen, FINISH), (mine, FINISH)])) == [
            "lost",
            "written",
        ]

    bench(test)


def test_renewal_of_unknown_outcome_does_not_lose_the_settlement(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (fence,) = await claimed(b, 1)
        both = replace(fence, tokens=(b.now + timedelta(days=1), *fence.tokens))
        assert results(await b.form().settle([(both, FINISH)])) == ["written"]

    bench(test)


def test_mixed_settlements_are_one_transaction(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        fences = await claimed(b, 10)
        verbs = [FINISH, GIVE_BACK, TO_DEAD, Settlement(Verb.POSTPONE), Settlement(Verb.HOLD)]
        settled = await b.form().settle(list(zip(fences, verbs * 2, strict=True)))
        assert results(settled) == ["written"] * 10
        assert b.runs == ["settle write"]

    bench(test)


def test_failing_row_fails_alone_in_a_second_transaction(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(
            "CREATE UNIQUE INDEX {table}_u ON {table} (grp, prio)".replace(
                "{table}_u", b.dialect.quote(b.table + "u")
            )
        )
        await b.insert(*({"prio": n} for n in range(50)), {"grp": "dead", "prio": 20})
        rows = (await b.form().claim(limit=50)).rows
        b.runs.clear()
        verbs = [TO_DEAD, FINISH, GIVE_BACK, Settlement(Verb.POSTPONE, timedelta(1)), TO_DEAD]
        settled = await b.form().settle(
            [(row.fence, verb) for row, verb in zip(rows, verbs * 10, strict=True)]
        )
        assert [n for n, one in enumerate(settled) if one.result != "written"] == [20]
        assert settled[20].result == "failed"
        assert isinstance(settled[20].error, ConstraintError)
        assert b.runs == ["settle write", "settle write"]
        assert (await b.rows("grp")).count("dead") == 20

    bench(test)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_constraint_that_is_checked_at_the_commit_fails_its_row_alone(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create("ALTER TABLE {table} ADD UNIQUE (grp, prio) DEFERRABLE INITIALLY DEFERRED")
        await b.insert({"prio": 0}, {"prio": 1}, {"grp": "dead", "prio": 1})
        rows = (await b.form().claim(limit=2)).rows
        settled = await b.form().settle([(row.fence, TO_DEAD) for row in rows])
        assert results(settled) == ["written", "failed"]

    bench(test)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_settlement_waits_for_a_row_that_its_handler_wrote(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        (fence,) = await claimed(b, 1)
        done: list[Any] = []

        async def settle() -> None:
            done.extend(await b.form().settle([(fence, FINISH)]))

        async with anyio.create_task_group() as tasks, b.db.transaction() as handler:
            await handler.execute(f"UPDATE {b.name} SET prio = 7 WHERE id = $1", fence.id)
            tasks.start_soon(settle)
            await anyio.wait_all_tasks_blocked()
            assert not done
        assert results(done) == ["written"]

    bench(test)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_claim_passes_over_a_row_that_somebody_has_locked(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        locked, free = await b.insert({}, {})
        async with b.db.transaction() as other:
            await other.execute(f"SELECT id FROM {b.name} WHERE id = $1 FOR UPDATE", locked)
            claim = await b.form().claim(limit=5)
            assert [row.fence.id for row in claim.rows] == [free]
        claim = await b.form().claim(limit=5)
        assert [row.fence.id for row in claim.rows] == [locked]

    bench(test)


def test_many_claims_at_once_take_each_row_once(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        await b.insert(*({} for _ in range(200)))
        taken: list[Any] = []

        async def claim() -> None:
            form = b.form()
            while rows := (await form.claim(limit=7)).rows:
                taken.extend(row.fence.id for row in rows)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(claim)
        assert len(taken) == len(set(taken))
        # A claim passes over what others hold locked for the moment, so one may end early.
        rest = [row.fence.id for row in (await b.form().claim(limit=200)).rows]
        assert sorted(taken + rest) == await b.rows("id")

    bench(test)


@pytest.mark.parametrize("digits", [0, 3])
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_tokens_survive_a_column_of_fewer_digits(bench: Any, digits: int) -> None:
    async def test(b: Any) -> None:
        coarse = f"timestamptz({digits})"
        await b.create(
            ddl=f"CREATE TABLE {{table}} (id bigserial PRIMARY KEY, tries integer, due {coarse}, "
            f"lease {coarse})",
            id=Column("id", generated=True),
            group=None,
            priority=None,
            payload=None,
        )
        b.advance(microseconds=123456)
        for settlement in (
            Settlement(Verb.HOLD, timedelta(seconds=1.5)),
            Settlement(Verb.POSTPONE, timedelta(seconds=1.5)),
            FINISH,
        ):
            await b.insert({"due": b.START})
            (row,) = (await b.form().claim(limit=1)).rows
            renewal = await b.form().renew([(row.fence, row.reading)], timeout=5)
            tokens = tuple(renewal.renewed.values())
            assert await b.rows("lease") == list(tokens)
            (settled,) = await b.form().settle([(replace(row.fence, tokens=tokens), settlement)])
            assert settled.result == "written"
            if settled.due is not None:
                assert settled.due in (await b.rows("lease", "due"))[0]
            await b.db.execute(f"DELETE FROM {b.name}")

    bench(test)


class Failing:
    """A runner whose scripts fail, after they were sent or before."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.count = 0

    async def run(self, script: Script[Any]) -> Any:
        self.count += 1
        next(script.steps(Reading(datetime(2030, 1, 1, tzinfo=UTC), 0.0)))
        raise self.error


def test_lost_answer_leaves_every_row_unknown(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        fences = await claimed(b, 3)
        error = OutcomeUnknownError("gone", statement="settle")
        runner = Failing(error)
        settled = await b.form(runner=runner).settle([(fence, FINISH) for fence in fences])
        assert results(settled) == ["unknown"] * 3
        assert all(one.error is error for one in settled)
        assert runner.count == 1
        released = await b.form(runner=runner).release([(fences[0], True)])
        assert results(released) == ["unknown"]

    bench(test)


def test_failures_of_no_row_are_not_tried_row_by_row(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        fences = await claimed(b, 3)
        for error, tries in (
            (PoolTimeoutError("none free"), 1),
            (ConnectError("down"), 1),
            (DatabaseError("no"), 2),
        ):
            runner = Failing(error)
            settled = await b.form(runner=runner).settle([(fence, FINISH) for fence in fences])
            assert results(settled) == ["failed"] * 3
            assert runner.count == tries

    bench(test)


@pytest.mark.parametrize("url", ["postgres", "mariadb", "mysql"], indirect=True)
@pytest.mark.parametrize("place", range(4), ids=["first", "second", "third", "last"])
@pytest.mark.parametrize("settlement", ["finish", "keep", "give back", "postpone", "move"])
def test_several_rows_wait_for_none_that_is_locked_beside_them(
    bench: Any, settlement: str, place: int, table: str
) -> None:
    """The table is small, and its optimizer would rather read it whole."""
    wanted = {
        "finish": FINISH,
        "keep": FINISH,
        "give back": GIVE_BACK,
        "postpone": Settlement(Verb.POSTPONE, delay=timedelta(hours=1)),
        "move": Settlement(Verb.MOVE, destination=Destination(table=f"{table}_dead")),
    }[settlement]

    async def test(b: Any) -> None:
        dead = f"{table}_dead" if settlement == "move" else ""
        await b.create(dead=dead, processed_at=Column("done") if settlement == "keep" else None)
        fences = await claimed(b, 4)
        other = fences.pop(place)
        async with b.locked(other.id):
            with anyio.fail_after(5):
                settled = await b.form().settle([(each, wanted) for each in fences])
        assert results(settled) == ["written"] * 3
        assert results(await b.form().settle([(other, wanted)])) == ["written"]

    bench(test)
