"""Worker hosts of their own against one Postgres: one is cut off in mid-lease, and clocks are wrong."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from chaos_counting import count, left, wait_until
from chaos_namespaces import NETWORK, Host, host
from chaos_publishing import make_tables, publish_plain
from chaos_servers import OwnServer, own_server
from chaos_sql import Outside
from chaos_workers import Workers

WARNING = "the database server's, and leases bear"
HELD = [0.0, 0.5, -0.5]
"""Skews in margins under which no row is in work twice; the rest of the margin is for a handler to stop."""
BEYOND = [0.75, -0.75, 1.0, -1.0, 1.5, -1.5, 3.0]
"""Skews under which a row may be in work twice for a moment, and yet is settled once."""


@contextmanager
def postgres() -> Iterator[OwnServer]:
    """A server that other hosts reach."""
    with own_server("postgres", settings=("listen_addresses=*",)) as server:
        rules = server.supervisor.folder / "data" / "pg_hba.conf"
        with rules.open("a") as file:
            file.write(f"\nhost all all {NETWORK} password\n")
        with Outside(server.url) as outside:
            outside.run("SELECT pg_reload_conf()")
        yield server


def workers_on(
    place: Host, server: OwnServer, folder: Path, lease: float, skew: float, backend: str
) -> Workers:
    """Workers on a host; none is started. The skew is in margins, which are tenths of the lease."""
    parts = urlsplit(server.url)
    account = parts.netloc.rpartition("@")[0]
    url = urlunsplit(parts._replace(netloc=f"{account}@{place.server}:{server.port}"))
    folder = folder / place.name
    folder.mkdir()
    variables = {
        "CHAOS_NETNS": place.name,
        "CHAOS_LEASE": str(lease),
        "CHAOS_SKEW": str(skew * lease / 10),
        "CHAOS_WORK": str(folder / "work"),
    }
    return Workers(url, folder, variables, module="chaos_hosts", backends=(backend,))


@pytest.mark.parametrize(
    ("skew", "backends"),
    [
        pytest.param(
            skew,
            backends,
            id=f"{skew:g}-{backends[0]}",
            marks=pytest.mark.whole_chaos,
        )
        for skew in HELD + BEYOND
        for backends in (("asyncio", "trio"), ("trio", "asyncio"))
    ],
)
def test_a_host_that_is_cut_off_works_on_no_row_that_another_has(
    skew: float, backends: tuple[str, str], is_whole: bool, report: Path | None, tmp_path: Path
) -> None:
    """Up to the documented skew; beyond it, whoever settles does so alone.

    Its rows go to the other host once their leases end.
    """
    lease = 3.0 if is_whole else 1.5
    with ExitStack() as stack:
        here, there = (stack.enter_context(host()) for _ in range(2))
        server = stack.enter_context(postgres())
        make_tables(server.url, "lease")
        outside = stack.enter_context(Outside(server.url))
        first = stack.enter_context(workers_on(here, server, tmp_path, lease, 0.0, backends[0]))
        second = stack.enter_context(workers_on(there, server, tmp_path, lease, skew, backends[1]))
        (cut,) = first.start()
        first.wait_for(cut, "' started")
        (other,) = second.start()
        second.wait_for(other, "' started")
        jobs = publish_until_begun(outside, cut, seconds=1.2 * lease)
        after = taken_over(outside, here, cut, other)
        here.join_again()
        wait_until(lambda: left(outside) == 0, 120, "no row is left")
        first.stop()
        second.stop()
        counted = count(outside)
        counted.check(jobs, counts_crashes=True)
        overlaps = overlapping(tmp_path)
        told = WARNING in first.logs() + second.logs()
    figures: dict[str, Any] = {
        "kind": "host cut off",
        "skew": skew,
        "backends": backends,
        **asdict(counted),
    }
    figures |= {"taken over after": [round(after, 2)], "overlaps": overlaps, "told": told}
    tell(report, figures)
    assert counted.same_attempt == 0
    if skew in HELD:
        assert overlaps == []
    if abs(skew) != 1.0:  # there the few milliseconds of the measuring decide
        assert told == (abs(skew) > 1.0)


def publish_until_begun(outside: Outside, worker: int, *, seconds: float) -> int:
    """Publish jobs one by one until this worker has begun one; returns how many.

    So the other one has workers free, and a row is taken over as soon as its lease lets it.
    """
    begun = "SELECT count(DISTINCT number) FROM begun"
    for number in range(1, 17):
        publish_plain(outside, "lease", 1, first=number, seconds=seconds)
        wait_until(lambda number=number: outside.value(begun) == number, 60, "a job is begun")
        if outside.value("SELECT count(*) FROM begun WHERE worker = ?", worker):
            return number
    raise AssertionError("the other worker has begun all of them")


def taken_over(outside: Outside, place: Host, cut: int, other: int) -> float:
    """Cut a host off in mid-work; seconds until the other one has begun a row that the first one had."""
    unfinished = (
        "SELECT count(*) FROM begun b WHERE worker = ? AND NOT EXISTS "
        "(SELECT 1 FROM effects e WHERE e.number = b.number)"
    )
    wait_until(lambda: outside.value(unfinished, cut) > 0, 60, "the first host has begun a row")
    time.sleep(0.2)
    place.cut_off()
    since = time.time()
    begun = "SELECT min(at) FROM begun WHERE worker = ? AND attempt > 1 AND at > ?"
    wait_until(lambda: outside.value(begun, other, since), 60, "a row was taken over")
    return float(outside.value(begun, other, since)) - since


@pytest.mark.parametrize("skew", [pytest.param(1.5, marks=pytest.mark.whole_chaos), -1.5])
@pytest.mark.parametrize(
    "backend", [pytest.param("asyncio", marks=pytest.mark.whole_chaos), "trio"]
)
def test_a_clock_that_is_too_wrong_is_warned_of(skew: float, backend: str, tmp_path: Path) -> None:
    with host() as place, postgres() as server:
        make_tables(server.url, "lease")
        with workers_on(place, server, tmp_path, 3.0, skew, backend) as workers:
            (worker,) = workers.start()
            workers.wait_for(worker, "' started")
            side = "ahead of" if skew > 0 else "behind"
            assert f"{side} {WARNING} 0.3 s" in workers.logs()


def overlapping(folder: Path) -> list[float]:
    """How long two pieces of work on one job went on at once, by the clock that all hosts here share."""
    work: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in folder.glob("*/work"):
        for line in path.read_text().splitlines():
            number, since, until = line.split()
            work[number].append((float(since), float(until)))
    return [
        round(min(earlier[1], later[1]) - later[0], 3)
        for pieces in work.values()
        for earlier, later in itertools.pairwise(sorted(pieces))
        if later[0] < earlier[1]
    ]


def tell(report: Path | None, figures: object) -> None:
    """Print them, and add them to the report."""
    print(json.dumps(figures))
    if report is not None:
        with report.open("a") as lines:
            lines.write(json.dumps(figures) + "\n")
