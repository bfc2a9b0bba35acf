"""Claims of many FIFO groups at once on MariaDB and MySQL, where other sessions meet them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.mysql.heads import AT_ONCE
from inboxkit._sql.statement import Answer, Statement, Steps
from inboxkit._sql.table import bind
from inboxkit.database import Database, Transaction
from inboxkit.errors import DatabaseBusyError, DatabaseError

DIALECT = get_dialect("mysql")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)


class Place:
    """A table of FIFO groups, a row in each."""

    def __init__(self, db: Database, spec: InboxSpec) -> None:
        self.db = db
        self.spec = spec
        self.sql = DIALECT.table(spec.table, None)

    async def fill(self, groups: str | list[str], indexes: int | None = None) -> None:
        """Make it; with so many of its indexes only."""
        for statement in create_table(DIALECT, self.spec):
            await self.db.execute(statement)
        for group in groups:
            await self.put(group)
        info = await self.db.run(DIALECT.describe(self.spec))
        info = info if indexes is None else replace(info, indexes=info.indexes[:indexes])
        self.lease = DIALECT.lease(bind(DIALECT, self.spec, info), group=None, cap=None)

    async def put(self, group: str, priority: int = 5) -> None:
        await self.db.execute(
            f"INSERT INTO {self.sql} (grp, prio) VALUES ($1, $2)", group, priority
        )

    def claim(self, groups: str | list[str]) -> Steps[Any]:
        return self.lease.heads.claim(list(groups), now=NOW, expiry=LATER, aside=())

    async def leased(self) -> str:
        """The groups of the rows under a lease, in order."""
        found = await self.db.fetch(
            f"SELECT grp, tries, lease FROM {self.sql} ORDER BY grp, prio, id"
        )
        assert all((row[1] == 2) == (row[2] == LATER) for row in found)
        return "".join(row[0] for row in found if row[2] is not None)


class Session:
    """Sends a claim's statements inside a transaction."""

    def __init__(self, tx: Transaction, steps: Steps[Any]) -> None:
        self._tx = tx
        self._steps = steps
        self._next: Statement | None = next(steps)
        self.sent: list[str] = []
        self.rows: list[Any] = []
        self.on_busy: Callable[[], Awaitable[Any]] | None = None

    async def go_on(self, before: str = "") -> None:
        """Up to a statement, which is not sent; or to the end."""
        while (statement := self._next) is not None and statement.name != before:
            self.sent.append(statement.name)
            answer: Answer | DatabaseBusyError
            try:
                answer = await self._tx._driver.execute(statement)
            except DatabaseBusyError as error:
                answer = error
                if self.on_busy is not None:
                    await self.on_busy()
            try:
                if isinstance(answer, DatabaseBusyError):
                    self._next = self._steps.throw(answer)
                else:
                    self._next = self._steps.send(answer)
            except StopIteration as stop:
                self._next, self.rows = None, stop.value

    @property
    def groups(self) -> str:
        return "".join(row[1] for row in self.rows)


@pytest.fixture
def at_place(mysql_url: str, table: str) -> Callable[[Callable[[Place], Awaitable[Any]]], None]:
    """Run an async test with one table."""
    spec = InboxSpec(
        table,
        id=Column("id", generated=True, type=int),
        group=Column("grp"),
        fifo=True,
        priority=Column("prio"),
        attempt=Column("tries"),
        locked_until=Column("lease"),
    )

    def run(test: Callable[[Place], Awaitable[Any]]) -> None:
        async def main() -> None:
            async with Database(mysql_url) as db:
                await test(Place(db, spec))

        anyio.run(main)

    return run


def test_many_groups_take_as_many_statements_as_one(at_place: Any) -> None:
    async def test(at: Place) -> None:
        names = [f"g{n:03}" for n in range(AT_ONCE)]
        await at.fill(names)
        await at.put("g001", priority=9)
        async with at.db.transaction() as tx:
            one = Session(tx, at.claim(names[:1]))
            await one.go_on()
            others = Session(tx, at.claim([*names[:0:-1], "none"]))
            await others.go_on()
        assert one.sent == others.sent[:3] == ["claim due", "claim", "claim check"]
        # The last one of 33 names is a part of its own, and has no row.
        assert others.sent[3:] == []
        assert [row[1] for row in others.rows] == names[:0:-1]
        async with at.db.transaction() as tx:
            nothing = Session(tx, at.claim(names))
            await nothing.go_on()
        assert nothing.sent == ["claim due"]
        assert nothing.rows == ()

    at_place(test)


def test_more_groups_than_one_statement_takes(at_place: Any) -> None:
    async def test(at: Place) -> None:
        names = [f"g{n:03}" for n in range(2 * AT_ONCE + 1)]
        await at.fill(names)
        async with at.db.transaction() as tx:
            session = Session(tx, at.claim(names))
            await session.go_on()
        assert [row[1] for row in session.rows] == names
        assert session.sent == ["claim due", "claim", "claim check"] * 3

    at_place(test)


def test_group_that_is_overtaken_is_put_back_alone(at_place: Any) -> None:
    """A row is inserted ahead, and claimed, between the locking of the heads and their leases."""

    async def test(at: Place) -> None:
        await at.fill("abcd")
        async with at.db.transaction() as tx:
            session = Session(tx, at.claim("abcd"))
            await session.go_on(before="claim")
            for group in "bd":
                await at.put(group, priority=1)
            async with at.db.transaction() as other:
                quick = Session(other, at.claim("bd"))
                await quick.go_on()
                assert quick.groups == "bd"
            await session.go_on()
            assert session.groups == "ac"
            assert session.sent[-2:] == ["claim check", "claim undo"]
        assert await at.leased() == "abcd"
        unleased = await at.db.fetch(f"SELECT grp, prio FROM {at.sql} WHERE lease IS NULL")
        assert sorted(map(tuple, unleased)) == [("b", 5), ("d", 5)]

    at_place(test)


def test_group_at_which_a_claim_has_not_committed_is_put_back_alone(at_place: Any) -> None:
    """Its lock makes the check of all groups an error, which does not tell whose it is."""

    async def test(at: Place) -> None:
        await at.fill("abc")
        async with at.db.transaction() as tx, at.db.transaction() as other:
            session = Session(tx, at.claim("abc"))
            await session.go_on(before="claim")
            await at.put("b", priority=1)
            quick = Session(other, at.claim("b"))
            await quick.go_on(before="claim check")
            with anyio.fail_after(5):
                await session.go_on()
            assert session.groups == "ac"
            with anyio.fail_after(5):
                await quick.go_on()
            # The other's lease was there when it looked, and it has not yet committed either.
            assert quick.rows == ()
        assert await at.leased() == "ac"

    at_place(test)


def test_a_claim_fails_whose_transaction_a_refused_check_ends(at_place: Any) -> None:
    """As under innodb_rollback_on_timeout: the leases that were written before are gone."""

    async def ended(at: Place, quick: Session) -> None:
        async with at.db.transaction() as tx:
            session = Session(tx, at.claim("abc"))
            await session.go_on(before="claim")
            await at.put("b", priority=1)
            await quick.go_on(before="claim check")
            end = Statement("end", "ROLLBACK", (), returns_rows=False)
            session.on_busy = lambda: tx._driver.execute(end)
            await session.go_on()

    async def test(at: Place) -> None:
        await at.fill("abc")
        async with at.db.transaction() as other:
            quick = Session(other, at.claim("b"))
            with pytest.raises(DatabaseError, match="no transaction is open"):
                await ended(at, quick)
            await quick.go_on()
            assert quick.groups == "b"
        assert await at.leased() == "b"

    at_place(test)


def test_locked_heads_and_those_in_work_are_left(at_place: Any) -> None:
    async def test(at: Place) -> None:
        await at.fill("abcd")
        await at.put("a", priority=9)
        async with at.db.transaction() as tx:
            await Session(tx, at.claim("b")).go_on()
        async with at.db.transaction() as tx, at.db.transaction() as other:
            await other.execute(f"SELECT id FROM {at.sql} WHERE grp = 'a' AND prio = 5 FOR UPDATE")
            session = Session(tx, at.claim("dcba"))
            await session.go_on()
        assert session.groups == "dc"
        assert await at.leased() == "bcd"

    at_place(test)


def test_groups_are_claimed_without_an_index_on_the_lease(at_place: Any) -> None:
    async def test(at: Place) -> None:
        await at.fill("abc", indexes=1)
        async with at.db.transaction() as tx:
            session = Session(tx, at.claim("cab"))
            await session.go_on()
        assert session.groups == "cab"
        assert await at.leased() == "abc"

    at_place(test)
