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
def kept_if_failed(folder: Path | None, plan: Plan) -> Iterator[None]:
    """While a test is called: where it fails, show the last lines of its last run, and write its page.

    Args:
        folder: Where pages go, and then every run is recorded. None: no page, and shown is what a
            `World` or `inbox_app` has recorded.
        plan: How the test is run.
    """
    from inboxkit_testing import timeline  # noqa: PLC0415 - only when a test runs

    plan.is_recorded = folder is not None
    timeline.forget()
    try:
        yield
    except (pytest.skip.Exception, pytest.exit.Exception):
        raise
    except BaseException:
        found = plan.timeline or timeline.latest()
        if found is not None and (len(found) or folder is not None):
            _show(folder, plan.item, found)
        raise
    finally:
        timeline.forget()


def _show(folder: Path | None, item: pytest.Item, timeline: Timeline) -> None:
    lines = timeline.lines()[-_MOST_LINES:]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{_file_name(item.nodeid)}.html"
        timeline.write_html(path, title=item.nodeid)
        lines.append(str(path))
    item.add_report_section("call", "inbox timeline", "\n".join(lines))


def _file_name(nodeid: str) -> str:
    """The test's id, as every file system takes it."""
    name = re.sub(r"[^\w.\-\[\]]+", "-", nodeid)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"
