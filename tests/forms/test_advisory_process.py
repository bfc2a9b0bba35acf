"""The advisory lock form on SQLite, where a process keeps the keys: one process for each file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from advisory_kit import create, ids, no_locks, opened

from inboxkit import Broker, Inbox, InboxQueue, Service, role, subscriber
from inboxkit._advisory import advisory_keys
from inboxkit._db.process_keys import keys_of_file
from inboxkit.database import Database
from inboxkit.errors import DialectError


def test_row_that_cannot_be_read_does_not_hold_up_the_queue(file: Any) -> None:
    async def test(b: Any) -> None:
        await create(b)
        damaged, good = await b.insert({}, {})
        await b.set_raw(damaged, due="1999-12-31 00:00")
        async with opened(b) as form:
            claim = await form.claim(limit=1)
            assert (ids(list(claim.rows)), claim.undecodable) == ([good], 1)
            claim = await form.claim(limit=1)
            assert (claim.rows, claim.undecodable) == ((), 0)
            b.advance(seconds=31)
            assert (await form.claim(limit=1)).undecodable == 1
        assert await b.rows("tries") == [1, 2]
        await no_locks(b)

    file(test)


def test_one_file_is_one_by_whatever_path(file: Any, url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))

    async def test(b: Any) -> None:
        await create(b)
        symlink, hard = (path.with_name(f"{b.table} {kind}.db") for kind in ("symlink", "hard"))
        symlink.symlink_to(path)
        os.link(path, hard)
        keys: list[Any] = []
        for other in (path, symlink):
            async with Database(f"sqlite:///{other}", clock=b.clock) as db:
                keys.append(await advisory_keys(db, b.spec))
        keys.append(keys_of_file(str(hard)))
        assert len({id(one.ring) for one in keys}) == 1
        async with Database("sqlite:///:memory:") as one, Database("sqlite:///:memory:") as two:
            rings = {id((await advisory_keys(db, b.spec)).ring) for db in (one, one, two)}  # type: ignore[union-attr]
            assert len(rings) == 2
        for one_key in keys:
            one_key.close()

    file(test)


OPEN_AND_WAIT = """
import sys
from inboxkit._db.process_keys import keys_of_file
from inboxkit.errors import DialectError
try:
    keys = keys_of_file(sys.argv[1])
except DialectError as error:
    print("refused:", error, flush=True)
else:
    print("had", flush=True)
    sys.stdin.readline()
    keys.close()
    print("closed", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other_process() -> Iterator[Any]:
    """Start another process, which opens the file for the form and says what came of it."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OPEN_AND_WAIT, str(path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


FORK = """
import os, sys
from inboxkit._db.process_keys import keys_of_file
from inboxkit.errors import DialectError
keys = keys_of_file(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        keys_of_file(sys.argv[1])
    except DialectError:
        os._exit(3)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_is_another_process(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    path.touch()
    done = subprocess.run([sys.executable, "-c", FORK, str(path)], check=False)
    assert done.returncode == 3


class Job(Inbox, table="jobs", advisory_lock="jobs-{id}"):
    """Rows of the service that is refused."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


def start_service(path: Path) -> None:
    """Run a service on the file, until it is refused."""

    async def handle(message: bytes) -> None: ...

    async def make_table(db: Database) -> None:
        await db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")

    app = Service("second", Broker(f"sqlite:///{path}"))
    app.on_startup(make_table)
    app.include(subscriber(InboxQueue(Job, "jobs", bytes))(handle))
    anyio.run(app.run)


def test_second_process_on_a_file_is_refused(tmp_path: Path, other_process: Any) -> None:
    path, hard = tmp_path / "inbox.db", tmp_path / "hard.db"
    path.touch()
    os.link(path, hard)
    first, again = keys_of_file(str(path)), keys_of_file(str(path))
    first.close()
    first.close()
    said = other_process(hard).stdout.readline()
    assert said.startswith("refused: another process has the SQLite file")
    assert "locked_until" in said
    again.close()
    let_in = other_process(path)
    assert let_in.stdout.readline() == "had\n"
    with pytest.raises(DialectError, match=r"subscription 'jobs': another process"):
        start_service(path)
    let_in.stdin.write("\n")
    let_in.stdin.flush()
    assert let_in.stdout.readline() == "closed\n"
    keys_of_file(str(path)).close()
    killed = other_process(path)
    assert killed.stdout.readline() == "had\n"
    killed.kill()
    killed.wait()
    keys_of_file(str(path)).close()
