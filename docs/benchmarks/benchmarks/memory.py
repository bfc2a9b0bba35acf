"""How much memory a service takes: at rest, and with rows claimed and in work. In a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio

from inboxkit import Broker, Database, InboxQueue, Service, subscriber

from .measuring import Sample
from .places import Place, remake
from .tables import NAME, Job, LeaseRow, ddl

__all__ = ["in_own_process"]

_PATIENCE: Final = 120.0
_REST: Final = 0.3


def in_own_process(place: Place, backend: str, *, rows: int) -> Sample:
    """Measure the memory of a fresh process that serves so many rows at once."""
    table = LeaseRow.spec.table
    remake(place, table, ddl(place.dialect, LeaseRow.spec), 0)
    command = [sys.executable, "-m", __name__, place.url, backend, str(rows)]
    folder = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        at_rest = float(process.stdout.readline())
        place.fill(table, rows)
        in_work = float(process.stdout.readline())
    assert process.returncode == 0
    return {"at rest MB": at_rest, "in work MB": in_work, "more MB": in_work - at_rest}


def _tell_megabytes() -> None:
    """Print what this process has in memory now; where that cannot be known, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        size = pages * os.sysconf("SC_PAGESIZE")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(size / 1e6, flush=True)


async def _serve(url: str, rows: int) -> None:
    in_work = 0
    all_in_work, may_end = anyio.Event(), anyio.Event()

    @subscriber(InboxQueue(LeaseRow, NAME, Job))
    async def handle(job: Job) -> None:
        nonlocal in_work
        in_work += 1
        if in_work == rows:
            all_in_work.set()
        await may_end.wait()

    poll, lease = timedelta(milliseconds=100), timedelta(minutes=30)
    app = Service("bench", Broker(Database(url), lease=lease, poll_interval=poll))
    app.include(handle, workers=rows)
    async with app.running():
        await anyio.sleep(_REST)
        _tell_megabytes()
        with anyio.fail_after(_PATIENCE):
            await all_in_work.wait()
        await anyio.sleep(_REST)
        _tell_megabytes()
        may_end.set()


if __name__ == "__main__":
    anyio.run(_serve, sys.argv[1], int(sys.argv[3]), backend=sys.argv[2])
