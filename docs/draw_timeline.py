"""Draws docs/timeline.png: a World's timeline page, as Chromium shows it.

Usage: python docs/draw_timeline.py [CHROMIUM]; the default is /usr/bin/chromium.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from inboxkit_testing import VirtualClock, World, open_test_database, run
from inboxkit_testing.page import render

HERE = Path(__file__).parent
SIZE = "1200,300"


async def happen(url: str, clock: VirtualClock) -> str:
    """A crash in the middle of a render, and how the other instance takes it over; as a page."""
    sys.path.insert(0, str(HERE / "examples"))
    reports = importlib.import_module("reports")
    async with (
        open_test_database(url, clock=clock) as database,
        World(reports.service, database) as world,
    ):
        await world.start("a")
        await world.publish(reports.REPORTS, reports.Report(1, pages=9_000), by="a")
        await world.advance(timedelta(seconds=20))
        await world.start("b")
        await world.publish(reports.REPORTS, reports.Report(2, pages=4_000), by="b")
        await world.advance(timedelta(seconds=15))
        await world.crash("a")
        await world.drain()
        world.history.check_all()
    return render(world.timeline, title="A crash in the middle of a report")


def main(chromium: str) -> None:
    clock = VirtualClock()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "timeline.html"
        page.write_text(run(happen, f"sqlite:///{folder}/reports.db", clock, clock=clock))
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}")
        picture = f"--screenshot={HERE / 'timeline.png'}"
        subprocess.run([chromium, *options, picture, page.as_uri()], check=True)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["/usr/bin/chromium"]))
