"""Processes of their own: signals, and handlers that would keep one from ending."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

COMMON = """
import os, signal, sys, time, logging
from datetime import datetime, timedelta
import anyio
from inboxkit import *
from inboxkit import role
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

logging.basicConfig(level=logging.INFO, stream=sys.stderr)

class Row(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()

QUEUE = InboxQueue(Row, "jobs", int)

async def create(db):
    for statement in create_table(get_dialect(db.dialect), Row.spec):
        await db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    async with db.transaction() as tx:
        await insert_rows(tx, Row.of(1))

def say(text):
    print(text, flush=True)
"""


class Process:
    """A service in a process of its own; its database is a SQLite file."""

    def __init__(self, folder: Path, backend: str, code: str) -> None:
        script = folder / "service.py"
        script.write_text(
            textwrap.dedent(COMMON)
            + f"URL = 'sqlite:///{folder / 'inbox.db'}'\nBACKEND = {backend!r}\n"
            + textwrap.dedent(code)
        )
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )

    def wait_for(self, line: str) -> None:
        assert self._process.stdout is not None
        for said in self._process.stdout:
            if said.strip() == line:
                return
        raise AssertionError(f"the process ended without saying {line!r}: {self.end()}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, seconds: float = 30) -> tuple[int, str]:
        """Its exit status and what it logged."""
        try:
            _, log = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, log

    def rows(self) -> list[tuple[int, object]]:
        import sqlite3

        database = sqlite3.connect(self.folder / "inbox.db")
        try:
            return list(database.execute("SELECT attempt, locked_until FROM jobs"))
        finally:
            database.close()


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_service_in_order(tmp_path: Path, backend: str, number: int) -> None:
    process = Process(
        tmp_path,
        backend,
        """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            say("begun")
            await anyio.sleep(0.5)
            say("ended")

        app = Service("service", Broker(URL))
        app.on_startup(create)
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        say("over")
        """,
    )
    process.wait_for("begun")
    process.signal(number)
    process.wait_for("ended")
    process.wait_for("over")
    status, log = process.end()
    assert status == 0, log
    assert "no new claims" in log
    assert "Traceback" not in log
    assert process.rows() == []


def test_a_second_signal_releases_at_once(tmp_path: Path, backend: str) -> None:
    process = Process(
        tmp_path,
        backend,
        """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            say("begun")
            try:
                await anyio.sleep(1000)
            except BaseException:
                say("cancelled")
                raise

        app = Service("service", Broker(URL), drain_timeout=timedelta(hours=1))
        app.on_startup(create)
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        say("over")
        """,
    )
    process.wait_for("begun")
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    time.sleep(0.2)  # two signals at one moment are one
    process.signal(signal.SIGTERM)
    process.wait_for("cancelled")
    status, log = process.end()
    assert status == 0, log
    assert time.monotonic() - begun < 30  # of the hour that it may drain
    assert process.rows() == [(1, None)]


def test_a_signal_while_starting_ends_the_start(tmp_path: Path, backend: str) -> None:
    process = Process(
        tmp_path,
        backend,
        """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            say("handled")

        app = Service("service", Broker(URL))

        @app.on_startup
        async def slow(db: Database) -> None:
            say("starting")
            await anyio.sleep(1000)

        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        say("over")
        """,
    )
    process.wait_for("starting")
    process.signal(signal.SIGTERM)
    process.wait_for("over")
    status, log = process.end(5)
    assert status == 0, log


SHORT_PHASES = """
        from inboxkit._runtime import serving, stopping
        stopping.CANCEL_SECONDS = stopping.RELEASE_SECONDS = stopping._LATE_SECONDS = 0.2
        serving.CANCEL_SECONDS = serving.RELEASE_SECONDS = 0.2
"""
STUCK = {
    "swallows": """
        async def stuck():
            while True:
                try:
                    await anyio.sleep(1)
                except BaseException:
                    pass
        """,
    "shields": """
        async def stuck():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1_000_000)
        """,
}


@pytest.mark.parametrize("how", STUCK)
def test_a_handler_that_swallows_its_cancellation_ends_the_process(
    tmp_path: Path, backend: str, how: str
) -> None:
    if how == "swallows" and backend == "trio":
        pytest.skip("trio cancels again at each checkpoint, so this one would never sleep")
    process = Process(
        tmp_path,
        backend,
        SHORT_PHASES
        + STUCK[how]
        + """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            say("begun")
            await stuck()

        app = Service("service", Broker(URL), drain_timeout=timedelta(seconds=0.2))
        app.on_startup(create)
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        say("over")
        """,
    )
    process.wait_for("begun")
    process.signal(signal.SIGTERM)
    status, log = process.end()
    assert status == 70, log
    assert "row 1 of queue 'jobs'" in log
    ((attempt, locked_until),) = process.rows()
    assert attempt == 2
    assert locked_until is not None


def test_in_virtual_time_the_phases_of_a_stop_take_no_real_seconds(
    tmp_path: Path, backend: str
) -> None:
    process = Process(
        tmp_path,
        backend,
        STUCK["shields"]
        + """
        from inboxkit_testing import VirtualClock, open_test_database, run
        clock = VirtualClock()

        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            await stuck()

        async def main():
            database = open_test_database(URL, clock=clock)
            app = Service("service", Broker(database), drain_timeout=timedelta(hours=1))
            app.on_startup(create)
            app.include(handle)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(app.run)
                await anyio.sleep(5)
                os.kill(os.getpid(), signal.SIGTERM)

        run(main, backend=BACKEND, clock=clock)
        """,
    )
    status, log = process.end()
    assert status == 70, log
    assert "row 1 of queue 'jobs'" in log


def test_a_handler_that_blocks_the_loop_ends_the_process(tmp_path: Path, backend: str) -> None:
    """Not even the signal reaches the loop: a thread sees to it."""
    process = Process(
        tmp_path,
        backend,
        SHORT_PHASES
        + """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            say("begun")
            while True:
                try:
                    time.sleep(1000)
                except BaseException:
                    pass

        app = Service("service", Broker(URL), drain_timeout=timedelta(seconds=0.5))
        app.on_startup(create)
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        say("over")
        """,
    )
    process.wait_for("begun")
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    status, log = process.end(20)
    assert status == 70, log
    assert "row 1 of queue 'jobs'" in log
    assert time.monotonic() - begun < 10


def test_an_exit_of_a_handler_is_the_exit_of_the_process(tmp_path: Path, backend: str) -> None:
    process = Process(
        tmp_path,
        backend,
        """
        @subscriber(QUEUE)
        async def handle(message: int) -> None:
            sys.exit(3)

        app = Service("service", Broker(URL))
        app.on_startup(create)
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        """,
    )
    status, log = process.end()
    assert status == 3, log
    assert "ExceptionGroup" not in log
    assert process.rows() == [(2, None)]


def test_a_start_up_error_is_not_wrapped(tmp_path: Path, backend: str) -> None:
    process = Process(
        tmp_path,
        backend,
        """
        @subscriber(QUEUE)
        async def handle(message: int) -> None: ...

        app = Service("service", Broker(URL))
        app.include(handle)
        anyio.run(app.run, backend=BACKEND)
        """,
    )
    status, log = process.end()
    assert status == 1
    assert "SchemaError" in log
    assert "ExceptionGroup" not in log
