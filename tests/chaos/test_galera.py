"""A MariaDB Galera cluster whose nodes all take writes: workers on each of them, and a node that is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos_galera import Cluster, cluster
from chaos_jobs import UNORDERED
from chaos_run import Run, Size, running

pytestmark = pytest.mark.whole_chaos


@contextmanager
def on_all_nodes(
    made: Cluster, size: Size, seed: int, report: Path | None, folder: Path, kind: str
) -> Iterator[Run]:
    """A worker on each node."""
    about: dict[str, Any] = {"kind": kind, "database": "mariadb", "nodes": len(made.nodes)}
    with running(
        made.url,
        UNORDERED,
        replace(size, workers=len(made.nodes)),
        folder,
        seed=seed,
        report=report,
        workers_url=made.urls,
        about=about,
    ) as run:
        run.wait_for_work()
        yield run
        run.about["conflicts"] = made.conflicts()


def test_workers_on_several_nodes_lose_and_double_nothing(
    size: Size, is_whole: bool, seed: int, report: Path | None, tmp_path: Path
) -> None:
    """The same rows are claimed on several nodes at once: one claim is committed, the others fail."""
    size = replace(size, jobs=2_000 if is_whole else 100)
    with (
        cluster(3) as made,
        on_all_nodes(made, size, seed, report, tmp_path, "several nodes") as run,
    ):
        run.publisher.finish(300)
        run.wait_for_more(size.jobs, seconds=600)
        assert made.conflicts()["refused"], "no two nodes wrote the same row"


def test_a_killed_node_costs_time_alone(
    size: Size, is_whole: bool, seed: int, report: Path | None, tmp_path: Path
) -> None:
    """The others go on when they have missed it; its worker goes on when it has joined again."""
    rounds = 6 if is_whole else 1
    still, joined = [], []
    size = replace(size, jobs=2_000 if is_whole else 100)
    with (
        cluster(3) as made,
        on_all_nodes(made, size, seed, report, tmp_path, "node killed") as run,
    ):
        for number in range(rounds):
            run.keep_pace(number, rounds)
            run.pause(0.1, 0.4)
            made.kill(number % 3)
            since = time.monotonic()
            run.wait_for_more()
            still.append(round(time.monotonic() - since, 2))
            run.check()
            joined.append(round(made.join(number % 3), 2))
            run.wait_for_more(3)
            run.check()
        run.about |= {"stood still": still, "joined after": joined}
