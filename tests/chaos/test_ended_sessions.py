"""Sessions that an administrator ends at random moments, between claim and settlement too."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_run import Size, running
from chaos_sql import Outside

SMALL = {("postgres", "row lock"), ("mariadb", "lease")}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in SMALL else pytest.mark.whole_chaos)
    for kind in ("postgres", "mariadb", "mysql")
    for form in ("lease", "row lock", "advisory lock")
    for cell in [(kind, form)]
]
LISTED = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY pid",
    "mysql": "SELECT id FROM information_schema.processlist "
    "WHERE db = database() AND id <> connection_id() ORDER BY id",
}
UNKNOWN_THREAD = 1094


@pytest.mark.parametrize(("inbox_db", "form"), CELLS)
def test_ended_sessions_lose_and_double_nothing(
    own_url: str,
    inbox_db: str,
    form: str,
    size: Size,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    about = {"kind": "sessions ended", "database": inbox_db, "ended": 0}
    with (
        running(own_url, form, size, tmp_path, seed=seed, report=report, about=about) as run,
        Outside(own_url) as administrator,
    ):
        run.wait_for_work()
        ends = 5 * size.kills
        for number in range(ends):
            run.keep_pace(number, ends)
            run.pause(0.0, 0.1)
            run.check()
            sessions = [session for (session,) in administrator.run(LISTED[administrator.dialect])]
            if sessions:
                end(administrator, run.random.choice(sessions))
                about["ended"] += 1  # type: ignore[operator]


def end(administrator: Outside, session: int) -> None:
    """End a session; it may have ended by itself."""
    if administrator.dialect == "postgres":
        administrator.run("SELECT pg_terminate_backend(?)", session)
        return
    import pymysql

    try:
        administrator.run(f"KILL {session}")
    except pymysql.err.OperationalError as error:
        if error.args[0] != UNKNOWN_THREAD:
            raise
