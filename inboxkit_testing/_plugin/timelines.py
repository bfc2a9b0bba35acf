"""What failing tests leave behind: the timeline, and with a seed the schedule."""

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

__all__ = ["told_if_failed"]

_MOST_LINES = 60
_MOST_TURNS = 200
_LONGEST_NAME = 150


@contextmanager
def told_if_failed(folder: Path | None, plan: Plan) -> Iterator[None]:
    """While a test is called: where it fails, show the last lines of its last run, and write its page.

    With a seed, show what the seed has chosen, and how to run it again.

    Args:
        folder: Where pages go, and then every run is recorded. None: no page, and shown is what a
            seed's run, a `World` or `inbox_app` has recorded.
        plan: The test's.
    """
    from inboxkit_testing import timeline  # noqa: PLC0415 - only when a test runs

    plan.is_recorded = folder is not None or plan.seed is not None
    timeline.forget()
    try:
        yield
    except (pytest.skip.Exception, pytest.exit.Exception):
        raise
    except BaseException as error:
        if plan.seed is not None:
            _tell_schedule(plan, plan.seed, error)
        found = plan.timeline or timeline.latest()
        if found is not None and (len(found) or folder is not None):
            _tell_timeline(folder, plan.item, found)
        raise
    finally:
        timeline.forget()


def _tell_schedule(plan: Plan, seed: int, error: BaseException) -> None:
    error.add_note(
        f"(with the seed {seed}: to run it again, --inbox-seed={seed} or @pytest.mark.inbox(seed={seed}))"
    )
    gate = plan.clock.gate if plan.clock is not None else None
    turns = gate.lines() if gate is not None else []
    first = f"seed {seed}: {len(turns)} statements took turns"
    if len(turns) > _MOST_TURNS:
        first += f", the last {_MOST_TURNS}:"
    elif turns:
        first += ":"
    text = "\n".join([first, *turns[-_MOST_TURNS:]])
    plan.item.add_report_section("call", "inbox schedule", text)


def _tell_timeline(folder: Path | None, item: pytest.Item, timeline: Timeline) -> None:
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
