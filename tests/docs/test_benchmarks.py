"""The benchmark runs, and counts what it says that it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_a_quick_run_reports_every_figure(tmp_path: Path) -> None:
    written, drawn = tmp_path / "results.json", tmp_path / "targets.svg"
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--quick"]
    command += ["--databases", "sqlite", "--backends", "asyncio"]
    command += ["--only", "throughput", "enqueue", "claims", "start"]
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
