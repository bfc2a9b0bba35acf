"""Sessions that outlive their instance: the next one must not see what the last one did."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from inboxkit import Database
from inboxkit._db.sqlite_session import SqliteSession
from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit.errors import DatabaseError
from inboxkit_testing import VirtualClock, open_test_database
from inboxkit_testing.databases import STATEMENT_TIMEOUT, ObservedDatabase
from inboxkit_testing.errors import CrashedError
from inboxkit_testing.inloop import InLoopConnection
from inboxkit_testing.kept import KeptSessions

_MARKS = [
    ("SET work_mem = '7MB'", "SELECT current_setting('work_mem') = '7MB'"),
    ("SET statement_timeout = 0", "SELECT current_setting('statement_timeout') <> '30s'"),
    ("SET ROLE pg_monitor", "SELECT current_user = 'pg_monitor'"),
    (
        "CREATE TEMPORARY TABLE mine (id int)",
        "SELECT count(*) > 0 FROM pg_class WHERE relname = 'mine'",
    ),
    (
        "SELECT pg_advisory_lock(4711)",
        "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    (
        "DECLARE mine CURSOR WITH HOLD FOR SELECT 1",
        "SELECT count(*) > 0 FROM pg_cursors WHERE name = 'mine'",
    ),
    ("LISTEN mine", "SELECT count(*) > 0 FROM pg_listening_channels()"),
    (
        "PREPARE mine AS SELECT 1",
        "SELECT count(*) > 0 FROM pg_prepared_statements WHERE name = 'mine'",
    ),
]


def another(
    database: Database, clock: VirtualClock, kept: KeptSessions, *, offset: float = 0.0
) -> ObservedDatabase:
    """As another instance sees the database."""
    assert isinstance(database, ObservedDatabase)
    view = clock.at(f"host {offset}", timedelta(seconds=offset))
    made = open_test_database(database.url, clock=view)
    made.observed.kept = kept
    return made


@pytest.fixture
def kept() -> KeptSessions:
    return KeptSessions(STATEMENT_TIMEOUT.total_seconds())


def of_postgres(database: Database) -> None:
    if database.dialect != "postgres":
        pytest.skip("sessions of a server are kept on PostgreSQL")


@pytest.mark.parametrize(("mark", "bears"), _MARKS, ids=[mark[:20] for mark, _ in _MARKS])
async def test_a_kept_session_bears_no_mark_of_its_last_instance(
    inbox_database: Database,
    virtual_clock: VirtualClock,
    kept: KeptSessions,
    mark: str,
    bears: str,
) -> None:
    of_postgres(inbox_database)
    async with another(inbox_database, virtual_clock, kept) as first:
        await (first.fetch if mark.startswith("SELECT") else first.execute)(mark)
        assert await first.fetch_value(bears) is True
    async with another(inbox_database, virtual_clock, kept) as second:
        assert await second.fetch_value(bears) is False
    await kept.aclose()


async def test_the_next_instance_gets_the_session_of_the_last(
    inbox_database: Database, virtual_clock: VirtualClock, kept: KeptSessions
) -> None:
    of_postgres(inbox_database)
    pids = []
    for _ in range(3):
        async with another(inbox_database, virtual_clock, kept) as database:
            pids.append(await database.fetch_value("SELECT pg_backend_pid()"))
    assert len(set(pids)) == 1
    await kept.aclose()


async def test_a_session_that_a_crash_ended_is_not_handed_on(
    inbox_database: Database, virtual_clock: VirtualClock, kept: KeptSessions
) -> None:
    of_postgres(inbox_database)
    first = another(inbox_database, virtual_clock, kept)
    await first.open()
    pid = await first.fetch_value("SELECT pg_backend_pid()")
    await first.crash()
    async with another(inbox_database, virtual_clock, kept) as second:
        assert await second.fetch_value("SELECT pg_backend_pid()") != pid
    await kept.aclose()


async def test_a_kept_session_that_the_server_has_ended_is_not_handed_on(
    inbox_database: Database, virtual_clock: VirtualClock, kept: KeptSessions
) -> None:
    of_postgres(inbox_database)
    async with another(inbox_database, virtual_clock, kept) as first:
        pid = await first.fetch_value("SELECT pg_backend_pid()")
    assert isinstance(inbox_database, ObservedDatabase)
    await inbox_database.observed.end_session(pid)
    async with another(inbox_database, virtual_clock, kept) as second:
        assert await second.fetch_value("SELECT pg_backend_pid()") != pid
    await kept.aclose()


def in_loop(
    folder: Path, clock: VirtualClock, kept: KeptSessions, *, offset: float = 0.0
) -> ObservedDatabase:
    """SQLite in the loop, as another instance sees it."""
    view = clock.at(f"host {offset}", timedelta(seconds=offset))
    made = open_test_database(f"sqlite+inloop:///{folder}/kept.db", clock=view)
    made.observed.kept = kept
    return made


def read(reading: Reading) -> Steps[datetime]:
    yield Statement("look", "SELECT 1")
    return reading.now


async def test_a_kept_session_of_sqlite_goes_by_the_clock_of_its_new_instance(
    inbox_backend: str, virtual_clock: VirtualClock, kept: KeptSessions, tmp_path: Path
) -> None:
    found = []
    for offset in (0.0, 5.0, -5.0):
        async with in_loop(tmp_path, virtual_clock, kept, offset=offset) as database:
            at = await database.run(Script("look", read, "read"))
        found.append((at - virtual_clock.now()).total_seconds())
    assert found == [0.0, 5.0, -5.0]
    await kept.aclose()


@pytest.mark.parametrize(
    ("mark", "bears"),
    [
        ("PRAGMA foreign_keys = ON", "SELECT foreign_keys FROM pragma_foreign_keys"),
        ("CREATE TEMP TABLE mine (id)", "SELECT count(*) FROM sqlite_temp_master"),
        ("create temporary table mine (id)", "SELECT count(*) FROM sqlite_temp_master"),
        ("ATTACH ':memory:' AS mine", "SELECT count(*) - 1 FROM pragma_database_list"),
    ],
)
async def test_a_session_of_sqlite_that_bears_a_mark_is_not_kept(
    inbox_backend: str,
    virtual_clock: VirtualClock,
    kept: KeptSessions,
    tmp_path: Path,
    mark: str,
    bears: str,
) -> None:
    async with in_loop(tmp_path, virtual_clock, kept) as first:
        await first.execute(mark)
        assert await first.fetch_value(bears) >= 1
    async with in_loop(tmp_path, virtual_clock, kept) as second:
        assert await second.fetch_value(bears) == 0
    await kept.aclose()


def session_of(database: ObservedDatabase) -> SqliteSession:
    """Of its only connection."""
    (connection,) = database.observed._connections
    inner = connection._inner
    assert isinstance(inner, InLoopConnection)
    return inner._session


@pytest.mark.parametrize("end", ["crash", "cut"])
async def test_a_session_of_sqlite_that_was_dropped_is_handed_on_with_its_work_undone(
    inbox_backend: str, virtual_clock: VirtualClock, kept: KeptSessions, tmp_path: Path, end: str
) -> None:
    """It has neither the last one's rows nor its lock, and the last one cannot reach it any more."""
    first = in_loop(tmp_path, virtual_clock, kept)
    await first.open()
    await first.execute("CREATE TABLE t (n integer)")
    session = session_of(first)
    transaction = first.transaction()
    tx = await transaction.__aenter__()
    await tx.execute("INSERT INTO t VALUES (1)")
    if end == "crash":
        await first.crash()
    else:
        first.observed.cut("fail")
    async with in_loop(tmp_path, virtual_clock, kept, offset=5.0) as second:
        assert session_of(second) is session
        await second.execute("INSERT INTO t VALUES (2)")
        with pytest.raises((CrashedError, DatabaseError)):
            await tx.execute("INSERT INTO t VALUES (3)")
        assert [row[0] for row in await second.fetch("SELECT n FROM t")] == [2]
        at = await second.run(Script("look", read, "read"))
        assert (at - virtual_clock.now()).total_seconds() == 5.0
    with pytest.raises((CrashedError, DatabaseError)):
        await transaction.__aexit__(None, None, None)
    await kept.aclose()


@pytest.mark.parametrize(
    "mark", ["PRAGMA recursive_triggers = 1", "CREATE TEMP TABLE u (n integer)"]
)
async def test_a_session_of_sqlite_that_bears_a_mark_ends_with_a_crash(
    inbox_backend: str, virtual_clock: VirtualClock, kept: KeptSessions, tmp_path: Path, mark: str
) -> None:
    first = in_loop(tmp_path, virtual_clock, kept)
    await first.open()
    await first.execute(mark)
    session = session_of(first)
    await first.crash()
    async with in_loop(tmp_path, virtual_clock, kept) as second:
        assert session_of(second) is not session
    await kept.aclose()
