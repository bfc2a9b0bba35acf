"""Handlers that hold all connections of the pool and wait for more."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from chaos_counting import count, left, wait_until
from chaos_publishing import make_tables, publish_plain
from chaos_sql import Outside
from chaos_workers import Workers

SMALL = {("postgres", "lease")}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in SMALL else pytest.mark.whole_chaos)
    for kind, forms in (
        ("sqlite", ("lease",)),
        ("postgres", ("lease", "row lock", "advisory lock")),
        ("mariadb", ("lease", "row lock", "advisory lock")),
    )
    for form in forms
    for cell in [(kind, form)]
]


@pytest.mark.parametrize(("inbox_db", "form"), CELLS)
def test_a_handler_that_waits_too_long_for_a_connection_fails_and_the_rest_goes_on(
    own_url: str, inbox_db: str, form: str, is_whole: bool, report: Path | None, tmp_path: Path
) -> None:
    jobs, patience = (100, 5.0) if is_whole else (20, 0.5)
    make_tables(own_url, form)
    variables = {
        "CHAOS_FORM": form,
        "CHAOS_LEASE": str(10 * patience),
        "CHAOS_POOL": "4",
        "CHAOS_PATIENCE": str(patience),
    }
    begun = time.monotonic()
    with (
        Outside(own_url) as outside,
        Workers(own_url, tmp_path, variables, module="chaos_greedy") as workers,
    ):
        publish_plain(outside, form, jobs)
        workers.start(1)
        wait_until(lambda: left(outside) == 0, 60 + jobs * patience, "no row is left")
        workers.stop()
        counted = count(outside)
        counted.check(jobs, counts_crashes=form != "row lock")
        told = workers.logs().count("failed: PoolTimeoutError: no connection became free")
    figures = {"kind": "pool exhausted", "database": inbox_db, "form": form, **asdict(counted)}
    figures |= {"told": told, "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps(figures))
    if report is not None:
        with report.open("a") as lines:
            lines.write(json.dumps(figures) + "\n")
    assert told
