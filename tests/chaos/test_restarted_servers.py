"""Servers that are restarted under load, in order and by a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_run import Size, running
from chaos_servers import own_server

SMALL = {("postgres", "lease", "crash"), ("mariadb", "row lock", "crash")}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in SMALL else pytest.mark.whole_chaos)
    for kind in ("postgres", "mariadb", "mysql")
    for form in ("lease", "row lock", "advisory lock")
    for how in ("fast", "crash")
    for cell in [(kind, form, how)]
]


@pytest.mark.parametrize(("inbox_db", "form", "how"), CELLS)
def test_a_restarted_server_costs_time_alone(
    inbox_db: str, form: str, how: str, size: Size, seed: int, report: Path | None, tmp_path: Path
) -> None:
    about = {"kind": f"server restarted: {how}", "database": inbox_db}
    with (
        own_server(inbox_db) as server,
        running(server.url, form, size, tmp_path, seed=seed, report=report, about=about) as run,
    ):
        run.wait_for_work()
        for number in range(size.outages):
            run.keep_pace(number, size.outages)
            run.pause(0.1, 0.4)
            run.check()
            run.outages.append(
                server.restart(how, away=run.random.choice((0.0, 0.3, 1.0)) * size.away)
            )
            run.wait_for_more()
