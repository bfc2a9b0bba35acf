"""Tests of the runtime: each rule on SQLite and Postgres, asyncio and trio, in virtual time."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are imported by path, so their helpers are found by plain names, as the examples' are.
sys.path.insert(0, str(Path(__file__).parent))

from inboxkit_testing import Timeline, recorded


@pytest.fixture
def timeline() -> Iterator[Timeline]:
    """Every event of the test."""
    with recorded() as timeline:
        yield timeline


A_ROW = re.compile(r"\brow (\d|'|UUID\()")


@pytest.fixture(autouse=True)
def _see_records(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """All of INFO; and those about a row say by attributes which, whatever the test is about."""
    caplog.set_level(logging.INFO, logger="inboxkit")
    yield
    unsaid = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "inboxkit" and A_ROW.search(record.getMessage())
        if not {"queue", "row_id", "attempt", "group"} <= vars(record).keys()
    ]
    assert unsaid == []
