# ruff: noqa: PT012 - what raises is the end of a block
"""Who writes to a SQLite file, and who waits for whom."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from inboxkit._db import sqlite as sqlite_module
from inboxkit._db.drivers import make_driver
from inboxkit._db.turnstile import Turnstile
from inboxkit._db.url import parse_url
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.database import Database
from inboxkit.errors import DatabaseBusyError, OutcomeUnknownError

SHORT = timedelta(seconds=0.2)


async def _table(db: Database) -> None:
    await db.execute("CREATE TABLE t (x int PRIMARY KEY)")


def _add(x: int) -> Script[None]:
    def steps(reading: Reading) -> Generator[Statement, Answer, None]:
        yield Statement("add", "INSERT INTO t VALUES ($1)", (x,), False)

    return Script("add", steps)


def test_writers_take_turns_and_do_not_meet(sqlite_cell: Any) -> None:
    """With hardly any timeout for locks: nobody ever meets one."""

    async def main(db: Database) -> None:
        await _table(db)

        async def block(x: int) -> None:
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES ($1)", x)
                await tx.fetch("SELECT count(*) FROM t")

        async with anyio.create_task_group() as many:
            for x in range(10):
                many.start_soon(block, 3 * x)
                many.start_soon(db.execute, "INSERT INTO t VALUES ($1)", 3 * x + 1)
                many.start_soon(db.run, _add(3 * x + 2))
        assert await db.fetch_value("SELECT count(*) FROM t") == 30

    sqlite_cell.run(main, statement_timeout=timedelta(seconds=5), pool_size=8)


def test_readers_do_not_wait_for_writers(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
            assert await db.fetch_value("SELECT count(*) FROM t") == 0
            assert await tx.fetch_value("SELECT count(*) FROM t") == 1

    sqlite_cell.run(main)


def test_a_write_beside_ones_own_transaction_is_explained(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            for write in (
                lambda: db.execute("INSERT INTO t VALUES (1)"),
                lambda: db.run(_add(1)),
            ):
                with pytest.raises(DatabaseBusyError, match="this same task holds"):
                    await write()
            await tx.execute("INSERT INTO t VALUES (2)")
        assert await db.fetch("SELECT x FROM t") == [(2,)]

    sqlite_cell.run(main, statement_timeout=SHORT)


def test_waiting_for_ones_turn_is_not_in_flight(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.connection(), db.connection():
            pass  # both are open now
        async with db.transaction() as tx, anyio.create_task_group() as group:
            group.start_soon(db.execute, "INSERT INTO t VALUES (1)")
            await anyio.wait_all_tasks_blocked()
            assert sqlite_cell.clock.in_flight == []
            group.cancel_scope.cancel()
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (2)")
        assert await db.fetch("SELECT x FROM t") == [(2,)]

    sqlite_cell.run(main)


def test_another_process_keeps_the_lock(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        other = sqlite3.connect(sqlite_cell.url.partition("///")[2], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for write in (lambda: db.execute("INSERT INTO t VALUES (1)"), lambda: db.run(_add(1))):
            with pytest.raises(DatabaseBusyError, match="kept the database locked"):
                await write()
        with pytest.raises(DatabaseBusyError, match="begin: "):
            async with db.transaction():
                raise AssertionError
        assert await db.fetch("SELECT x FROM t") == []
        other.execute("COMMIT")
        other.close()
        await db.run(_add(1))

    sqlite_cell.run(main, statement_timeout=SHORT)


def test_the_lock_of_another_process_is_waited_for(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        other = sqlite3.connect(sqlite_cell.url.partition("///")[2], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(db.run, _add(1))
            await anyio.wait_all_tasks_blocked()
            other.execute("COMMIT")
            other.close()
        assert await db.fetch("SELECT x FROM t") == [(1,)]

    sqlite_cell.run(main)


def test_who_waits_long_for_another_process_asks_as_often_as_who_came_just_now(
    sqlite_cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else newcomers of other processes would go before it, again and again."""
    pauses: list[float] = []

    class Patience(threading.Event):
        """Waits for no real time; the lock is free after a second of it."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            if sum(pauses) >= 1.0 and other.in_transaction:
                other.execute("COMMIT")
            return False

    path = sqlite_cell.url.partition("///")[2]
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def main(db: Database) -> None:
        await _table(db)
        other.execute("BEGIN IMMEDIATE")
        async with db.connection() as connection:
            monkeypatch.setattr(connection._driver._session, "_stopping", Patience())
            await connection.execute("INSERT INTO t VALUES (1)")
        assert max(pauses) <= 0.005
        assert sum(pauses) < 1.01

    sqlite_cell.run(main)
    other.close()


def test_an_urgent_script_writes_before_all_that_wait_for_their_turn(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x int)")

        def add(x: int) -> Script[None]:
            def steps(reading: Reading) -> Generator[Statement, Answer, None]:
                yield Statement("add", "INSERT INTO t (x) VALUES ($1)", (x,), False)

            return Script("add", steps, is_urgent=x > 2)

        async with anyio.create_task_group() as group, db.transaction() as tx:
            for x in (1, 2, 3, 4):
                group.start_soon(db.run, add(x))
                await anyio.wait_all_tasks_blocked()
            await tx.execute("INSERT INTO t (x) VALUES (0)")
        # Among equals whoever had opened its connection first.
        first, *others = [row[0] for row in await db.fetch("SELECT x FROM t ORDER BY id")]
        assert (first, sorted(others[:2]), sorted(others[2:])) == (0, [3, 4], [1, 2])

    sqlite_cell.run(main)


def test_several_databases_share_a_turnstile(sqlite_cell: Any) -> None:
    async def main() -> None:
        turnstile = Turnstile()

        def database() -> Database:
            clock = sqlite_cell.clock
            driver = make_driver(
                parse_url(sqlite_cell.url), clock=clock, timeout=0.05, turnstile=turnstile
            )
            return Database.over(driver, clock=clock)

        async with database() as one, database() as other:
            await _table(one)
            async with one.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (1)")
                with pytest.raises(DatabaseBusyError, match="kept its turn"):
                    await other.execute("INSERT INTO t VALUES (2)")
            await other.execute("INSERT INTO t VALUES (3)")
        assert turnstile.inside == 0

    sqlite_cell.start(main)


def test_a_terminated_connection_undoes_and_gives_its_turn_back(sqlite_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        with pytest.raises(DatabaseBusyError, match="connection is closed"):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (1)")
                tx._driver.terminate()
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (2)")
        assert await db.fetch("SELECT x FROM t") == [(2,)]

    sqlite_cell.run(main)


def test_what_cannot_be_interrupted_costs_the_connection(
    sqlite_cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "LAST_WORD", 0.01)
    stubborn = "SELECT length(replace(hex(zeroblob(8000000)), '0', '1'))"  # one opcode

    async def main(db: Database) -> None:
        await _table(db)
        async with db.connection() as connection:
            with anyio.move_on_after(0.02) as scope:
                await connection.fetch(stubborn)
            assert scope.cancelled_caught
            assert connection._driver.is_closed
        with pytest.raises(OutcomeUnknownError, match="neither finished nor stopped"):
            await db.fetch(stubborn)
        monkeypatch.undo()
        assert await db.fetch("SELECT x FROM t") == []

    sqlite_cell.run(main, pool_size=1, statement_timeout=timedelta(seconds=0.02))


def test_no_pragma_is_sent_beside_the_statements(sqlite_cell: Any) -> None:
    """Whether SQLite itself waits for locks is set once, not for each write."""

    async def main(db: Database) -> list[str]:
        await _table(db)
        sent: list[str] = []
        async with db.connection() as connection:
            session = connection._driver._session  # type: ignore[attr-defined]
            session._connection.set_trace_callback(sent.append)
        for x in range(3):
            await db.execute("INSERT INTO t VALUES ($1)", x)
            await db.run(_add(10 + x))
            assert await db.fetch_value("SELECT x FROM t WHERE x = $1", x) == x
            async with db.transaction() as tx:
                await tx.execute("SAVEPOINT s")
                await tx.execute("UPDATE t SET x = x + 100 WHERE x = $1", x)
                await tx.execute("RELEASE s")
        assert await db.fetch_value("PRAGMA busy_timeout") == 30000
        return [text.split()[0] for text in sent]

    words = sqlite_cell.run(main, pool_size=1)
    one = ["INSERT", "BEGIN", "INSERT", "COMMIT", "SELECT"]
    block = ["BEGIN", "SAVEPOINT", "UPDATE", "RELEASE", "COMMIT"]
    assert words[: 3 * len([*one, *block])] == [*one, *block] * 3


@pytest.fixture
def rollback_journal(sqlite_cell: Any) -> str:
    """A file without the write-ahead log, where readers and writers wait for each other; its path."""
    path: str = sqlite_cell.url.partition("///")[2]
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE t (x int PRIMARY KEY)")
    made.close()
    return path


WAITING = {
    "a read": lambda db: db.fetch("SELECT x FROM t"),
    "a commit": lambda db: db.run(_add(1)),
    "a write": lambda db: db.execute("INSERT INTO t VALUES (1)"),
}


@pytest.mark.parametrize("what", WAITING)
def test_without_the_log_readers_and_commits_wait_for_each_other(
    sqlite_cell: Any, rollback_journal: str, what: str
) -> None:
    async def main(db: Database) -> None:
        other = sqlite3.connect(rollback_journal, isolation_level=None, check_same_thread=False)
        for _ in range(2):  # the second time after a write of its own
            if what == "a read":
                other.execute("BEGIN EXCLUSIVE")
            else:
                other.execute("BEGIN")
                other.execute("SELECT count(*) FROM t").fetchall()
            async with anyio.create_task_group() as group:
                group.start_soon(WAITING[what], db)
                await anyio.wait_all_tasks_blocked()
                assert len(sqlite_cell.clock.in_flight) == 1
                other.execute("COMMIT")
            assert len(await db.fetch("SELECT x FROM t")) == (what != "a read")
            await db.execute("DELETE FROM t")
        other.close()

    sqlite_cell.run(main, pool_size=1)


@pytest.mark.parametrize("what", WAITING)
def test_without_the_log_what_waits_too_long_has_done_nothing(
    sqlite_cell: Any, rollback_journal: str, what: str
) -> None:
    async def main(db: Database) -> None:
        other = sqlite3.connect(rollback_journal, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE" if what == "a read" else "BEGIN")
        other.execute("SELECT count(*) FROM t").fetchall()
        with pytest.raises(DatabaseBusyError, match="kept the database locked"):
            await WAITING[what](db)
        other.execute("COMMIT")
        other.close()
        assert await db.fetch("SELECT x FROM t") == []
        await db.execute("INSERT INTO t VALUES (2)")

    sqlite_cell.run(main, pool_size=1, statement_timeout=SHORT)


def test_a_checkpoint_waits_for_readers(sqlite_cell: Any) -> None:
    """It reports a lock as a value, so SQLite itself must wait."""

    async def main(db: Database) -> None:
        await _table(db)
        path = sqlite_cell.url.partition("///")[2]
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM t").fetchall()
        await db.execute("INSERT INTO t VALUES (1)")
        answers: list[Any] = []

        async def checkpoint() -> None:
            answers.append(await db.fetch_one("PRAGMA wal_checkpoint(TRUNCATE)"))

        async with anyio.create_task_group() as group:
            group.start_soon(checkpoint)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            other.execute("COMMIT")
        assert answers[0][0] == 0
        other.close()

    sqlite_cell.run(main, pool_size=1)
