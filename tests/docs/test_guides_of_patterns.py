"""The guides to recurring and unique jobs, retention, SQLAlchemy and Django: their Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^(?:```python|<!-- test)\n(.*?)^(?:```|-->)$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"^```\{literalinclude\} (\S+)\n:pyobject: (\w+)\n```$", re.MULTILINE)
PAGES = ("recurring", "unique", "retention", "sqlalchemy", "django")


@pytest.mark.parametrize("page", ["recurring", "retention", "sqlalchemy"])
def test_the_python_of_a_guide_runs(page: str, pytester: pytest.Pytester) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    (pytester.path / f"test_{page}_page.py").write_text("\n\n".join(BLOCK.findall(text)))
    options = ("-p", "no:asyncio", "-p", "no:trio", "-p", "no:xdist", "-p", "no:cacheprovider")
    result = pytester.runpytest_inprocess(
        *options, "-W", "error", "-q", "--import-mode=importlib", "--inbox-db=sqlite"
    )
    assert set(result.parseoutcomes()) == {"passed"}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_guide_shows_of_an_example_is_there(page: str) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    included = INCLUDED.findall(text)
    assert text.count("literalinclude") == len(included)
    for file, name in included:
        source = (GUIDES / file).read_text()
        assert re.search(rf"^(async def|def|class) {name}\b", source, re.MULTILINE), name
