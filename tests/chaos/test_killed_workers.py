"""Workers that are killed at random moments, as ``kill -9`` does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos_run import Size, running

CELLS = {
    "lease": ("sqlite", "postgres", "mariadb", "mysql"),
    "row lock": ("postgres", "mariadb", "mysql"),
    "advisory lock": ("sqlite", "postgres", "mariadb", "mysql"),
}
SMALL = {
    ("sqlite", "lease"),
    ("postgres", "lease"),
    ("mariadb", "row lock"),
    ("mysql", "advisory lock"),
}
"""Cells of the run without options."""


def _cells() -> list[Any]:
    return [
        pytest.param(
            database,
            form,
            id=f"{database}-{form}",
            marks=() if (database, form) in SMALL else pytest.mark.whole_chaos,
        )
        for form, databases in CELLS.items()
        for database in databases
    ]


@pytest.mark.parametrize(("inbox_db", "form"), _cells())
def test_killed_workers_lose_and_double_nothing(
    own_url: str,
    inbox_db: str,
    form: str,
    size: Size,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    about = {"kind": "killed workers", "database": inbox_db}
    if (inbox_db, form) == ("sqlite", "advisory lock"):
        size = alone(size)  # a second process on the file is refused
    with running(own_url, form, size, tmp_path, seed=seed, report=report, about=about) as run:
        run.wait_for_work()
        for number in range(size.kills):
            run.keep_pace(number, size.kills)
            run.pause(0.02, 0.4)
            run.check()
            victim = run.random.choice(run.workers.running)
            run.workers.kill(victim)
            if size.workers == 1:  # as whoever restarts a service does
                run.workers.wait_for_end(victim)
            run.workers.start()


def alone(size: Size) -> Size:
    """The same with one worker."""
    return replace(size, workers=1)
