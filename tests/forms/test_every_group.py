"""All groups of a table through one lease form: in rounds, and none that is left to others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import inboxkit._sql.mysql.every_group as mysql_every_group
import inboxkit._sql.postgres.every_group as postgres_every_group
import inboxkit._sql.sqlite.every_group as sqlite_every_group
from inboxkit._core.group_shape import GroupShape
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.settlement import Settlement, Verb
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._forms import open_form
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Others
from inboxkit._sql.info import TableInfo
from inboxkit.errors import DialectError

PLACES = [
    *((name, backend) for name in ("sqlite", "postgres") for backend in ("asyncio", "trio")),
    ("mariadb", "asyncio"),
    ("mysql", "trio"),
]
everywhere = pytest.mark.parametrize(("url", "bench"), PLACES, indirect=True)
FINISH = Settlement(Verb.FINISH)


def every(b: Any, *groups: str, shape: str | None = None, step: int = 0) -> Any:
    made = None if shape is None else GroupShape.read(shape)
    return open_form(
        b,
        b.spec,
        b.info,
        b.dialect,
        group=None,
        lease=timedelta(seconds=30),
        cap=None,
        steps=ExpirySteps(step),
        others=Others(groups, made),
    )


@everywhere
def test_a_claim_of_many_is_as_many_claims_of_one(bench: Any) -> None:
    """Also where it goes over the end of a round."""

    async def test(b: Any) -> None:
        await b.create()
        for limit in (1, 3):
            form = every(b)
            await b.insert({"grp": "a"}, {"grp": "c", "prio": 2})
            assert groups(await form.claim(limit=2)) == "ac"
            await b.insert(*({"grp": grp} for grp in "bbcac"))
            found = [groups(await form.claim(limit=limit)) for _ in range(5)]
            # b ends the round, and is the first of the next.
            assert "".join(found) == "bbcac"
            await b.db.execute(f"DELETE FROM {b.name}")

    bench(test)


def test_the_advisory_form_is_refused_by_name() -> None:
    spec = InboxSpec("jobs", id=Column("id"), group=Column("grp"), advisory_lock="jobs-{id}")
    with pytest.raises(DialectError, match=r"'jobs'.*advisory lock.*every group.*locked_until"):
        open_form(
            None,  # type: ignore[arg-type]
            spec,
            TableInfo("jobs"),
            get_dialect("postgres"),
            group=None,
            lease=timedelta(seconds=30),
            cap=None,
            steps=ExpirySteps(0),
            others=Others(),
        )


@pytest.mark.parametrize(("url", "bench"), PLACES[-2:], indirect=True)
def test_groups_that_the_database_cannot_tell_apart_are_refused(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        column = "MODIFY grp varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
        await b.db.execute(f"ALTER TABLE {b.name} {column}")
        await b.look()
        with pytest.raises(DialectError, match=r"'grp'.*utf8mb4_general_ci.*COLLATE utf8mb4_bin"):
            every(b)

    bench(test)


def groups(claim: Any) -> str:
    return "".join(row.group for row in claim.rows)


async def drain(form: Any, limit: int = 1) -> str:
    """Claim and finish until nothing is due; the groups of all rows, claims apart."""
    found = []
    while True:
        claim = await form.claim(limit=limit)
        if claim.rows:
            found.append(groups(claim))
            await form.settle([(row.fence, FINISH) for row in claim.rows])
        elif not claim.more:
            return " ".join(found)


@everywhere
@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
def test_no_group_is_served_twice_while_another_waits(bench: Any, fifo: bool) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=fifo)
        rows = [{"grp": grp} for grp in "aaaabbbcc"]
        await b.insert(*rows, {"grp": "d", "prio": -1}, {"grp": "e", "prio": 9})
        # By the heads' keys within a round: the urgent first, the least urgent last.
        assert await drain(every(b)) == "d a b c e a b c a b a"
        await b.insert(*rows, {"grp": "d", "prio": -1}, {"grp": "e", "prio": 9})
        assert await drain(every(b), 3) == "dab cea bca ba"
        await b.insert(*({"grp": grp} for grp in "aaabc"))
        claim = await every(b).claim(limit=9)
        assert groups(claim) == ("abc" if fifo else "abcaa")

    bench(test)


@everywhere
def test_a_group_that_comes_late_has_its_turn_before_others_have_a_second(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create()
        await b.insert(*({"grp": grp} for grp in "aabb"))
        form = every(b)
        assert groups(await form.claim(limit=1)) == "a"
        assert groups(await form.claim(limit=1)) == "b"
        await b.insert({"grp": "z", "prio": 5})
        assert await drain(form) == "z a b"

    bench(test)


@everywhere
@pytest.mark.parametrize(
    ("fifo", "kept"), [(False, True), (True, False)], ids=["plain-kept", "fifo-deleted"]
)
def test_what_is_not_due_or_not_ours_is_left(bench: Any, fifo: bool, kept: bool) -> None:
    async def test(b: Any) -> None:
        roles: dict[str, Any] = {"processed_at": Column("done")} if kept else {}
        await b.create(fifo=fifo, group=Column("grp", default=None), **roles)
        if b.is_postgres:
            await b.db.execute(f"ALTER TABLE {b.name} ALTER grp DROP NOT NULL")
            await b.db.execute(f'ALTER TABLE {b.name} ALTER grp TYPE varchar(40) COLLATE "C"')
            b.info = await b.db.run(b.dialect.describe(b.spec))
        names = ["own", "a.dead", ".dead", "dead", "x.deaded", "", "später"]
        await b.insert(*({"grp": name} for name in names))
        if b.is_postgres:
            await b.insert({"grp": None})
        leased, ended, later = await b.insert({"grp": "l"}, {"grp": "e"}, {"grp": "n"})
        await b.set(leased, lease=b.now + timedelta(seconds=1))
        await b.set(ended, lease=b.now)
        await b.set(later, due=b.now + timedelta(seconds=1))
        form = every(b, "own", shape="{group}.dead")
        claim = await form.claim(limit=50)
        assert {row.group for row in claim.rows} == {"dead", "x.deaded", "", "später", "e"}
        assert not claim.more
        await form.settle([(row.fence, FINISH) for row in claim.rows])
        b.advance(seconds=1)
        assert await drain(form) == "l n"

    bench(test)


@everywhere
def test_of_a_fifo_group_one_row_is_in_work(bench: Any) -> None:
    async def test(b: Any) -> None:
        await b.create(fifo=True)
        a1, _a2, b1 = await b.insert({"grp": "a"}, {"grp": "a"}, {"grp": "b"})
        one, other, single = every(b), every(b, step=9), b.form("a", step=99)
        (held,) = (await single.claim(limit=1)).rows
        (second,) = (await one.claim(limit=5)).rows
        assert (held.fence.id, second.fence.id) == (a1, b1)
        (ahead,) = await b.insert({"grp": "a", "prio": -1})
        assert (await other.claim(limit=5)).rows == ()
        renewal = await one.renew([(second.fence, second.reading)], timeout=5)
        assert set(renewal.renewed) == {b1}
        b.advance(seconds=31)
        taken = await other.claim(limit=5)
        assert [row.fence.id for row in taken.rows] == [ahead, b1]
        assert (await single.claim(limit=1)).rows == ()
        renewal = await single.renew([(held.fence, held.reading)], timeout=5)
        assert renewal.lost == {a1}

    bench(test)


@everywhere
def test_groups_at_which_others_are_hold_nobody_up(bench: Any) -> None:
    """A group guarded by another claim, and one whose head somebody has locked."""

    async def test(b: Any) -> None:
        await b.create(fifo=True)
        _a, second, _c = await b.insert(*({"grp": grp} for grp in "abc"))
        form = every(b)
        if not b.is_postgres:
            if b.is_mysql:
                async with b.locked(second):
                    assert await drain(form) == "a c"
            return
        async with b.db.transaction() as tx:
            await tx.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))",
                f'"public".{b.name}:a',
            )
            await tx.execute(f"SELECT id FROM {b.name} WHERE grp = 'b' FOR UPDATE")
            assert await drain(form) == "c"
        assert await drain(form, 5) == "ab"

    bench(test)


@everywhere
@pytest.mark.parametrize(
    ("fifo", "indexed"),
    [(False, True), (False, False), (True, True)],
    ids=["plain", "plain-bare", "fifo"],
)
def test_a_look_ends_and_the_next_goes_on(
    bench: Any, monkeypatch: pytest.MonkeyPatch, fifo: bool, indexed: bool
) -> None:
    """More groups than one look goes to: each is found, and none is served twice in a round."""
    for module in (postgres_every_group, sqlite_every_group, mysql_every_group):
        monkeypatch.setattr(module, "STEPS", 4)

    async def test(b: Any) -> None:
        await b.create(fifo=fifo)
        if not indexed:
            for suffix in ("queue", "lease"):
                name = b.dialect.quote(f"{b.table}_{suffix}")
                if not b.is_mysql:
                    await b.db.execute(f"DROP INDEX {name}")
                elif suffix == "queue":
                    await b.db.execute(f"DROP INDEX {name} ON {b.name}")
            b.info = await b.db.run(b.dialect.describe(b.spec))
        names = "abcdefghij"
        await b.insert(*({"grp": name} for name in names * 2))
        form = every(b, "d")
        assert await drain(form) == " ".join("abcefghij" * 2)
        await b.insert(*({"grp": name, "due": b.now + timedelta(days=1)} for name in names))
        await b.insert({"grp": "z"})
        assert await drain(form) == "z"

    bench(test)
