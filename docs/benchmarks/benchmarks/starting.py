"""How long `import inboxkit` takes, and how long a service takes until it claims."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

import anyio

from inboxkit import Broker, Database, InboxQueue, Service, subscriber

from .measuring import Sample, run_in
from .places import Place, remake
from .tables import NAME, Job, LeaseRow, ddl

__all__ = ["importing", "until_ready"]

_IMPORT: Final = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); import inboxkit; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def importing() -> Sample:
    """Measure the import in a fresh interpreter."""
    answer = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    wall, cpu = map(float, answer.stdout.split())
    return {"ms": wall * 1e3, "cpu ms": cpu * 1e3}


def until_ready(place: Place, backend: str) -> Sample:
    """Measure a service of one subscription from its start, unconnected, until it claims."""
    sample: Sample = {}

    @subscriber(InboxQueue(LeaseRow, NAME, Job))
    async def handle(job: Job) -> None:
        raise AssertionError("there is nothing to handle")

    async def main() -> None:
        app = Service("bench", Broker(Database(place.url)))
        app.include(handle)
        start = time.perf_counter()
        async with app.running():
            sample["ms"] = (time.perf_counter() - start) * 1e3
            await anyio.lowlevel.checkpoint()

    remake(place, LeaseRow.spec.table, ddl(place.dialect, LeaseRow.spec), 0)
    with place.measuring():
        run_in(backend, main)
    return sample
