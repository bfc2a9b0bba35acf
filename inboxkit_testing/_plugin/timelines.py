"""Timelines that failing tests leave behind."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inboxkit_testing._plugin.plan import Plan

if TYPE_CHECKING:
    from inboxkit_testing import Timeline

__all__ = ["kept_if_failed"]

_MOST_LINES = 60
_LONGEST_NAME = 150


@contextmanager
def kept_if_failed(folder: Path, plan: Plan) -> Iterator[None]:
    """While a test is called: where it fails, write its last run's page and show the last lines."""
    plan.is_recorded = True
    try:
        yield
    except (pytest.skip.Exception, pytest.exit.Exception):
        raise
    except BaseException:
        if plan.timeline is not None:
            _keep(folder, plan.item, plan.timeline)
        raise


def _keep(folder: Path, item: pytest.Item, timeline: Timeline) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name(item.nodeid)}.html"
    timeline.write_html(path, title=item.nodeid)
    lines = timeline.lines()[-_MOST_LINES:]
    item.add_report_section("call", "inbox timeline", "\n".join([*lines, str(path)]))


def _file_name(nodeid: str) -> str:
    """The test's id, as every file system takes it."""
    name = re.sub(r"[^\w.\-\[\]]+", "-", nodeid)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"
