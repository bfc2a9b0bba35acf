"""The check of what a run of the tests really ran."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "check_counts.py"
REPORT = """<testsuites><testsuite>
<testcase classname="docs.examples.test_shop" name="test_one[sqlite-asyncio]"/>
<testcase classname="docs.examples.test_shop.TestMore" name="test_two[postgres-trio-3]"/>
<testcase classname="docs.examples.test_shop" name="test_two[postgres-asyncio]"><skipped/></testcase>
<testcase classname="docs.examples.test_shop" name="test_three[trio]"/>
<testcase classname="docs.examples.test_shop" name="test_four"/>
<testcase classname="tests.core.test_lease" name="test_five"/>
</testsuite></testsuites>"""
EXPECTED = "[test_shop]\nsqlite-asyncio = 1\npostgres-trio = 1\ntrio = 1\nplain = 1\n"


@pytest.fixture
def check(tmp_path: Path) -> Any:
    script = runpy.run_path(str(SCRIPT))

    def check(report: str, expected: str) -> int:
        (tmp_path / "report.xml").write_text(report)
        (tmp_path / "expected.toml").write_text(expected)
        result: int = script["main"](tmp_path / "report.xml", tmp_path / "expected.toml")
        return result

    return check


def test_what_was_written_down_passes(check: Any) -> None:
    assert check(REPORT, EXPECTED) == 0


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (EXPECTED + "postgres-asyncio = 1\n", "postgres-asyncio: 0 passed, 1 expected"),
        (EXPECTED.replace("plain = 1", "plain = 2"), "plain: 1 passed, 2 expected"),
        (EXPECTED.replace("postgres-trio = 1\n", ""), "postgres-trio: 1 passed, 0 expected"),
        (EXPECTED + "[test_mailer]\nplain = 1\n", "test_mailer plain: 0 passed, 1 expected"),
        ("", "test_shop sqlite-asyncio: 1 passed, 0 expected"),
    ],
)
def test_any_difference_fails(
    check: Any, capsys: pytest.CaptureFixture[str], expected: str, message: str
) -> None:
    assert check(REPORT, expected) == 1
    assert message in capsys.readouterr().err


def test_a_run_without_tests_fails(check: Any) -> None:
    assert check("<testsuites/>", "") == 1
