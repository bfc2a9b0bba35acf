"""The picture of a timeline is of a run that anybody can repeat."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

from inboxkit_testing import VirtualClock, run

DOCS = Path(__file__).parents[2] / "docs"


def test_what_is_drawn_happens(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("draw_timeline", DOCS / "draw_timeline.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    clock = VirtualClock()
    page = run(drawing.happen, f"sqlite:///{tmp_path}/reports.db", clock, clock=clock)
    assert "A crash in the middle of a report" in page
    assert "crashed" in page
    head = (DOCS / "timeline.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert ",".join(map(str, struct.unpack(">II", head[16:24]))) == drawing.SIZE
