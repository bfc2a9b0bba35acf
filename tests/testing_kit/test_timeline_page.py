"""A timeline as an HTML page, and the option that writes one for a failing test."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from inboxkit import events
from inboxkit_testing import Timeline
from inboxkit_testing.marks import Began, Crashed, Cut, Ended, Healed, Note
from inboxkit_testing.page import render

START = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
HOSTILE = "</script><script>alert(1)</script>"


class Page(HTMLParser):
    """The page's elements, by name, and the texts of its scripts and headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found


def told(rows: int, *, id: Any = None) -> Timeline:
    """One row that crashes under "a" and is finished by "b", and others that "b" handles at once."""
    timeline = Timeline()

    def add(kind: Any, after: float, who: str, row: Any = None, **fields: Any) -> None:
        at = START + timedelta(seconds=after)
        known = {"at": at, "instance": who, "queue": "jobs" if row is not None else ""}
        timeline.add(kind(**known, **({"id": row} if row is not None else {}), **fields))

    def handled(row: Any, after: float, attempt: int = 1) -> None:
        until = START + timedelta(seconds=after) + LEASE
        of = {"attempt": attempt, "group": None, "key": None}
        add(events.Claimed, after, "b", row, attempt=attempt, locked_until=until)
        add(Began, after, "b", row, priority=None, due=None, **of)
        add(Ended, after + 1, "b", row, outcome="ack", **of)
        add(events.Finished, after + 1, "b", row, attempt=attempt, outcome="ack")

    first = 0 if id is None else id
    for name in ("a", "b"):
        add(events.Started, 0, name)
    add(events.Published, 1, "world", first)
    add(events.Claimed, 2, "a", first, attempt=1, locked_until=START + timedelta(seconds=32))
    add(Began, 2, "a", first, attempt=1, group=None, key=None, priority=None, due=None)
    add(Crashed, 4, "a", text="crashed")
    add(Cut, 5, "b", text="cut off")
    add(Healed, 7, "b", text="reaches its database")
    handled(first, 32, 2)
    for n in range(1, rows):
        handled(n, 40 + n / 10)
    add(Note, 100_000, "b", text=HOSTILE)
    return timeline


def test_the_page_needs_nothing_else_and_holds_the_story() -> None:
    page = Page(text := render(told(3), title="test_x[a<b]"))
    assert page.texts["h1"] == ["test_x[a<b]"]
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object")]
    assert not [a for _, a in page.elements if "src" in a or "href" in a or "onclick" in a]
    assert not re.search(r"https?:|@import|url\(|fetch\(|import\(", text.replace(HOSTILE, ""))
    assert "prefers-color-scheme: dark" in text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in (
        page.elements
    )
    data = page.data
    assert data["start"] == "2030-01-01T00:00:00+00:00"
    assert data["instances"] == ["a", "b", "world"]
    assert data["rows"] == [["jobs", "0"], ["jobs", "1"], ["jobs", "2"]]
    a, b = 0, 1
    bars = [tuple(bar) for bar in data["bars"]]
    for bar in (
        ("up", a, -1, 0, 4),
        ("up", b, -1, 0, 100_000),
        ("cut", b, -1, 5, 7),
        ("hold", a, 0, 2, 4),
        ("run", a, 0, 2, 4),
        ("rest", a, 0, 4, 32),
        ("hold", b, 0, 32, 33),
        ("run", b, 0, 32, 33),
    ):
        assert bar in bars
    assert [3, b, -1] not in [event[:3] for event in data["events"]]
    assert [4, a, -1, "Crashed", "crashed"] in data["events"]
    assert "claimed, attempt 2, lease for 00:00:30" in page.texts["pre"][0]


def test_nothing_in_it_can_end_its_script() -> None:
    page = Page(render(told(1, id=HOSTILE), title=HOSTILE))
    assert page.data["rows"] == [["jobs", HOSTILE]]
    assert page.data["events"][-1][-1] == HOSTILE
    assert [tag for tag, _ in page.elements].count("script") == 2


def test_an_empty_timeline_is_a_page_too() -> None:
    data = Page(render(Timeline())).data
    assert data == {"start": "", "instances": [], "rows": [], "events": [], "bars": []}


def test_a_long_one_is_listed_in_part_without_scripts() -> None:
    page = Page(render(told(200)))
    assert len(page.data["rows"]) == 200
    lines = page.texts["pre"][0].splitlines()
    assert len(lines) == 501
    assert re.fullmatch("… and [0-9]+ more", lines[-1])


FAILING = """
from datetime import timedelta
import pytest
from hypothesis import Phase, given, settings, strategies as st
from inboxkit import Broker, Inbox, InboxQueue, Service, role, subscriber
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect

class Jobs(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    locked_until: object = role.locked_until()
    payload: bytes = role.payload()

JOBS = InboxQueue(Jobs, "jobs", bytes)

@subscriber(JOBS)
async def handle(message: bytes) -> None: ...

async def create(db):
    for statement in create_table(get_dialect(db.dialect), Jobs.spec):
        await db.execute(statement)

def service(database):
    app = Service("service", Broker(database))
    app.on_startup(create)
    app.include(handle)
    return app

@pytest.mark.parametrize("name", ["a/b"])
async def test_fails(inbox_world, name):
    world = await inbox_world(service)
    await world.start("one")
    await world.publish(JOBS, b"x")
    await world.drain()
    assert not "here"

@settings(max_examples=9, derandomize=True, database=None, phases=[Phase.generate])
@given(n=st.integers(0, 3))
async def test_given(inbox_app, n):
    app = await inbox_app(service)
    await app.publish(JOBS, b"x")
    assert n < 2

async def test_passes(inbox_app):
    await inbox_app(service)

async def test_skips(virtual_clock):
    pytest.skip("today")
"""


def test_failing_tests_leave_their_timelines(pytester: pytest.Pytester) -> None:
    source = FAILING.replace("locked_until: object", "locked_until: datetime | None")
    pytester.makepyfile(test_it="from datetime import datetime\n" + source)
    result = pytester.runpytest_inprocess(
        *("-p", "no:asyncio", "-p", "no:trio", "-p", "no:xdist", "-p", "no:cacheprovider"),
        *("--inbox-backend=asyncio", "--inbox-db=sqlite-inloop", "--inbox-timeline=deep/folder"),
    )
    result.assert_outcomes(failed=2, passed=1, skipped=1)
    result.stdout.no_fnmatch_line("DEBUG *")  # captured logs have what they had without it
    result.stdout.fnmatch_lines(["*inbox timeline*", "*one/jobs*acked", "*test_fails*.html"])
    written = sorted(path.name for path in pytester.path.joinpath("deep/folder").iterdir())
    assert written == [
        "test_it.py-test_fails[sqlite-inloop-asyncio-a-b].html",
        "test_it.py-test_given[sqlite-inloop-asyncio].html",
    ]
    page = Page((pytester.path / "deep/folder" / written[0]).read_text())
    assert page.texts["h1"] == ["test_it.py::test_fails[sqlite-inloop-asyncio-a/b]"]
    assert {"one", "world"} <= set(page.data["instances"])
    # Without the option there is no page, and the lines are shown all the same.
    again = pytester.runpytest_inprocess(
        *("-p", "no:asyncio", "-p", "no:trio", "-p", "no:xdist", "-p", "no:cacheprovider"),
        *("--inbox-backend=asyncio", "--inbox-db=sqlite-inloop", "-k", "fails or given"),
    )
    again.assert_outcomes(failed=2, deselected=2)
    again.stdout.fnmatch_lines(["*inbox timeline*", "*one/jobs*acked", "*inbox timeline*"])
    # Of a test under @given it is the last example's alone.
    last = Page((pytester.path / "deep/folder" / written[1]).read_text()).data
    assert [event[3] for event in last["events"]].count("Published") == 1
