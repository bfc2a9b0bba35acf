"""Small disks of a test's own, and limits on how long a process's files may become."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "limit_files", "small_disk"]


@contextmanager
def small_disk(folder: Path, *, kibibytes: int) -> Iterator[Path]:
    """A disk of this size, which lives in memory; skips the test where mounting is not permitted."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir()
    options = f"size={kibibytes}k"
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"mounting a small disk is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill a disk to its last byte; returns the file to remove again."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def limit_files(worker: int, length: int | None) -> None:
    """Let no file that a process writes become longer than this; None: as before."""
    _, hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (hard if length is None else length, hard))
