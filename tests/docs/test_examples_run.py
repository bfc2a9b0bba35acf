"""The examples run from the command line: 20 published, all settled, status 0, and the tables say so."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

Read = Callable[[str], list[tuple[Any, ...]]]

END_STATES: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "reports": {"SELECT count(*) FROM report_jobs": [(0,)]},
    "accounts": {
        # Of ten changes two have no address: refused three times, parked, counted and free.
        "SELECT target, attempt, locked_until FROM crm_jobs": [("crm.parked", 4, None)] * 2,
        "SELECT count(*) FROM ledger_jobs": [(0,)],
    },
    "shop": {
        "SELECT count(*) FROM checkout_jobs": [(0,)],
        "SELECT count(*) FROM orders": [(20,)],
        "SELECT priority, count(*), count(processed_at), count(locked_until) FROM email_jobs "
        "GROUP BY priority ORDER BY priority": [(0, 20, 20, 0), (10, 20, 0, 0)],
    },
    "mailer": {"SELECT count(*) FROM mail_jobs": [(0,)]},
    "recurring": {
        # Each chain goes on: of each job one run is planned.
        "SELECT name, count(*) FROM scheduled_runs WHERE processed_at IS NULL "
        "GROUP BY name ORDER BY name": [("close the books", 1), ("exchange rates", 1)],
    },
    "unique": {
        "SELECT count(*), count(processed_at) FROM welcome_jobs": [(4, 4)],
        "SELECT count(*) - count(processed_at) FROM refresh_jobs": [(0,)],
    },
    "telemetry": {"SELECT count(*) FROM thumbnail_jobs": [(0,)]},
}


@pytest.fixture
def place(inbox_db: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Read]:
    """A database's URL, and a way to read it that is not ours."""
    if inbox_db == "postgres":
        url: str = request.getfixturevalue("postgres_url")

        def read(query: str) -> list[tuple[Any, ...]]:
            with psycopg.connect(url) as connection:
                return connection.execute(query.encode()).fetchall()

        return url, read
    path = tmp_path / "example.db"

    def read_file(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(query).fetchall()

    return f"sqlite:///{path}", read_file


def run(example: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{example}.py"), *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Each pair of the two is run by the examples' own tests.
@pytest.mark.parametrize(("inbox_db", "backend"), [("sqlite", "trio"), ("postgres", "asyncio")])
@pytest.mark.parametrize("example", sorted(END_STATES))
def test_twenty_messages_are_published_and_settled(
    example: str, backend: str, place: tuple[str, Read], tmp_path: Path
) -> None:
    url, read = place
    done = run(
        example,
        "--url",
        url,
        "--backend",
        backend,
        "--publish",
        "20",
        "--until-empty",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for query, expected in END_STATES[example].items():
        assert read(query) == expected, query


def test_a_wrong_url_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    done = run("reports", "--url", "oracle://db", "--until-empty", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("DeclarationError:")
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    done = run("reports", "--url", url, "--until-empty", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("ConnectError:"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_stops_an_example_without_a_traceback(
    backend: str, number: signal.Signals, tmp_path: Path
) -> None:
    arguments = ["--url", "sqlite:///x.db", "--backend", backend, "--publish", "1"]
    command = [sys.executable, str(EXAMPLES / "mailer.py"), *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = next(line for line in process.stderr if "started" in line)
        process.send_signal(number)
        _, rest = process.communicate(timeout=30)
    assert "Traceback" not in first + rest
    assert process.returncode == 0
