"""Many processes on one SQLite file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_run import Size, running


@pytest.mark.whole_chaos
def test_eight_processes_share_one_file(
    size: Size, is_whole: bool, seed: int, report: Path | None, tmp_path: Path
) -> None:
    """Killed at random; none of them is starved of its turn to write, and nobody is told of a locked file."""
    size = replace(size, workers=8, lease=10.0)
    with running(
        f"sqlite:///{tmp_path / 'chaos.db'}",
        "lease",
        size,
        tmp_path,
        seed=seed,
        report=report,
        about={"kind": "eight processes", "database": "sqlite"},
    ) as run:
        run.wait_for_work()
        for number in range(size.kills):
            run.keep_pace(number, size.kills)
            run.pause(0.02, 0.4)
            run.check()
            run.workers.kill(run.random.choice(run.workers.running))
            run.workers.start()
    assert "database is locked" not in run.workers.logs()


@pytest.mark.parametrize(
    "path",
    [
        "itself",
        *(
            pytest.param(one, marks=pytest.mark.whole_chaos)
            for one in ("a symbolic link", "a hard link")
        ),
    ],
)
def test_a_second_process_with_advisory_locks_is_refused_under_load(
    path: str, size: Size, seed: int, report: Path | None, tmp_path: Path
) -> None:
    """The first goes on as if nothing had been; once it is gone, the next is let in."""
    first, other = tmp_path / "chaos.db", tmp_path / "other.db"
    size = replace(size, workers=1, jobs=min(size.jobs, 2_000))
    with running(
        f"sqlite:///{first}",
        "advisory lock",
        size,
        tmp_path,
        seed=seed,
        report=report,
        about={"kind": f"second process by {path}", "database": "sqlite"},
    ) as run:
        run.wait_for_work()
        if path == "itself":
            other = first
        elif path == "a symbolic link":
            other.symlink_to(first)
        else:
            os.link(first, other)
        run.publish_part(1, 2)
        (serving,) = run.workers.running
        for _ in range(3):
            (refused,) = run.workers.start(url=f"sqlite:///{other}")
            status, _ = run.workers.end_of(refused, 30)
            assert status == 1
            assert "another process has the SQLite file" in run.workers.log(refused)
            assert "Traceback" not in run.workers.log(refused)
            run.wait_for_more()
        run.workers.kill(serving)
        run.workers.wait_for_end(serving)
        run.workers.start(url=f"sqlite:///{first}")
