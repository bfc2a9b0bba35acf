"""A network between workers and server that delays, stalls, goes dead one way, and cuts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from chaos_proxy import WELL, Proxy, Weather, proxied
from chaos_run import Run, Size, running

STATEMENT = 1.0
"""Seconds that a statement may take; a silent server is given up 5 s (PostgreSQL) or 2 s later."""


@dataclass(frozen=True)
class Damage:
    """What is done to the network for some time."""

    weather: Weather = WELL
    seconds: float = 0.08
    """How long it lasts, in the part that each run has."""
    whole_seconds: float = 3.0
    cuts: float = 0.0
    """Share of the connections that are reset at its end."""
    commits: int = 0
    """COMMITs whose answers are cut."""


DAMAGES = {
    "slow": Damage(Weather(delay=0.02)),
    "stalled": Damage(Weather(requests=False, answers=False)),
    "stalled beyond all bounds": Damage(
        Weather(requests=False, answers=False, accepts=False), whole_seconds=8.0
    ),
    "requests dead": Damage(Weather(requests=False), cuts=1.0),
    "answers dead": Damage(Weather(answers=False), cuts=1.0),
    "accepts and is silent": Damage(Weather(accepts=False), cuts=1.0),
    "refuses": Damage(Weather(refuses=True), cuts=1.0),
    "cut": Damage(cuts=0.5, seconds=0.05, whole_seconds=0.3),
    "cut in the answer to a COMMIT": Damage(commits=3, seconds=0.1, whole_seconds=0.3),
}
CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=pytest.mark.whole_chaos)
    for kind in ("postgres", "mariadb")
    for form in ("lease", "row lock", "advisory lock")
    for damage in DAMAGES
    for cell in [(kind, form, damage)]
]


@pytest.mark.parametrize(("inbox_db", "form", "name"), CELLS)
def test_a_bad_network_costs_time_alone(
    own_url: str,
    inbox_db: str,
    form: str,
    name: str,
    size: Size,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    size = replace(size, jobs=2_000, outages=6)
    about = {"kind": f"network: {name}", "database": inbox_db, "cuts": 0}
    damage = replace(DAMAGES[name], seconds=DAMAGES[name].whole_seconds)
    with (
        proxied(own_url, seed=seed) as (proxy, url),
        running(
            own_url,
            form,
            size,
            tmp_path,
            seed=seed,
            report=report,
            workers_url=url,
            variables={"CHAOS_STATEMENT": str(STATEMENT)},
            about=about,
        ) as run,
    ):
        run.wait_for_work()
        for number in range(size.outages):
            run.keep_pace(number, size.outages)
            run.pause(0.1, 0.4)
            harm(proxy, run, damage)
        about["cuts"] = proxy.cuts
        assert not damage.commits or proxy.cuts


@pytest.mark.parametrize(
    ("inbox_db", "form"),
    [("postgres", "lease"), pytest.param("mariadb", "row lock", marks=pytest.mark.whole_chaos)],
    ids=str,
)
def test_a_little_of_each_bad_network(
    own_url: str,
    inbox_db: str,
    form: str,
    size: Size,
    seed: int,
    report: Path | None,
    tmp_path: Path,
) -> None:
    about = {"kind": "network: all", "database": inbox_db}
    with (
        proxied(own_url, seed=seed) as (proxy, url),
        running(
            own_url,
            form,
            replace(size, jobs=100, lease=1.0),
            tmp_path,
            seed=seed,
            report=report,
            workers_url=url,
            variables={"CHAOS_STATEMENT": str(STATEMENT)},
            about=about,
        ) as run,
    ):
        run.wait_for_work()
        for number, damage in enumerate(DAMAGES.values()):
            run.publish_part(number + 2, len(DAMAGES) + 2)
            harm(proxy, run, damage)
        assert proxy.cuts


def harm(proxy: Proxy, run: Run, damage: Damage) -> None:
    """Do the damage, mend it, and wait until something more is done."""
    before = proxy.cuts
    proxy.change(damage.weather)
    proxy.cut_commits(damage.commits)
    if damage.cuts and damage.weather.refuses:
        proxy.cut(damage.cuts)
    deadline = time.monotonic() + 5.0
    run.pause(damage.seconds, damage.seconds)
    while damage.commits and proxy.cuts == before and time.monotonic() < deadline:
        run.pause(0.01, 0.01)
    run.check()
    if damage.cuts:
        proxy.cut(damage.cuts)
    proxy.change(WELL)
    run.outages.append(time.time())
    run.wait_for_more()
