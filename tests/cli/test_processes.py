"""The command line as processes: signals, pipes, a terminal, and commands beside a live service."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, Mail, factory, lease_spec, make, put, rows

from inboxkit import InboxQueue

ROOT = Path(__file__).parents[2]
SPEC = lease_spec("jobs")
PROGRAM = """
from datetime import datetime, timedelta
import sys
import anyio
sys.path.insert(0, {kit!r})
from cli_kit import CONTROL, Mail, lease_spec
from inboxkit import Broker, InboxQueue, Service, subscriber

SPEC = lease_spec("jobs")

@subscriber(InboxQueue(SPEC, "mails", Mail))
async def handle(mail: Mail) -> None:
    print("begun", mail.to, flush=True)
    try:
        await anyio.sleep(float(mail.to))
    finally:
        print("over", mail.to, flush=True)

@subscriber(InboxQueue(SPEC, "mails.dead", Mail))
async def review(mail: Mail) -> None:
    print("reviewing", flush=True)
    await anyio.sleep(1000)

def service(url: str) -> Service:
    broker = Broker(url, poll_interval=timedelta(seconds=0.05))
    app = Service("mailer", broker, control_table=CONTROL)
    app.include(handle, max_attempts=3, dead_letter="mails.dead", workers=3)
    app.include(review)
    return app
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _end_processes() -> Iterator[None]:
    """None outlives a test that failed."""
    yield
    for process in STARTED:
        with process:
            process.kill()
    STARTED.clear()


class Process:
    """``inboxkit …`` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str, **settings: Any) -> None:
        code = PROGRAM.format(kit=str(Path(__file__).parent))
        (folder / "program.py").write_text(code)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "default", "-m", "inboxkit", *arguments],
            cwd=folder,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings},
        )
        STARTED.append(self.process)

    def wait_for(self, line: str, stream: str = "stdout") -> None:
        """Read until a line has this in it."""
        for said in getattr(self.process, stream):
            if line in said:
                return
        raise AssertionError(f"it ended without saying {line!r}: {self.end()}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 20) -> tuple[int, str, str]:
        """Its exit status, and the rest of what it printed and logged."""
        try:
            printed, logged = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, printed, logged


@pytest.fixture
def url(sqlite_url: str) -> str:
    make(sqlite_url, SPEC, control=True)
    return sqlite_url


def test_a_signal_lets_handlers_finish(tmp_path: Path, url: str) -> None:
    put(url, SPEC, {"group": "mails", "payload": Mail("0.3")})
    process = Process(tmp_path, "run", "program", "--url", url, "--backend", "trio")
    process.wait_for("backend trio")
    process.wait_for("begun 0.3")
    process.signal(signal.SIGTERM)
    status, printed, logged = process.end()
    assert status == 0, logged
    assert printed.splitlines() == ["over 0.3", "queue    acked", "'mails'  1"]
    assert re.search(r"^\d{4}-\S+ \S+ INFO +inboxkit: \w+: no new claims", logged, re.MULTILINE)
    assert "Traceback" not in logged
    assert "Warning" not in logged
    assert "\x1b" not in printed + logged
    assert rows(url, SPEC, "id") == []


def test_a_service_that_cannot_start_ends_at_once_with_status_1(
    tmp_path: Path, sqlite_url: str
) -> None:
    process = Process(tmp_path, "run", "program", "--url", sqlite_url)
    begun = time.monotonic()
    status, printed, logged = process.end(15)
    assert status == 1
    assert "does not exist" in logged
    assert "Traceback" not in logged
    assert "ResourceWarning" not in logged
    assert printed.endswith("no row was handled\n")
    assert time.monotonic() - begun < 10


def test_a_closed_pipe_is_silent(tmp_path: Path, url: str) -> None:
    put(url, SPEC, *[{"group": "mails.dead"}] * 50)
    reading, writing = os.pipe()
    os.close(reading)
    arguments = ("dead", "list", "program", "--url", url)
    process = Process(tmp_path, *arguments, stdout=writing)
    os.close(writing)
    status, _, logged = process.end()
    assert (status, logged) == (1, "")


class Terminal:
    """A terminal of the test's own, and all that it has shown."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self._shown = b""
        self.streams = dict.fromkeys(("stdin", "stdout", "stderr"), self._theirs)

    @property
    def shown(self) -> str:
        """Without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.decode())

    def read(self, until: str, seconds: float = 20) -> None:
        """Wait until it has shown this."""
        end = time.monotonic() + seconds
        while until not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], max(end - time.monotonic(), 0))
            assert ready, self.shown
            self._shown += os.read(self._ours, 65536)

    def type(self, text: bytes) -> None:
        """As a person would."""
        os.write(self._ours, text)

    def close(self) -> None:
        """Both ends."""
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def test_on_a_terminal_progress_is_shown_and_a_second_signal_gives_rows_back(
    tmp_path: Path, url: str, terminal: Terminal
) -> None:
    put(url, SPEC, *[{"group": "mails", "payload": Mail(text)} for text in ("0", "1000")])
    process = Process(tmp_path, "run", "program", "--url", url, **terminal.streams)
    terminal.read("1 row in work")
    process.signal(signal.SIGINT)
    terminal.read("no new claims")
    process.signal(signal.SIGINT)
    terminal.read("service 'mailer' stopped")
    assert process.process.wait(10) == 0
    terminal.read("'mails'  1      1")
    assert "released row 2 unsettled" in terminal.shown
    assert rows(url, SPEC, "id", "name", "attempt", "locked") == [(2, "mails", 1, None)]


def test_on_a_terminal_a_purge_is_asked_for(tmp_path: Path, url: str, terminal: Terminal) -> None:
    put(url, SPEC, {"group": "mails.dead"}, {"group": "mails.dead"})
    arguments = ("dead", "purge", "program", "--all", "--url", url)
    process = Process(tmp_path, *arguments, **terminal.streams)
    terminal.read("purge 2 dead letters of 'mails.dead'? [y/N]: ")
    terminal.type(b"n\n")
    terminal.read("Aborted!")
    assert process.process.wait(10) == 1
    assert len(rows(url, SPEC, "id")) == 2


def test_commands_beside_a_live_service(tmp_path: Path, url: str, cli: Cli) -> None:
    queues = [InboxQueue(SPEC, name, Mail) for name in ("mails", "mails.dead")]
    name = cli.module(service=factory(*queues, dead={"mails": "mails.dead"}))
    put(url, SPEC, {"group": "mails", "payload": Mail("1000")}, {"group": "mails.dead"})
    process = Process(tmp_path, "run", "program", "--url", url)
    said = {process.process.stdout.readline().split()[0] for _ in range(5)}  # type: ignore[union-attr]
    assert {"begun", "reviewing"} <= said
    put(url, SPEC, {"group": "elsewhere"})

    # A row in work is never changed under its holder.
    for command in ("requeue", "purge"):
        answer = cli.json("dead", command, name, "--all", "--url", url)
        assert answer["count"] == 0
        assert [left["id"] for left in answer["left"]] == [2]
    stats = cli.json("stats", name, "--url", url)["queues"]
    assert [queue["in_work"] for queue in stats] == [1, 1]

    # A pause is seen within a poll; nothing is claimed until the queue is resumed.
    cli.run("pause", name, "mails", "--url", url)
    process.wait_for("queue 'mails' is paused", "stderr")
    put(url, SPEC, {"group": "mails", "payload": Mail("0")})
    assert cli.json("stats", name, "--url", url)["queues"][0]["due"] == 1
    cli.run("resume", name, "mails", "--url", url)
    process.wait_for("begun 0")
    process.signal(signal.SIGTERM)
    process.wait_for("no new claims", "stderr")
    process.signal(signal.SIGTERM)
    status, _, logged = process.end()
    assert status == 0, logged
