"""A pgbouncer between workers and server that is restarted and paused under load."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_pooler import Pooler, pooling
from chaos_run import Size, running

SMALL = {("session", "row lock")}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in SMALL else pytest.mark.whole_chaos)
    for mode, forms in (
        ("session", ("lease", "row lock", "advisory lock")),
        ("transaction", ("lease", "row lock")),
    )
    for form in forms
    for cell in [(mode, form)]
]


@pytest.mark.parametrize(("mode", "form"), CELLS)
def test_a_pooler_that_is_restarted_and_paused_costs_time_alone(
    postgres_url: str,
    mode: str,
    form: str,
    size: Size,
    is_whole: bool,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    size = replace(size, jobs=2_000 if is_whole else 80)
    rounds, away = (6, 2.0) if is_whole else (1, 0.2)
    about = {"kind": f"pooler: {mode}", "database": "postgres"}
    with (
        pooling(postgres_url, mode) as pooler,
        running(
            postgres_url,
            form,
            size,
            tmp_path,
            seed=seed,
            report=report,
            workers_url=pooler.url,
            about=about,
        ) as run,
    ):
        run.wait_for_work()
        for number in range(rounds):
            for harm in (restart, pause) if is_whole else (restart,):
                run.keep_pace(number, rounds)
                run.pause(0.1, 0.3)
                harm(pooler, run.random.uniform(0.0, away))
                run.outages.append(time.time())
                run.check()
                run.wait_for_more()


def restart(pooler: Pooler, away: float) -> None:
    """End it with all its sessions, and start it again."""
    pooler.stop()
    time.sleep(away)
    pooler.start()


def pause(pooler: Pooler, away: float) -> None:
    """Take all servers from it, as before an upgrade of theirs, and give them back.

    In session mode PAUSE would wait for the ends of all sessions, so there the process stands still.
    """
    if pooler.mode == "session":
        with pooler.frozen():
            time.sleep(away)
        return
    pooler.tell("PAUSE")
    time.sleep(away)
    pooler.tell("RESUME")
