"""Servers whose administrator has set short times for statements, locks, and idle sessions and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_run import Size, running
from chaos_servers import own_server
from chaos_sql import Outside

POSTGRES = {
    "statement_timeout": "100ms",
    "lock_timeout": "30ms",
    "idle_in_transaction_session_timeout": "100ms",
    "idle_session_timeout": "100ms",
    "transaction_timeout": "200ms",
    "tcp_user_timeout": "1000",
}
MYSQL = {
    "wait_timeout": 1,
    "interactive_timeout": 1,
    "idle_transaction_timeout": 1,
    "idle_write_transaction_timeout": 1,
    "idle_readonly_transaction_timeout": 1,
    "innodb_lock_wait_timeout": 1,
    "lock_wait_timeout": 1,
    "max_statement_time": 0.1,
    "max_execution_time": 100,
}
SMALL = {("postgres", "row lock")}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in SMALL else pytest.mark.whole_chaos)
    for kind in ("postgres", "mariadb", "mysql")
    for form in ("lease", "row lock", "advisory lock")
    for cell in [(kind, form)]
]


@pytest.mark.parametrize(("inbox_db", "form"), CELLS)
def test_short_times_of_a_server_end_no_work(
    inbox_db: str,
    form: str,
    size: Size,
    is_whole: bool,
    seed: int,
    report: Path | None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Handlers take longer than any of these times, and hold sessions and transactions meanwhile."""
    size = replace(size, jobs=400 if is_whole else 20)
    seconds = 0.4 if inbox_db == "postgres" else 1.6
    about = {"kind": "impatient server", "database": inbox_db}
    with impatient(request, inbox_db) as url:
        settings = {"seed": seed, "report": report, "about": about, "seconds": seconds}
        with running(url, form, size, tmp_path, **settings) as run:  # type: ignore[arg-type]
            run.wait_for_work()
            run.publish_part(1, 1)
            run.wait_for_more(size.jobs)
            run.check()
            log = run.workers.logs()
    assert log.count(" ERROR ") == 0, log[-3000:]


@contextmanager
def impatient(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    """An empty database with these settings."""
    if kind == "postgres":
        url: str = request.getfixturevalue("own_url")
        with Outside(url) as outside:
            name = outside.value("SELECT current_database()")
            for setting, value in POSTGRES.items():
                if outside.run("SELECT 1 FROM pg_settings WHERE name = ?", setting):
                    outside.run_native(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")
        yield url
        return
    with own_server(kind) as server:
        with Outside(server.url) as outside:
            for setting, limit in MYSQL.items():
                if outside.run("SHOW GLOBAL VARIABLES LIKE ?", setting):
                    outside.run_native(f"SET GLOBAL {setting} = {limit}")
        yield server.url
