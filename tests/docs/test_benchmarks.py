"""The benchmark runs, and counts what it says that it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_a_quick_run_reports_every_figure(tmp_path: Path) -> None:
    written, drawn = tmp_path / "results.json", tmp_path / "targets.svg"
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--quick"]
    command += ["--databases", "sqlite", "--backends", "asyncio"]
    command += ["--only", "throughput", "enqueue", "claims"]
    command += ["--json", str(written), "--svg", str(drawn)]
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK | os.X_OK) else {}
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env={**os.environ, **memory},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(written.read_text())
    assert report["failures"] == {}
    assert all(len(case["samples"]) == 1 for case in report["cases"])
    figures = [value for case in report["cases"] for value in case["samples"][0].values()]
    assert figures
    assert all(value >= 0 for value in figures)
    verdicts = {target["what"]: target["verdict"] for target in report["targets"]}
    assert set(verdicts.values()) <= {"met", "missed"}
    assert (
        f"## Targets: {list(verdicts.values()).count('met')} of {len(verdicts)} met" in ran.stdout
    )
    assert all(f"| {what} |" in ran.stdout for what in verdicts)
    bars = ElementTree.parse(drawn).getroot().findall("{*}rect[@fill]")
    assert len(bars) == len(verdicts)


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    from benchmarks.results import Results  # type: ignore[import-not-found]
    from benchmarks.targets import Target  # type: ignore[import-not-found]

    return Results, Target


def test_a_quotient_is_taken_within_each_round(judging: tuple[Any, Any]) -> None:
    results, target = judging[0](), judging[1]
    for number, (ours, raw) in enumerate([(10.0, 10.0), (60.0, 100.0), (7.0, 10.0)]):
        results.add("ours", number, {"jobs/s": ours})
        results.add("raw", number, {"jobs/s": raw})
    results.add("ours", 3, {"jobs/s": 1.0})  # the other failed there
    at_least = target(what="", case="ours", against="raw", metric="jobs/s", must=0.7)
    assert at_least.found(results).middle == 0.7
    assert (at_least.found(results).least, at_least.found(results).most) == (0.6, 1.0)
    assert at_least.verdict(results) == "met"
    assert results.of("ours", "jobs/s").middle == 8.5


@pytest.mark.parametrize(("must", "verdict"), [(5.0, "met"), (4.9, "missed")])
def test_of_costs_less_is_better(judging: tuple[Any, Any], must: float, verdict: str) -> None:
    results, target = judging[0](), judging[1]
    results.add("ours", 0, {"ms": 5.0})
    at_most = target(what="", case="ours", metric="ms", must=must, less_is_better=True)
    assert at_most.verdict(results) == verdict
    assert at_most.share(results) == must / 5.0


def test_what_was_not_measured_is_not_met(judging: tuple[Any, Any]) -> None:
    results, target = judging[0](), judging[1]
    results.add("ours", 0, {"jobs/s": 5.0})
    alone = target(what="", case="ours", against="raw", metric="jobs/s", must=0.1)
    assert alone.verdict(results) == "not measured"
    assert (
        target(what="", case="x", metric="ms", must=1.0, is_built=False).verdict(results)
        == "not built"
    )
