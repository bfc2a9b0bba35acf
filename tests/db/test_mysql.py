# ruff: noqa: PT012 - what raises is the end of a block
"""What MariaDB and MySQL do otherwise than others, through both drivers."""

from __future__ import annotations

import socket
from collections.abc import Generator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import pymysql
import pytest

from inboxkit._db.keepalive import IDLE
from inboxkit._db.mysql_url import read_target
from inboxkit._sql.statement import Answer, Reading, Script, Statement
from inboxkit.database import Database
from inboxkit.errors import (
    ConnectError,
    ConstraintError,
    DatabaseBusyError,
    DatabaseError,
    EncodeError,
    ServerTooOldError,
)


async def _table(db: Database) -> None:
    await db.execute("CREATE TABLE t (x int PRIMARY KEY, y int)")
    await db.execute("INSERT INTO t VALUES (1, 0), (2, 0)")


def test_the_session_is_set_up(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        row = await db.fetch_one(
            "SELECT @@autocommit, @@time_zone, @@sql_mode, @@innodb_lock_wait_timeout, "
            "@@character_set_client, @@character_set_results"
        )
        assert row is not None
        assert row[:2] == (1, "+00:00")
        assert "STRICT_TRANS_TABLES" in row[2]
        assert row[3:] == (7, "utf8mb4", "utf8mb4")
        for several in ("SELECT 1; SELECT 2", "DO 1; DROP TABLE t"):
            with pytest.raises(DatabaseError, match="syntax"):
                await db.execute(several)
        with pytest.raises(DatabaseError):
            await db.execute("CREATE TABLE t (x text)")
            await db.execute("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE t")
        await db.execute("INSERT INTO t VALUES ('a')")
        assert await db.execute("UPDATE t SET x = 'a'") == 1  # found, though not changed

    mysql_cell.run(main, statement_timeout=timedelta(seconds=7))


@pytest.mark.parametrize("through", ["execute", "connection", "transaction"])
@pytest.mark.parametrize(
    "statement",
    [
        "SET time_zone = '+05:00'",
        "set session autocommit = 0",
        "/* for a report */ SET @@SESSION.sql_mode = ''",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET NAMES latin1",
        "USE information_schema",
    ],
)
def test_what_is_set_on_a_lent_session_reaches_nobody_else(
    mysql_cell: Any, statement: str, through: str
) -> None:
    """Such as a claim: in another time zone the lease that it writes into a TIMESTAMP is over already."""

    async def settings(db: Database, server: str) -> Any:
        isolation = "transaction_isolation" if "MariaDB" not in server else "tx_isolation"
        return await db.fetch_one(
            "SELECT @@time_zone, @@autocommit, @@sql_mode, @@character_set_client, DATABASE(), "
            f"@@{isolation}"
        )

    async def main(db: Database) -> None:
        server = await db.fetch_value("SELECT VERSION()")
        before = await settings(db, server)
        session = await db.fetch_value("SELECT CONNECTION_ID()")
        if through == "execute":
            await db.execute(statement)
        elif through == "connection":
            async with db.connection() as lent:
                await lent.execute(statement)
        else:
            async with db.transaction() as tx:
                await tx.execute(statement)
        assert tuple(await settings(db, server)) == tuple(before)
        assert await db.fetch_value("SELECT CONNECTION_ID()") != session

    mysql_cell.run(main, pool_size=1)


def test_a_setting_of_one_transaction_keeps_the_session(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        session = await db.fetch_value("SELECT CONNECTION_ID()")
        await db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert await db.fetch_value("SELECT CONNECTION_ID()") == session

    mysql_cell.run(main, pool_size=1)


def test_a_silent_host_is_noticed(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        assert db._pool is not None
        async with db._pool.connection() as connection:
            held: Any = connection
            if mysql_cell.driver == "asyncmy":
                line = held._connection._transport.get_extra_info("socket")
            else:
                line = held._session._connection._sock
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE

    mysql_cell.run(main)


def test_values_come_back_as_they_went(mysql_cell: Any) -> None:
    every_byte = bytes(range(256))
    values = [
        *("it's \\ \" ` % %s $1 \0\n\x1a ä€😀", "", "\\'", "\\"),
        *(every_byte, b"", b"\\", b"'; DROP TABLE t --", "é'".encode("latin1") + b"'"),
        *(True, -(2**63), 2**64 - 1, 1e300, 0.1, -0.0, Decimal("-1.50"), Decimal("1E+3")),
        *(datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), date(2030, 1, 2), None),
    ]
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))

    async def main(db: Database) -> None:
        async with db.connection() as connection:
            row = (await connection.fetch(f"SELECT {places}", *values))[0]
            assert [*row] == values
            await connection.execute("SET sql_mode = 'NO_BACKSLASH_ESCAPES'")
            row = (await connection.fetch(f"SELECT {places}", *values))[0]
            assert [*row] == values
        columns = "SELECT CAST('-10:00:00.5' AS time(1)), CAST('2030-01-02' AS date), b'101', CAST(1 AS double)"
        assert (await db.fetch(columns))[0] == (
            timedelta(hours=-10, milliseconds=-500),
            date(2030, 1, 2),
            b"\x05",
            1.0,
        )
        await db.execute("CREATE TABLE odd (a datetime(6), b date)")
        async with db.connection() as connection:
            await connection.execute("SET sql_mode = ''")
            await connection.execute("INSERT INTO odd VALUES ('0000-00-00', '2030-02-00')")
            assert (await connection.fetch("SELECT a, b FROM odd"))[0] == (
                datetime.min.replace(tzinfo=UTC),
                date.min,
            )
        for refused in ({"a": 1}, [1], timedelta(1), object()):
            with pytest.raises(EncodeError, match=r"\$2: MariaDB and MySQL cannot hold a"):
                await db.fetch("SELECT $1, $2", 1, refused)
        for refused in (float("nan"), float("inf"), Decimal("NaN"), "secret\ud800"):
            with pytest.raises(
                DatabaseError, match=r"argument \$1 is .*nothing was sent"
            ) as caught:
                await db.fetch("SELECT $1", refused)
            assert "secret" not in str(caught.value)

    mysql_cell.run(main)


def test_refusals_name_the_constraint_and_show_no_value(mysql_cell: Any) -> None:
    refusals = [
        ("INSERT INTO c (x, p, q) VALUES ($1, 1, 1)", "secret", "by_x"),
        ("INSERT INTO c (x, p, q) VALUES ($1, 99, 1)", "secret2", "to_p"),
        ("INSERT INTO c (x, p, q) VALUES ($1, 1, -1)", "secret2", "q_is_positive"),
        ("INSERT INTO c (x, p, q) VALUES ($1, 1, NULL)", "secret2", "q"),
        ("INSERT INTO c (x, p) VALUES ($1, 1)", "secret2", "q"),
        ("DELETE FROM p WHERE 'secret' = $1", "secret", "to_p"),
    ]
    others = [
        ("INSERT INTO c (x, p, q) VALUES ($1, 1, 1)", "secret" * 9, "Data too long"),
        ("INSERT INTO c (x, p, q) VALUES ('y', 1, $1)", "secret 'x'", "Incorrect integer"),
        ("INSERT INTO c (x, p, q) VALUES ('y', $1, 1)", 2**40, "Out of range"),
        ("UPDATE c SET d = $1", "secret", "Incorrect datetime"),
        ("SELECT $1 FROM WHERE", "secret", "syntax"),
        ("SELECT nothing, $1 FROM c", "secret", "nothing"),
    ]

    async def main(db: Database) -> None:
        await db.execute("CREATE TABLE p (id int PRIMARY KEY)")
        await db.execute("INSERT INTO p VALUES (1)")
        await db.execute(
            "CREATE TABLE c (x varchar(20) NOT NULL, p int, q int NOT NULL, d datetime, "
            "CONSTRAINT by_x UNIQUE (x), CONSTRAINT to_p FOREIGN KEY (p) REFERENCES p (id), "
            "CONSTRAINT q_is_positive CHECK (q > 0))"
        )
        await db.execute("INSERT INTO c (x, p, q) VALUES ('secret', 1, 1)")
        for sql, value, constraint in refusals:
            with pytest.raises(ConstraintError) as caught:
                await db.execute(sql, value)
            assert caught.value.constraint == constraint
            assert "secret" not in str(caught.value)
            assert caught.value.__cause__ is not None
        for sql, other, message in others:
            with pytest.raises(DatabaseError, match=message) as failed:
                await db.execute(sql, other)
            assert type(failed.value) is DatabaseError
            assert "secret" not in str(failed.value)

    mysql_cell.run(main)


def test_a_deadlock_takes_the_whole_transaction(mysql_cell: Any) -> None:
    ended: list[str] = []

    async def main(db: Database) -> None:
        await _table(db)
        met = [anyio.Event(), anyio.Event()]

        async def crossing(first: int, second: int) -> None:
            with pytest.raises(DatabaseError) if first == 2 else pytest.MonkeyPatch.context():
                async with db.transaction() as tx:
                    if first == 1:  # it has more to lose, so the other one is the victim
                        await tx.execute("INSERT INTO t VALUES (3, 0), (4, 0), (5, 0)")
                    await tx.execute("UPDATE t SET y = y + 1 WHERE x = $1", first)
                    met[first - 1].set()
                    await met[second - 1].wait()
                    if first == 1:
                        await tx.execute("UPDATE t SET y = y + 1 WHERE x = $1", second)
                        return
                    with pytest.raises(DatabaseBusyError, match=r"(?i)deadlock"):
                        await tx.execute("UPDATE t SET y = y + 1 WHERE x = $1", second)
                    assert tx._driver.in_transaction
                    with pytest.raises(DatabaseError, match="already rolled back"):
                        await tx.execute("INSERT INTO t VALUES (9, 9)")
                    ended.append("victim")

        async with anyio.create_task_group() as both:
            both.start_soon(crossing, 1, 2)
            both.start_soon(crossing, 2, 1)
        assert await db.fetch("SELECT x, y FROM t ORDER BY x") == [
            *((1, 1), (2, 1), (3, 0), (4, 0), (5, 0)),
        ]

    mysql_cell.run(main, pool_size=2)

    assert ended == ["victim"]


def test_busy_rows(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as holder, db.transaction() as other:
            await holder.execute("UPDATE t SET y = 5 WHERE x = 1")
            with pytest.raises(DatabaseBusyError, match="nothing happened"):
                await other.fetch("SELECT * FROM t FOR UPDATE NOWAIT")
            assert await other.fetch("SELECT x FROM t FOR UPDATE SKIP LOCKED") == [(2,)]
            if "mariadb" in (await db.fetch_value("SELECT lower(version())")):
                await other.execute("SET innodb_lock_wait_timeout = 0")  # MySQL's least is 1
                with pytest.raises(DatabaseBusyError, match="Lock wait timeout"):
                    await other.execute("UPDATE t SET y = 6 WHERE x = 1")
            await other.execute("UPDATE t SET y = 7 WHERE x = 2")  # the statement alone was undone
        assert await db.fetch("SELECT x, y FROM t ORDER BY x") == [(1, 5), (2, 7)]

    mysql_cell.run(main, pool_size=3)


def test_ddl_commits_and_what_follows_is_told(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (3, 0)")
            await tx.execute("CREATE TABLE other (x int)")
            assert not tx._driver.in_transaction
            await tx.execute("CREATE TABLE another (x int)")
        with pytest.raises(DatabaseError, match="CREATE has committed the transaction already"):
            async with db.transaction() as tx:
                await tx.execute("CREATE TABLE third (x int)")
                await tx.execute("INSERT INTO third VALUES (1)")
        with pytest.raises(KeyError):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO t VALUES (4, 0)")
                await tx.execute("DROP TABLE third")
                raise KeyError
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (5, 0)")
        assert await db.fetch("SELECT x FROM t ORDER BY x") == [(x,) for x in (1, 2, 3, 4, 5)]

    mysql_cell.run(main, pool_size=1)


def _insert_from_outside(url: str, x: int) -> None:
    target = read_target(url)
    with pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=target.database,
        autocommit=True,
    ) as outside:
        outside.query(f"INSERT INTO t VALUES ({x}, 0)")


def test_all_is_read_committed_unless_it_is_told_otherwise(mysql_cell: Any) -> None:
    def insert(x: int) -> Script[None]:
        def steps(reading: Reading) -> Generator[Statement, Answer, None]:
            yield Statement("insert", "INSERT INTO t VALUES ($1, 0)", (x,), False)

        return Script("insert", steps)

    def changes(transaction: Any, x: int) -> Script[bool]:
        def steps(reading: Reading) -> Generator[Statement, Answer, bool]:
            first = yield Statement("count", "SELECT count(*) FROM t")
            _insert_from_outside(mysql_cell.url, x)
            second = yield Statement("count", "SELECT count(*) FROM t")
            return bool(first.rows != second.rows)

        return Script("changes", steps, transaction)

    async def main(db: Database) -> None:
        await _table(db)
        assert await db.run(changes("read", 3))
        assert await db.run(changes("write", 4))
        with pytest.raises(DatabaseError, match=r"(?i)read.only"):
            await db.run(Script("write", insert(9).steps, "read"))
        driver = db._pool
        assert driver is not None
        async with driver.connection() as holder:
            await holder.begin(hold=True)
            await holder.execute(Statement("lock", "SELECT * FROM t WHERE x > 3 FOR UPDATE"))
            await db.run(insert(10))  # no gap is locked
            await holder.rollback()
        async with db.transaction() as tx:
            await tx.fetch("SELECT count(*) FROM t")
            await db.run(insert(11))
            assert await tx.fetch("SELECT x FROM t WHERE x = 11") != []
        async with db.connection() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            async with connection.transaction() as tx:
                await tx.fetch("SELECT count(*) FROM t")
                await db.run(insert(12))
                assert await tx.fetch("SELECT x FROM t WHERE x = 12") == []

    mysql_cell.run(main, pool_size=2)


def test_a_stopped_statement_ends_on_the_server_and_no_other_does(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.connection() as connection:
            number = await connection.fetch_value("SELECT connection_id()")
            for _ in range(3):
                with anyio.move_on_after(0.03):
                    await connection.fetch(mysql_cell.slow)
                state = "SELECT command FROM information_schema.processlist WHERE id = $1"
                # The server answers a moment before it says that the session rests.
                states = [await db.fetch_value(state, number) for _ in range(100)]
                assert states[-1] == "Sleep"
                assert await connection.fetch_value("SELECT count(*) FROM t") == 2
            assert await connection.fetch_value("SELECT connection_id()") == number
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (3, 0)")
            with anyio.move_on_after(0.03):
                await tx.fetch(mysql_cell.slow)
        assert await db.fetch_value("SELECT count(*) FROM t") == 3

    mysql_cell.run(main, pool_size=2)


def test_a_wait_beyond_the_statement_timeout_is_ended(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        await _table(db)
        async with db.transaction() as holder:
            await holder.execute("UPDATE t SET y = 5")
            with pytest.raises(DatabaseError):
                await db.execute("UPDATE t SET y = 6")
        assert await db.fetch("SELECT DISTINCT y FROM t") == [(5,)]

    mysql_cell.run(main, pool_size=2, statement_timeout=timedelta(seconds=0.2))


def test_a_procedure_answers_its_first_result(mysql_cell: Any) -> None:
    async def main(db: Database) -> None:
        await db.execute("CREATE PROCEDURE two() BEGIN SELECT 1 AS a; SELECT 2 AS b; END")
        assert await db.fetch("CALL two()") == [(1,)]
        assert await db.fetch("SELECT 3") == [(3,)]

    mysql_cell.run(main, pool_size=1)


def test_who_is_not_let_in_is_told_why(mysql_cell: Any) -> None:
    def changed(**parts: str) -> str:
        return urlunsplit(urlsplit(mysql_cell.url)._replace(**parts))

    netloc = urlsplit(mysql_cell.url).netloc
    host = netloc.rpartition("@")[2]
    for url, message in (
        (changed(netloc=f"inboxkit:secret@{host}"), f"{host}: Access denied .*check the user"),
        (changed(path="/missing"), f"{host}: Unknown database 'missing'; create the database"),
    ):
        with pytest.raises(ConnectError, match=message) as caught:
            mysql_cell.start(mysql_cell.database(url).open)
        assert "secret" not in str(caught.value)


def test_a_server_that_is_too_old_stops_the_start(
    mysql_cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = {"MariaDB": (99, 0, 0), "MySQL": (99, 0, 0)}
    monkeypatch.setattr("inboxkit._db.versions._MYSQL", newest)
    with pytest.raises(ServerTooOldError, match=r"is M\w+ \d+\.\d+\.\d+, and inboxkit needs 99"):
        mysql_cell.start(mysql_cell.database().open)
