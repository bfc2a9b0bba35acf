"""Sessions that hold rows for hours notice a silent host, and one that the server ended."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import anyio
import pytest

from inboxkit._db.keepalive import keep_alive
from inboxkit._sql.statement import Statement
from inboxkit.database import Database


def test_a_held_session_is_probed_and_its_end_is_seen_without_a_statement(
    postgres_cell: Any,
) -> None:
    async def main(db: Database) -> None:
        session: Any = await db.acquire()
        number = (
            session._connection._transport.get_extra_info("socket").fileno()
            if db.driver_name == "asyncpg"
            else session._session.pgconn.socket
        )
        with socket.socket(fileno=os.dup(number)) as line:
            if line.family in (socket.AF_INET, socket.AF_INET6):
                assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        await session.begin(hold=True)
        answer = await session.execute(Statement("pid", "SELECT pg_backend_pid()"))
        assert not session.is_closed
        assert session.in_transaction
        await db.fetch("SELECT pg_terminate_backend($1::int, 5000)", answer.rows[0][0])
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert session.is_closed
        await db.release(session)
        assert await db.fetch_value("SELECT 1") == 1

    postgres_cell.run(main, pool_size=2)


def test_a_server_that_ends_idle_sessions_leaves_those_that_hold_rows(server_cell: Any) -> None:
    """Whatever the database, the role, or the server's own settings say."""

    async def postgres(db: Database) -> None:
        name = await db.fetch_value("SELECT current_database()::text")
        await db.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '1min'")
        try:
            async with db.connection() as old, db.connection() as new:
                assert old is not new
                assert (
                    await new.fetch_value("SELECT current_setting('idle_session_timeout')") == "0"
                )
                assert await new.fetch_value("SELECT current_setting('statement_timeout')") == "7s"
        finally:
            await db.execute(f"ALTER DATABASE {name} RESET idle_session_timeout")

    async def mysql(db: Database) -> None:
        before = await db.fetch_value("SELECT @@GLOBAL.wait_timeout")
        await db.execute("SET GLOBAL wait_timeout = 60")
        try:
            async with db.connection(), db.connection() as new:
                assert await new.fetch_value("SELECT @@SESSION.wait_timeout") == 28800
        finally:
            await db.execute(f"SET GLOBAL wait_timeout = {before}")

    main = postgres if server_cell.is_postgres else mysql
    server_cell.run(main, pool_size=2, statement_timeout=timedelta(seconds=7))


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no such sockets here")
def test_a_socket_of_another_family_is_left_alone() -> None:
    one, other = socket.socketpair()
    with one, other:
        keep_alive(one)
        keep_alive(None)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
