"""The row lock form on MariaDB and MySQL: what a claim keeps locked, and the guard of FIFO groups."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column
from inboxkit.errors import ConstraintError, DatabaseError

pytestmark = pytest.mark.parametrize(
    ("url", "bench"), [("mariadb", "asyncio"), ("mysql", "trio")], indirect=True
)

FINISH = Settlement(Verb.FINISH)
GIVE_BACK = Settlement(Verb.GIVE_BACK)


@asynccontextmanager
async def opened(b: Any, *groups: str) -> AsyncIterator[list[Any]]:
    """Forms of these groups, each an instance's."""
    forms = [b.form(group) for group in groups]
    try:
        yield forms
    finally:
        for form in forms:
            await form.close()
        assert not b.lender.lent


async def take(form: Any, limit: int = 1) -> list[Any]:
    return list((await form.claim(limit=limit)).rows)


def ids(rows: list[Any]) -> list[Any]:
    return [row.fence.id for row in rows]


async def end(form: Any, row: Any, settlement: Settlement = FINISH) -> Any:
    (settled,) = await form.settle([(row.fence, settlement)])
    return settled


async def locked(b: Any) -> set[Any]:
    """The rows that somebody has locked."""
    async with b.db.transaction() as tx:
        free = await tx.fetch(f"SELECT id FROM {b.name} FOR UPDATE SKIP LOCKED")
    return set(await b.rows("id")) - {row[0] for row in free}


@pytest.mark.parametrize("kind", ["no index", "index", "two parts"])
def test_only_the_row_that_is_taken_is_locked(bench: Any, kind: str) -> None:
    async def test(b: Any) -> None:
        roles = {"priority": None} if kind == "two parts" else {}
        await b.create(locked_until=None, **roles)
        if kind == "no index":
            await b.db.execute(f"DROP INDEX {b.dialect.quote(b.table + '_queue')} ON {b.name}")
            await b.look()
        rows = [{"due": b.now - timedelta(seconds=n % 3)} for n in range(8)]
        stored = await b.insert(*rows, {"due": b.now + timedelta(hours=1)}, {"grp": "b"})
        await b.set(stored[7], due=None)
        order = [stored[n] for n in (7, 2, 5, 1, 4, 0, 3, 6)]
        async with opened(b, "a", "a", "c") as (one, two, idle):
            held = await take(one) + await take(two) + await take(one)
            assert ids(held) == order[:3]
            assert await take(idle) == []
            assert await locked(b) == set(order[:3])
            # A gap lock would have these wait, and fail.
            more = await b.insert({}, {"due": b.now - timedelta(days=1)}, {"grp": "c"})
            assert ids(await take(two, limit=3)) == [more[1], *order[3:5]]
            assert ids(await take(idle)) == more[2:]

    bench(test)


def test_rows_behind_many_that_others_have_are_found(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None)
        stored = await b.insert(*({} for _ in range(70)))
        async with opened(b, "a") as (form,), b.locked(*stored[:67]):
            assert ids([*await take(form), *await take(form), *await take(form)]) == stored[67:]
            assert await take(form) == []

    bench(test)


def test_a_candidate_that_changes_meanwhile_is_passed_over(bench: Any) -> None:
    """Between the reading of the due rows and the lock: the lock sees the row as it is."""

    async def test(b: Any) -> None:
        await b.create(locked_until=None)
        first, second = await b.insert({}, {})
        async with opened(b, "a") as (form,), b.db.transaction() as tx:
            await tx.execute(f"UPDATE {b.name} SET due = due + INTERVAL 1 DAY WHERE id = {first}")
            # What is not committed is locked, and so passed over.
            (row,) = await take(form)
            assert row.fence.id == second
            assert await take(form) == []

    bench(test)


def test_guard_of_a_group_lasts_until_the_settlement_and_no_longer(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=True)
        long = "x" * 100
        (late,) = await b.insert({"prio": 5, "due": b.now + timedelta(seconds=1)})
        others = await b.insert({"grp": "A"}, {"grp": long}, {"grp": long + "y"})
        async with opened(b, "a", "a", "A", long, long + "y") as (one, two, *beside):
            assert await take(one) == []
            # Names that a server might take for one are of different groups.
            assert ids([row for form in beside for row in await take(form)]) == others
            b.advance(seconds=1)
            async with b.db.connection():  # the session of the claim that found nothing, kept away
                (row,) = await take(two)
            assert row.fence.id == late
            (ahead,) = await b.insert({"prio": 1})
            assert await take(one) == await take(two) == []
            assert (await end(two, row, GIVE_BACK)).result == "written"
            async with b.db.connection():
                (row,) = await take(one)
            assert row.fence.id == ahead
            await one.release([(row.fence, True)])
            async with b.db.connection():
                (row,) = await take(two)

    bench(test)


def test_a_session_that_is_killed_frees_its_row_and_its_group(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=True)
        (id,) = await b.insert({})
        async with opened(b, "a", "a") as (one, two):
            (row,) = await take(one)
            await b.lender.kill(await b.lender.number(b.lender.lent[-1]))
            (again,) = await take(two)
            assert (again.fence.id, again.attempt) == (id, 1)
            with anyio.fail_after(5):
                while not (await one.renew([(row.fence, row.reading)], timeout=1)).lost:
                    await anyio.lowlevel.checkpoint()
            assert (await end(one, row)).result == "lost"
            assert (await end(two, again)).result == "written"
            assert await b.rows("id") == []

    bench(test)


def test_a_guard_that_cannot_be_let_go_costs_its_session(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=True)
        await b.insert({}, {})
        async with opened(b, "a", "a") as (one, two):
            (row,) = await take(one)
            session = b.lender.lent[-1]
            answer = one._statements.after()
            one._statements.after = lambda: replace(answer, text="SELECT no_such_function()")
            with caplog.at_level(logging.WARNING, "inboxkit"):
                assert (await end(one, row)).result == "written"
            assert session.is_closed
            for _ in range(200):  # the server lets go once it notices
                if rows := await take(two):
                    break
                await b.db.fetch("SELECT SLEEP(0.01)")
            assert len(rows) == 1
            one._statements.after = lambda: answer

    bench(test)
    assert "guard" in caplog.text


def test_what_each_verb_leaves_in_the_row(bench: Any) -> None:
    async def test(b: Any) -> None:
        dead = f"{b.table} dead"
        check = "ALTER TABLE {table} ADD CONSTRAINT few CHECK (tries < 3)"
        await b.create(check, locked_until=None, processed_at=Column("done"), dead=dead)
        await b.insert(*({} for _ in range(6)), {"tries": 2})
        ends = [
            FINISH,
            GIVE_BACK,
            Settlement(Verb.POSTPONE, timedelta(minutes=5)),
            Settlement(Verb.HOLD, timedelta(minutes=5)),
            Settlement(Verb.MOVE, destination=Destination(group="dead")),
            Settlement(Verb.MOVE, destination=Destination(table=dead)),
        ]
        start = b.now
        async with opened(b, "a") as (form,):
            rows = [(await take(form))[0] for _ in range(7)]
            b.advance(seconds=10)
            for row, settlement in zip(rows, ends, strict=False):
                assert (await end(form, row, settlement)).result == "written"
            failed = await end(form, rows[6], GIVE_BACK)
            assert (failed.result, type(failed.error)) == ("failed", ConstraintError)
            assert ids(await take(form)) == ids(rows[1:2])
        ids_ = ids(rows)
        assert await b.rows("id", "tries", "due", "grp", "done") == [
            (ids_[0], 1, start, "a", b.now),
            (ids_[1], 2, start, "a", None),
            (ids_[2], 2, b.now + timedelta(minutes=5), "a", None),
            (ids_[3], 2, start, "a", None),
            (ids_[4], 1, start, "dead", None),
            (ids_[6], 2, start, "a", None),
        ]
        assert await b.rows("id", "tries", "grp", table=dead) == [(ids_[5], 1, "a")]

    bench(test)


def test_a_claim_that_fails_or_is_cancelled_keeps_no_session(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=True)
        await b.insert({})
        async with opened(b, "a", "a") as (form, other):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await take(form)
            assert not b.lender.lent
            await b.db.execute(f"ALTER TABLE {b.name} RENAME COLUMN body TO gone")
            with pytest.raises(DatabaseError, match="body"):
                await take(form)
            await b.db.execute(f"ALTER TABLE {b.name} RENAME COLUMN gone TO body")
            async with b.db.connection():
                assert len(await take(other)) == 1

    bench(test)
