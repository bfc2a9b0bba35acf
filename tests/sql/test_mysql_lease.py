"""The lease form where two sessions meet on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pymysql
import pytest

from inboxkit import insert_statements
from inboxkit._core.lease import ExpirySteps
from inboxkit._core.rows import NewRow
from inboxkit._core.settlement import Destination, Settlement, Verb
from inboxkit._core.spec import Column, InboxSpec
from inboxkit._db.mysql_url import read_target
from inboxkit._forms import LeaseForm, open_form
from inboxkit._sql.check import check
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.insert import insert
from inboxkit._sql.statement import Statement, Steps
from inboxkit._sql.table import Table, bind
from inboxkit.database import Database, Transaction
from inboxkit.errors import ConstraintError, DatabaseError

DIALECT = get_dialect("mysql")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
Test = Callable[["Place"], Awaitable[Any]]


class Place:
    """One table."""

    def __init__(self, db: Database, spec: InboxSpec) -> None:
        self.db = db
        self.spec = spec
        self.name = DIALECT.table(spec.table, None)

    async def create(self, *statements: str) -> None:
        made = statements or DIALECT.create_table(self.spec)
        for statement in made:
            await self.db.execute(statement.replace("TABLE_", self.name))
        self.info = await self.db.run(DIALECT.describe(self.spec))
        check(DIALECT, self.spec, self.info)
        self.table: Table = bind(DIALECT, self.spec, self.info)
        self.lease = DIALECT.lease(self.table, group="a", cap=None)

    async def insert(self, *rows: dict[str, Any], ignore: bool = False) -> list[Any]:
        script = insert(
            DIALECT,
            self.spec,
            self.info,
            [NewRow(self.spec, {"grp": "a", "tries": 1} | row) for row in rows],
            on_conflict="ignore" if ignore else "error",
            now=NOW,
        )
        ids: list[Any] = await self.db.run(script)
        return ids

    def form(self, group: str = "a") -> LeaseForm:
        form = open_form(
            self.db,
            self.spec,
            self.info,
            DIALECT,
            group=group,
            lease=timedelta(seconds=30),
            cap=None,
            steps=ExpirySteps(0),
        )
        assert isinstance(form, LeaseForm)
        return form

    def claiming(self, limit: int = 1) -> Steps[Any]:
        return self.lease.claim(now=NOW, expiry=LATER, limit=limit)

    async def rows(self, columns: str) -> list[tuple[Any, ...]]:
        found = await self.db.fetch(f"SELECT {columns} FROM {self.name} ORDER BY id")
        return [tuple(row) for row in found]


async def go_on(
    tx: Transaction, steps: Steps[Any], statement: Statement | None = None, *, before: str = ""
) -> Any:
    """Send a script's statements inside a transaction, from one on, up to another that is returned; or
    to the end, and return its result."""
    statement = statement if statement is not None else next(steps)
    while statement.name != before:
        try:
            answer = await tx._driver.execute(statement)
        except DatabaseError as error:
            send = lambda error=error: steps.throw(error)  # noqa: E731
        else:
            send = lambda answer=answer: steps.send(answer)  # noqa: E731
        try:
            statement = send()
        except StopIteration as stop:
            return stop.value
    return statement


@pytest.fixture
def at_place(mysql_url: str, table: str) -> Callable[..., None]:
    """Run an async test with one table."""

    def run(test: Test, **roles: Any) -> None:
        given = {
            "id": Column("id", generated=True, type=int),
            "group": Column("grp"),
            "attempt": Column("tries"),
            "locked_until": Column("lease"),
        }
        spec = InboxSpec(table, **{**given, **roles})

        async def main() -> None:
            async with Database(mysql_url) as db:
                await test(Place(db, spec))

        anyio.run(main)

    return run


PRIORITY = {"fifo": True, "priority": Column("prio")}


def test_claim_that_looks_before_another_has_committed_sees_it(
    at_place: Callable[..., None],
) -> None:
    """A row was inserted ahead meanwhile, so the two heads are two rows."""

    async def test(at: Place) -> None:
        await at.create()
        await at.insert({"prio": 5})
        async with at.db.transaction() as first:
            (mine,) = await go_on(first, at.claiming())
            (ahead,) = await at.insert({"prio": 1})
            async with at.db.transaction() as second:
                assert await go_on(second, at.claiming()) == ()
            assert (await at.rows("tries, lease"))[1] == (1, None)
        assert [row[0] for row in await at.rows("id")] == [mine[0], ahead]
        assert await at.rows("tries, lease") == [(2, LATER), (1, None)]

    at_place(test, **PRIORITY)


def test_claim_that_is_overtaken_puts_its_row_back(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create()
        await at.insert({"prio": 5})
        async with at.db.transaction() as first:
            steps = at.claiming()
            update = await go_on(first, steps, before="claim")
            (ahead,) = await at.insert({"prio": 1})
            async with at.db.transaction() as second:
                ((found, *_),) = await go_on(second, at.claiming())
                assert found == ahead
            assert await go_on(first, steps, update) == ()
        assert await at.rows("tries, lease") == [(1, None), (2, LATER)]

    at_place(test, **PRIORITY)


def test_two_claims_that_wait_for_each_other_both_give_way(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create()
        await at.insert({"prio": 5})
        async with at.db.transaction() as first, at.db.transaction() as second:
            one, other = at.claiming(), at.claiming()
            check_one = await go_on(first, one, before="claim check")
            await at.insert({"prio": 1})
            check_other = await go_on(second, other, before="claim check")
            with anyio.fail_after(5):
                assert await go_on(first, one, check_one) == ()
                assert await go_on(second, other, check_other) == ()
        assert await at.rows("tries, lease") == [(1, None), (1, None)]
        claim = await at.form().claim(limit=1)
        assert [row.values["prio"] for row in claim.rows] == [1]

    at_place(test, **PRIORITY)


def test_row_in_work_that_is_locked_is_still_seen(at_place: Callable[..., None]) -> None:
    """SKIP LOCKED reaches no further than the row that it is said of."""

    async def test(at: Place) -> None:
        await at.create()
        await at.insert({"prio": 5})
        (old,) = (await at.form().claim(limit=1)).rows
        (ahead,) = await at.insert({"prio": 1})
        await at.db.execute(
            f"UPDATE {at.name} SET lease = $1, tries = 2 WHERE id = $2",
            old.fence.tokens[0] + timedelta(microseconds=1),
            ahead,
        )
        async with at.db.transaction() as tx:
            await tx.execute(f"SELECT id FROM {at.name} WHERE id = $1 FOR UPDATE", ahead)
            with anyio.fail_after(5):
                renewal = await at.form().renew([(old.fence, old.reading)], timeout=4)
            assert renewal.lost == {old.fence.id}
            await tx.execute(f"UPDATE {at.name} SET grp = 'b' WHERE id = $1", old.fence.id)

    at_place(test, **PRIORITY)


def test_head_that_is_locked_stays_the_head(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create()
        head, _behind = await at.insert({"prio": 1}, {"prio": 5})
        async with at.db.transaction() as tx:
            await tx.execute(f"SELECT id FROM {at.name} WHERE id = $1 FOR UPDATE", head)
            assert (await at.form().claim(limit=1)).rows == ()

    at_place(test, **PRIORITY)


def test_rows_being_inserted_do_not_hold_their_group(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create()
        (head,) = await at.insert({"prio": 5})
        async with at.db.transaction() as tx:
            await tx.execute(f"INSERT INTO {at.name} (grp, prio) VALUES ('a', 1), ('a', 9)")
            claim = await at.form().claim(limit=1)
            assert [row.fence.id for row in claim.rows] == [head]

    at_place(test, **PRIORITY)


@pytest.mark.parametrize("due", [None, Column("due", default=None)], ids=["plain", "due"])
def test_claim_locks_its_own_rows_alone(at_place: Callable[..., None], due: Column | None) -> None:
    async def test(at: Place) -> None:
        await at.create()
        ids = await at.insert(*({} for _ in range(400)))
        leased = ids[:100]
        places = ", ".join(map(str, leased))
        await at.db.execute(f"UPDATE {at.name} SET lease = $1 WHERE id IN ({places})", LATER)
        await at.db.execute(f"ANALYZE TABLE {at.name}")
        async with at.db.transaction() as first:
            steps = at.claiming(limit=10)
            await go_on(first, steps, before="claim")
            with anyio.fail_after(5):
                free = await at.db.fetch(f"SELECT id FROM {at.name} FOR UPDATE SKIP LOCKED")
                await at.insert({}, {})
        assert sorted(row[0] for row in free) == ids[:100] + ids[110:]

    at_place(test, retry_after=due)


@pytest.mark.parametrize("index", ["in claim order", "none"])
def test_row_is_passed_over_for_no_claim_of_another_group(
    at_place: Callable[..., None], index: str
) -> None:
    """A claim that read to the end of its own rows would for a moment lock the first of the next group."""

    async def test(at: Place) -> None:
        made = DIALECT.create_table(at.spec)
        await at.create(*(made if index == "in claim order" else made[:1]))
        beside = at.form("a")

        async def claim_beside() -> None:
            while True:
                rows = (await beside.claim(limit=10)).rows
                await beside.settle([(row.fence, Settlement(Verb.FINISH)) for row in rows])
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(claim_beside)
            for _ in range(60):
                await at.insert({"grp": "a"}, {"grp": "b"})
                assert len((await at.form("b").claim(limit=10)).rows) == 1
            group.cancel_scope.cancel()

    at_place(test)


@pytest.mark.parametrize("fifo", [False, True])
def test_claim_that_finds_nothing_locks_nothing(at_place: Callable[..., None], fifo: bool) -> None:
    """Neither a row in work, nor one that was moved to another group just now."""

    async def test(at: Place) -> None:
        await at.create()
        await at.insert({}, {"grp": "b"})
        form = at.form()
        (held,) = (await form.claim(limit=1)).rows
        (other,) = (await at.form("b").claim(limit=1)).rows
        move = Settlement(Verb.MOVE, destination=Destination(group="c"))
        async with at.db.transaction() as first, at.db.transaction() as second:
            now = other.reading.now
            empty = at.lease.claim(now=now, expiry=LATER, limit=1)
            assert await go_on(first, empty) == ()
            renewal = await form.renew([(held.fence, held.reading)], timeout=5)
            assert set(renewal.renewed) == {held.fence.id}
            assert (await form.settle([(other.fence, move)]))[0].result == "written"
            lease = DIALECT.lease(at.table, group="b", cap=None)
            assert await go_on(second, lease.claim(now=now, expiry=LATER, limit=1)) == ()
            moved = (await at.form("c").claim(limit=1)).rows
            assert [row.fence.id for row in moved] == [other.fence.id]

    at_place(test, fifo=fifo)


@pytest.mark.parametrize("fifo", [False, True])
def test_index_that_is_dropped_while_the_service_runs_is_done_without(
    at_place: Callable[..., None], fifo: bool
) -> None:
    async def test(at: Place) -> None:
        await at.create()
        first, second = await at.insert({}, {})
        form = at.form()
        for name in {index.name for index in at.info.indexes} - {"PRIMARY"}:
            await at.db.execute(f"DROP INDEX {DIALECT.quote(name)} ON {at.name}")
        await at.db.execute(f"ALTER TABLE {at.name} DROP PRIMARY KEY, ADD UNIQUE other (id)")
        for id in (first, second):
            (row,) = (await form.claim(limit=1)).rows
            assert row.fence.id == id
            renewal = await form.renew([(row.fence, row.reading)], timeout=5)
            fence = type(row.fence)(id, tuple(renewal.renewed.values()), row.fence.attempt)
            (settled,) = await form.settle([(fence, Settlement(Verb.FINISH))])
            assert settled.result == "written"

    at_place(test, fifo=fifo)


def test_renewal_and_claim_pass_over_locked_rows_and_settlements_wait(
    at_place: Callable[..., None],
) -> None:
    async def test(at: Place) -> None:
        await at.create()
        locked, free, gone = await at.insert({}, {}, {})
        form = at.form()
        rows = (await form.claim(limit=3)).rows
        fences = {row.fence.id: (row.fence, row.reading) for row in rows}
        await at.db.execute(f"UPDATE {at.name} SET lease = NULL WHERE id = $1", gone)
        done: list[Any] = []
        renewal: Any = None

        async def settle() -> None:
            done.extend(await form.settle([(fences[locked][0], Settlement(Verb.FINISH))]))

        async with anyio.create_task_group() as tasks, at.db.transaction() as other:
            await other.execute(f"SELECT id FROM {at.name} WHERE id = $1 FOR UPDATE", locked)
            with anyio.fail_after(5):
                renewal = await form.renew(list(fences.values()), timeout=4)
                assert [row.fence.id for row in (await form.claim(limit=3)).rows] == [gone]
            tasks.start_soon(settle)
            await anyio.wait_all_tasks_blocked()
            assert not done
        assert (renewal.skipped, renewal.lost, set(renewal.renewed)) == ({locked}, {gone}, {free})
        assert [one.result for one in done] == ["written"]

    at_place(test)


@pytest.mark.parametrize("kind", ["datetime", "timestamp"])
@pytest.mark.parametrize("digits", [0, 3])
def test_tokens_survive_a_column_of_fewer_digits(
    at_place: Callable[..., None], kind: str, digits: int
) -> None:
    """MariaDB cuts what the column does not keep, MySQL rounds it."""

    async def test(at: Place) -> None:
        time = f"{kind}({digits}) NULL"
        await at.create(
            f"CREATE TABLE TABLE_ (id bigint AUTO_INCREMENT PRIMARY KEY, grp varchar(9), tries int, "
            f"due {time}, lease {time})"
        )
        form = at.form()
        for settlement in (
            Settlement(Verb.HOLD, timedelta(seconds=1.5)),
            Settlement(Verb.POSTPONE, timedelta(seconds=1.5)),
            Settlement(Verb.FINISH),
        ):
            await at.insert({"due": datetime(2020, 1, 1, tzinfo=UTC)})
            (row,) = (await form.claim(limit=1)).rows
            assert await at.rows("lease") == [row.fence.tokens]
            renewal = await form.renew([(row.fence, row.reading)], timeout=5)
            tokens = tuple(renewal.renewed.values())
            assert await at.rows("lease") == [tokens]
            fence = type(row.fence)(row.fence.id, tokens, row.fence.attempt)
            (settled,) = await form.settle([(fence, settlement)])
            assert settled.result == "written"
            if settled.due is not None:
                assert settled.due in (await at.rows("lease, due"))[0]
            await at.db.execute(f"DELETE FROM {at.name}")

    at_place(test, retry_after=Column("due", default=None))


def test_instants_beyond_a_timestamp_become_its_last(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create(
            "CREATE TABLE TABLE_ (id bigint AUTO_INCREMENT PRIMARY KEY, grp varchar(9), "
            "tries tinyint unsigned, due timestamp(3) NULL, lease timestamp(3) NULL)"
        )
        await at.insert({"due": datetime(1900, 1, 1, tzinfo=UTC), "tries": 255})
        form = at.form()
        (row,) = (await form.claim(limit=1)).rows
        assert (row.attempt, row.counted) == (255, False)
        settlement = Settlement(Verb.POSTPONE, timedelta(days=36500))
        (settled,) = await form.settle([(row.fence, settlement)])
        assert settled.result == "written"
        assert await at.rows("due, tries") == [(datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), 255)]

    at_place(test, retry_after=Column("due", default=None))


@pytest.mark.parametrize(
    "text", ["utf8mb4 COLLATE utf8mb4_bin", "latin1", "utf8mb4 COLLATE utf8mb4_unicode_ci"]
)
def test_rows_with_ids_of_any_character_set_are_finished_together(
    at_place: Callable[..., None], text: str
) -> None:
    async def test(at: Place) -> None:
        await at.create(
            f"CREATE TABLE TABLE_ (id varchar(40) CHARACTER SET {text} PRIMARY KEY, "
            "grp varchar(40) NOT NULL, tries int NOT NULL, lease datetime(6))"
        )
        await at.insert(*({"id": id} for id in ("é", "à" * 40, "ß-1", "z")))
        form = at.form()
        claimed = (await form.claim(limit=10)).rows
        assert len(claimed) == 4
        kept = next(row for row in claimed if row.fence.id == "ß-1")
        given = [(row.fence, Settlement(Verb.FINISH)) for row in claimed if row is not kept]
        assert {one.result for one in await form.settle(given)} == {"written"}
        assert await at.rows("id") == [("ß-1",)]

    at_place(test, id=Column("id", type=str))


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize(
    "collation",
    ["utf8mb4_general_ci", "utf8mb4_bin", "latin1_swedish_ci", "utf8mb3_unicode_ci"],
)
def test_groups_that_a_collation_takes_for_one_stay_apart(
    at_place: Callable[..., None], collation: str, fifo: bool
) -> None:
    async def test(at: Place) -> None:
        charset = collation.partition("_")[0]
        await at.create(
            "CREATE TABLE TABLE_ (id bigint AUTO_INCREMENT PRIMARY KEY, "
            f"grp varchar(20) CHARACTER SET {charset} COLLATE {collation}, tries int, "
            "lease datetime(6), KEY (grp, lease, id))"
        )
        names = ["A", "a", "a ", "ä", "Ä"]
        ids = await at.insert(*({"grp": name} for name in names))
        claims = {name: (await at.form(name).claim(limit=9)).rows for name in names}
        assert {name: [row.fence.id for row in rows] for name, rows in claims.items()} == {
            name: [id] for name, id in zip(names, ids, strict=True)
        }
        holds = [(row.fence, row.reading) for rows in claims.values() for row in rows]
        renewal = await at.form().renew(holds, timeout=5)
        assert set(renewal.renewed) == set(ids)
        assert [row[0] for row in await at.rows("grp")] == names

    at_place(test, fifo=fifo)


def test_move_to_a_table_that_refuses_a_row_fails_that_row_alone(
    at_place: Callable[..., None], table: str
) -> None:
    async def test(at: Place) -> None:
        await at.create()
        dead = DIALECT.table(f"{table} dead", None)
        await at.db.execute(f"CREATE TABLE {dead} LIKE {at.name}")
        first, second = await at.insert({}, {})
        await at.db.execute(f"INSERT INTO {dead} (id, grp, tries) VALUES ($1, 'x', 1)", first)
        rows = (await at.form().claim(limit=2)).rows
        move = Settlement(Verb.MOVE, destination=Destination(table=f"{table} dead"))
        settled = await at.form().settle([(row.fence, move) for row in rows])
        assert [one.result for one in settled] == ["failed", "written"]
        assert isinstance(settled[0].error, ConstraintError)
        assert [row[0] for row in await at.rows("id")] == [first]
        moved = await at.db.fetch(f"SELECT id, tries, lease FROM {dead} ORDER BY id")
        assert [tuple(row) for row in moved] == [(first, 1, None), (second, 2, None)]

    at_place(test)


def test_ignored_rows_are_duplicates_and_nothing_else(at_place: Callable[..., None]) -> None:
    async def test(at: Place) -> None:
        await at.create(
            "CREATE TABLE TABLE_ (id bigint AUTO_INCREMENT PRIMARY KEY, grp varchar(9), tries int, "
            "lease datetime(6), a int UNIQUE, CHECK (a < 100))"
        )
        one, two = await at.insert({"a": 1}, {"a": 2}, ignore=True)
        ids = await at.insert({"a": 3}, {"a": 1}, {"a": 4}, {"a": 3}, ignore=True)
        assert [id is None for id in ids] == [False, True, False, True]
        with pytest.raises(ConstraintError):
            await at.insert({"a": 5}, {"a": 1}, {"a": 100}, ignore=True)
        assert await at.rows("id, a") == [(one, 1), (two, 2), (ids[0], 3), (ids[2], 4)]
        async with at.db.transaction() as tx:
            script = insert(
                DIALECT,
                at.spec,
                at.info,
                [NewRow(at.spec, {"a": n}) for n in (6, 1)],
                on_conflict="ignore",
                now=NOW,
            )
            assert [id is None for id in await tx.run(script)] == [False, True]
        assert [row[0] for row in await at.rows("a")] == [1, 2, 3, 4, 6]

    at_place(test, columns=(Column("a", type=int),))


def test_statements_for_any_driver_have_its_placeholders(
    at_place: Callable[..., None], mysql_url: str
) -> None:
    async def test(at: Place) -> None:
        await at.create()
        rows = [NewRow(at.spec, {"grp": "a", "tries": 1, "100%": n}) for n in (1, 2)]
        target = read_target(mysql_url)
        connection: Any = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            ssl_disabled=True,
        )
        with connection, connection.cursor() as cursor:
            for on_conflict in ("error", "ignore"):
                (statement,) = insert_statements("mysql", *rows, on_conflict=on_conflict)
                cursor.execute(statement.text, statement.parameters)
                connection.commit()
                first = cursor.lastrowid
                found = dict(await at.rows("id, `100%`"))
                assert (found[first], found[first + 1]) == (1, 2)

    at_place(test, columns=(Column("100%", type=int),))
