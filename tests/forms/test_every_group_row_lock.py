"""All groups of a table through one row lock form: in rounds, a group by each session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest

import inboxkit._sql.mysql.every_group as mysql_every_group
import inboxkit._sql.postgres.every_group as postgres_every_group
from inboxkit._core.group_shape import GroupShape
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._forms import open_form
from inboxkit._sql.every_group import Others

pytestmark = pytest.mark.parametrize(
    ("url", "bench"),
    [("postgres", "asyncio"), ("postgres", "trio"), ("mariadb", "asyncio"), ("mysql", "trio")],
    indirect=True,
)
kinds = pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
FINISH = Settlement(Verb.FINISH)


@asynccontextmanager
async def every(
    b: Any, count: int = 1, *, others: tuple[str, ...] = (), shape: str | None = None
) -> AsyncIterator[list[Any]]:
    """Forms of all groups, each an instance's."""
    left = Others(others, None if shape is None else GroupShape.read(shape))
    forms: list[Any] = [
        open_form(
            b.lender,
            b.spec,
            b.info,
            b.dialect,
            group=None,
            lease=timedelta(seconds=30),
            cap=None,
            steps=ExpirySteps(0),
            others=left,
        )
        for _ in range(count)
    ]
    try:
        yield forms
    finally:
        for form in forms:
            await form.close()
        assert not b.lender.lent


async def take(form: Any, limit: int = 1) -> list[Any]:
    """The rows of one claim, with those that it asks to be repeated."""
    while True:
        claim = await form.claim(limit=limit)
        if claim.rows or not claim.more:
            return list(claim.rows)


async def finish(form: Any, rows: list[Any], settlement: Settlement = FINISH) -> None:
    answers = await form.settle([(row.fence, settlement) for row in rows])
    assert [answer.result for answer in answers] == ["written"] * len(rows)


async def drain(form: Any, limit: int = 1) -> str:
    """Claim and finish until nothing is due; the groups of all rows, claims apart."""
    found = []
    while rows := await take(form, limit):
        found.append("".join(row.group for row in rows))
        await finish(form, rows)
    return " ".join(found)


@kinds
def test_no_group_is_served_twice_while_another_waits(bench: Any, fifo: bool) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=fifo)
        rows = [{"grp": grp} for grp in "aaaabbbcc"]
        async with every(b) as (form,):
            await b.insert(*rows, {"grp": "d", "prio": -1}, {"grp": "e", "prio": 9})
            assert await drain(form) == "d a b c e a b c a b a"
        async with every(b) as (form,):
            await b.insert(*rows)
            # A batch is of one group; of a FIFO group its head.
            assert await drain(form, 3) == ("a b c a b c a b a" if fifo else "aaa bbb cc a")

    bench(test)


@kinds
def test_claims_side_by_side_are_each_at_a_group_of_its_own(bench: Any, fifo: bool) -> None:
    """Those of one instance at once, and those of another."""

    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=fifo)
        await b.insert(*({"grp": grp} for grp in "aabbccdd"))
        held: list[Any] = []
        async with every(b, 2) as (form, other):

            async def claim() -> None:
                held.extend(await take(form))

            async with anyio.create_task_group() as claims:
                for _ in range(3):
                    claims.start_soon(claim)
            names = {row.group for row in held}
            assert len(held) == len(names) == 3
            rest = [row for _ in range(6) for row in await take(other)]
            if not fifo:
                assert len(rest) == 5
                return
            # One row of a group is in work, whoever has it.
            assert [row.group for row in rest] == list(set("abcd") - names)
            assert await take(form) == []
            await finish(other, rest)
            (again,) = await take(form)
            assert again.group == rest[0].group
            # Killed, a session lets go of its group.
            session = b.lender.lent[-1]
            await b.lender.kill(await b.lender.number(session))
            (freed,) = await take(other)
            assert freed.fence.id == again.fence.id

    bench(test)


@kinds
def test_what_is_not_due_or_not_ours_or_rests_is_left(bench: Any, fifo: bool) -> None:
    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=fifo)
        await b.insert(*({"grp": name} for name in ["own", "a.dead", ".dead", "x", "y", "z"]))
        await b.insert({"grp": "later", "due": b.now + timedelta(seconds=1)})
        async with every(b, others=("own",), shape="{group}.dead") as (form,):
            claim = await form.claim(limit=1)
            form.rest("y", claim.reading.monotonic + 0.9)
            await finish(form, list(claim.rows))
            assert [row.group for row in claim.rows] == ["x"]
            assert await drain(form) == "z"
            b.advance(seconds=1)
            assert await drain(form) == "y later"

    bench(test)


def test_groups_at_which_others_are_hold_nobody_up(bench: Any) -> None:
    """A FIFO group whose head is locked: it is passed over, and its guard does not stay."""

    async def test(b: Any) -> None:
        await b.create(locked_until=None, fifo=True)
        first, *_rest = await b.insert(*({"grp": grp} for grp in "abc"))
        async with every(b, 2) as (form, other):
            async with b.locked(first):
                (row,) = await take(form)
                assert row.group == "b"
            # The session that has b in work let go of a's guard.
            assert await drain(other) == "a c"
            await finish(form, [row])

    bench(test)


@kinds
def test_a_look_ends_and_the_next_goes_on(
    bench: Any, monkeypatch: pytest.MonkeyPatch, fifo: bool
) -> None:
    """More groups than one look goes to; and a table with neither due times nor attempts."""
    for module in (postgres_every_group, mysql_every_group):
        monkeypatch.setattr(module, "STEPS", 4)

    async def test(b: Any) -> None:
        nothing = dict.fromkeys(["locked_until", "retry_after", "priority", "attempt"])
        await b.create(fifo=fifo, **nothing)
        names = "abcdefghij"
        await b.insert(*({"grp": name} for name in names * 2))
        async with every(b, others=("d",)) as (form,):
            assert await drain(form) == " ".join("abcefghij" * 2)
            await b.insert({"grp": "z"})
            assert await drain(form) == "z"
            # Side by side: what one claim sees another may have gone past, and nothing is left.
            await b.insert(*({"grp": name} for name in names * 2))
            found: list[str] = []

            async def drain_beside() -> None:
                found.extend((await drain(form)).split())

            for _ in range(2):  # who found nothing meanwhile looks again
                async with anyio.create_task_group() as drains:
                    for _ in range(3):
                        drains.start_soon(drain_beside)
            assert sorted(found) == sorted("abcefghij" * 2)

    bench(test)
