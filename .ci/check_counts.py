"""Check what pytest ran: some tests passed, and of the examples as many in each cell as was written down.

A test that silently stops being collected for one database or backend would else go unseen.
Usage: python .ci/check_counts.py JUNIT_XML EXPECTED_TOML
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

CELL = re.compile(r"\[(?:(?P<database>sqlite|postgres)-)?(?P<backend>asyncio|trio)\b")
EXAMPLES = "docs.examples."


def passed(report: Path) -> list[tuple[str, str]]:
    """Module and name of each test that passed."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    not_passed = {"skipped", "failure", "error"}
    return [
        (case.get("classname", ""), case.get("name", ""))
        for case in cases
        if not not_passed & {child.tag for child in case}
    ]


def cell_of(name: str) -> str:
    """``sqlite-asyncio`` and the like; a backend alone where no database is used; else ``plain``."""
    found = CELL.search(name)
    if found is None:
        return "plain"
    return "-".join(part for part in (found["database"], found["backend"]) if part)


def counts(tests: list[tuple[str, str]]) -> dict[str, Counter[str]]:
    """Passed tests of each example's test file, by cell."""
    result: dict[str, Counter[str]] = {}
    for module, name in tests:
        if module.startswith(EXAMPLES):
            file = module.removeprefix(EXAMPLES).split(".")[0]
            result.setdefault(file, Counter())[cell_of(name)] += 1
    return result


def differences(found: dict[str, Counter[str]], expected: dict[str, dict[str, int]]) -> list[str]:
    """One line for each cell that is not as it was written down."""
    lines = []
    for file in sorted(found.keys() | expected.keys()):
        have, want = found.get(file, Counter()), expected.get(file, {})
        for cell in sorted(have.keys() | want.keys()):
            if have[cell] != want.get(cell, 0):
                lines.append(f"{file} {cell}: {have[cell]} passed, {want.get(cell, 0)} expected")
    return lines


def main(report: Path, expected: Path) -> int:
    tests = passed(report)
    found = counts(tests)
    print(
        f"{len(tests)} tests passed, {sum(each.total() for each in found.values())} of them of the examples"
    )
    wrong = differences(found, tomllib.loads(expected.read_text()))
    if not tests:
        wrong.append("no test passed")
    for line in wrong:
        print(f"counts: {line} ({expected})", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
