"""What the guides to recurring and unique jobs, retention, SQLAlchemy and Django show of the examples is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
INCLUDED = re.compile(r"^```\{literalinclude\} (\S+)\n:pyobject: (\w+)\n```$", re.MULTILINE)
PAGES = ("recurring", "unique", "retention", "sqlalchemy", "django")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_guide_shows_of_an_example_is_there(page: str) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    included = INCLUDED.findall(text)
    assert text.count("literalinclude") == len(included)
    for file, name in included:
        source = (GUIDES / file).read_text()
        assert re.search(rf"^(async def|def|class) {name}\b", source, re.MULTILINE), name
