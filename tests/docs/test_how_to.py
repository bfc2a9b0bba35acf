"""The guides' blocks run, in order, as one program; and the dashboard shows what there is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, role, subscriber
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit_testing import VirtualClock

pytest.importorskip("opentelemetry.sdk", reason="it is in the extra all")
pytest.importorskip("prometheus_client", reason="it is the extra prometheus")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inboxkit.contrib.prometheus import PrometheusMetrics

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "how-to" / "telemetry.md"
DASHBOARD = DOCS / "how-to" / "telemetry-dashboard.json"
METRIC = re.compile(r"\b(inboxkit_[a-z_]+)(?:\{([^}]*)\})?")
A_LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


class Job(Inbox, table="dashboard_jobs"):
    id: int = role.id(generated=True)
    name: str = role.group()
    retry_after: datetime | None = role.retry_after(default=None)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


JOBS = InboxQueue(Job, "jobs", str)


async def work(message: str) -> None: ...


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_guide_to_telemetry_runs(backend: str, tmp_path: Path) -> None:
    assert len(blocks(GUIDE)) == 6
    program = "\n".join([*blocks(GUIDE), f"anyio.run(main, backend={backend!r})"])
    environment = {**os.environ, "PYTHONPATH": str(DOCS / "examples")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "2.0 rows claimed" in lines
    assert "WARNING pictures 2 1 pictures" in lines
    assert "'process pictures', 'publish pictures'" in lines[-1]


async def exported(database: Database, clock: VirtualClock) -> dict[str, set[str]]:
    """The labels of each sample that a real scrape of a service has, by its name. On PostgreSQL, which
    alone has snapshots."""
    registry = CollectorRegistry()
    app = Service("thumbnails", Broker(database))
    for statement in create_table(get_dialect(database.dialect), Job.spec):
        await database.execute(statement)
    app.include(subscriber(JOBS)(work), max_attempts=3, dead_letter="jobs.dead")
    PrometheusMetrics(registry).observe(app)
    found: dict[str, set[str]] = {}
    async with app.running():
        await clock.settle()
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    """All queries of the dashboard, of its panels and its variables."""
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.extend(
                value
                for key, value in node.items()
                if key in ("expr", "definition") and isinstance(value, str)
            )
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(DASHBOARD.read_text()))
    return found


@pytest.mark.parametrize("inbox_db", ["postgres"])
async def test_every_expression_of_the_dashboard_uses_what_is_exported(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    labels_of = await exported(inbox_database, virtual_clock)
    found = expressions()
    assert len(found) >= 12
    for expression in found:
        used = METRIC.findall(expression)
        assert used, expression
        known = {label for name, _ in used for label in labels_of[name]}
        for name, matchers in used:
            assert set(A_LABEL.findall(matchers)) <= labels_of[name], expression
        for labels in GROUPING.findall(expression):
            assert {label.strip() for label in labels.split(",")} <= known, expression


@pytest.mark.parametrize("inbox_db", ["postgres"])
async def test_every_metric_of_the_exporter_is_in_the_dashboard_and_in_the_guide(
    inbox_database: Database, virtual_clock: VirtualClock
) -> None:
    names = await exported(inbox_database, virtual_clock)
    shown = {name for one in expressions() for name, _ in METRIC.findall(one)}
    told = set(re.findall(r"`(inboxkit_[a-z_]+)`", GUIDE.read_text()))
    for name in names:
        if name.endswith("_created"):
            continue
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert {name, base} & told, name
        assert any(one.startswith(base) for one in shown), name
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} >= told
