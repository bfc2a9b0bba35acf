"""SQLite on a disk that is full or read-only for a while."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_disks import fill, limit_files, small_disk
from chaos_run import Run, Size, running

pytestmark = pytest.mark.parametrize("inbox_db", ["sqlite"], indirect=True)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def inbox_db(request: pytest.FixtureRequest) -> str:
    """The tests' only database."""
    name: str = request.param
    return name


@contextmanager
def under_load(
    path: Path, size: Size, folder: Path, seed: int, report: Path | None, kind: str
) -> Iterator[Run]:
    """Workers on a file, with all jobs published before anything is done to it."""
    with running(
        f"sqlite:///{path}",
        "lease",
        size,
        folder,
        seed=seed,
        report=report,
        variables={"CHAOS_STATEMENT": "5"},
        about={"kind": kind, "database": "sqlite"},
    ) as run:
        run.wait_for_work()
        run.publisher.finish(60)
        yield run


def be_harmed(run: Run, seconds: float, again: Callable[[], object]) -> None:
    """Let it last, mend it, and wait until something more is done."""
    run.pause(seconds, seconds)
    run.check()
    again()
    run.outages.append(time.time())
    run.wait_for_more()


def test_a_full_disk_costs_time_alone(
    inbox_db: str,
    size: Size,
    is_whole: bool,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    size = replace(size, jobs=2_000) if is_whole else replace(size, jobs=60, lease=1.0)
    with (
        small_disk(tmp_path / "disk", kibibytes=16_384) as disk,
        under_load(disk / "chaos.db", size, tmp_path, seed, report, "disk full") as run,
    ):
        for _ in range(6 if is_whole else 1):
            ballast = fill(disk)
            be_harmed(run, 2.0 if is_whole else 0.4, ballast.unlink)
        assert "disk is full" in run.workers.logs() or "disk I/O error" in run.workers.logs()


@pytest.mark.whole_chaos
def test_files_that_may_not_grow_cost_time_alone(
    inbox_db: str, size: Size, is_whole: bool, seed: int, report: Path | None, tmp_path: Path
) -> None:
    size = replace(size, jobs=2_000) if is_whole else replace(size, jobs=60, lease=1.0)
    path = tmp_path / "chaos.db"
    with under_load(path, size, tmp_path, seed, report, "files may not grow") as run:
        for _ in range(6 if is_whole else 1):
            for worker in run.workers.running:
                limit_files(worker, 4_096)

            def again() -> None:
                for worker in run.workers.running:
                    limit_files(worker, None)

            be_harmed(run, 2.0 if is_whole else 0.4, again)


@pytest.mark.parametrize("what", ["file", pytest.param("folder", marks=pytest.mark.whole_chaos)])
def test_a_file_that_cannot_be_written_stops_the_start_with_its_name(
    inbox_db: str, what: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "chaos.db"
    sqlite3.connect(path).close()
    path.touch()
    (path if what == "file" else folder).chmod(0o444 if what == "file" else 0o555)
    command = [sys.executable, "-m", "inboxkit", "run", "chaos_jobs", "--url", f"sqlite:///{path}"]
    modules = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    # Root without its capabilities: what it may write goes by the file's mode again.
    dropped = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    done = subprocess.run(
        [*(dropped if os.geteuid() == 0 else []), *command],
        env={**os.environ, "PYTHONPATH": modules, "CHAOS_FORM": "lease", "CHAOS_LEASE": "2"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert done.returncode == 1, done.stderr
    assert str(path) in done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
