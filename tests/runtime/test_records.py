"""Records of the log about a row name it by attributes: `queue`, `row_id`, `attempt`, `group`."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_kit import HOUR, JOBS, SECOND, Handler, Job, Work, create, serve

from inboxkit import Database, drop, events, retry_after
from inboxkit_testing import VirtualClock

LIBRARY = Path(__file__).parents[2] / "inboxkit"

OUTPUTS = {"log", "trouble", "outage", "unsettled", "debug", "info", "warning", "error", "critical"}
A_ROW = re.compile(r"\brow (\{|%r)")


def lines_about_rows(source: str) -> Iterator[tuple[int, bool]]:
    """Line and whether it says which row, of each call that writes a text about one."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        texts = " ".join(ast.unparse(one) for one in node.args)
        if name not in OUTPUTS or not A_ROW.search(texts):
            continue
        said = {keyword.arg for keyword in node.keywords}
        yield node.lineno, bool(said & {"held", "extra"}) or name == "unsettled"


def test_every_line_of_the_source_that_is_about_a_row_says_which() -> None:
    found = [
        (f"{path.relative_to(LIBRARY)}:{line}", is_said)
        for path in sorted(LIBRARY.rglob("*.py"))
        if "_cli" not in path.parts
        for line, is_said in lines_about_rows(path.read_text())
    ]
    assert len(found) >= 8
    assert [line for line, is_said in found if not is_said] == []


def test_the_rule_sees_a_line_that_does_not() -> None:
    assert list(lines_about_rows("self._report.trouble(f'row {held.id!r} is late')")) == [
        (1, False)
    ]
    assert list(lines_about_rows("log(10, 'row %r', 1, extra={})")) == [(1, True)]


def seen(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """What each record about a row says of it, with its event's kind."""
    return [
        (
            type(getattr(record, "event", None)).__name__,
            record.queue,  # type: ignore[attr-defined]
            record.row_id,  # type: ignore[attr-defined]
            record.attempt,  # type: ignore[attr-defined]
            record.group,  # type: ignore[attr-defined]
        )
        for record in caplog.records
        if hasattr(record, "row_id")
    ]


async def test_each_kind_of_event(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="inboxkit")
    await create(inbox_database, Job)
    handler = Handler(
        by={1: 20, 2: drop("no"), 3: ValueError("no"), 4: retry_after(HOUR), 5: 100_000}
    )
    app = serve(inbox_database, JOBS, handler, workers=9, max_attempts=3, dead_letter="jobs.dead")
    async with app.running():
        for n in (1, 2, 3, 4, 5):
            await app.broker.publish(JOBS, Work(n))
        await virtual_clock.advance(40 * SECOND)
        (stuck,) = [d for d in handler.deliveries if d.message.n == 5]
        await inbox_database.execute(
            f"UPDATE jobs SET locked_until = NULL, attempt = 7 WHERE id = {stuck.id}"
        )
        await virtual_clock.advance(20 * SECOND)
    kinds = {one[0] for one in seen(caplog)}
    assert kinds >= {
        "Published",
        "Claimed",
        "Renewed",
        "Finished",
        "Failed",
        "Retried",
        "DeadLettered",
        "Lost",
    }
    assert {one[1] for one in seen(caplog)} == {one[4] for one in seen(caplog)} == {"jobs"}
    for record in caplog.records:
        event = getattr(record, "event", None)
        if isinstance(event, events.RowEvent):
            known = (event.queue, event.id, event.attempt, event.group)
            attributes = vars(record)
            assert known == tuple(attributes[n] for n in ("queue", "row_id", "attempt", "group"))
            assert repr(event.id) in record.getMessage()


@pytest.mark.parametrize("inbox_db", ["sqlite"])
async def test_a_row_that_is_set_aside(
    inbox_database: Database, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await create(inbox_database, Job)
    await inbox_database.execute(
        "INSERT INTO jobs (id, name, priority, retry_after, attempt, payload) "
        "VALUES (7, 'jobs', 5, '2029-01-01 00:00', 1, x'7b7d')"
    )
    async with serve(inbox_database, JOBS, Handler()).running():
        await virtual_clock.settle()
    assert seen(caplog) == [("NoneType", "jobs", 7, None, "jobs")]
    assert "set aside" in caplog.text
