"""The reference has every public name, once."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MODULES = [
    "inboxkit",
    "inboxkit.abc",
    "inboxkit.broker",
    "inboxkit.codec",
    "inboxkit.contrib.asyncpg",
    "inboxkit.contrib.cron",
    "inboxkit.contrib.opentelemetry",
    "inboxkit.contrib.prometheus",
    "inboxkit.contrib.retention",
    "inboxkit.contrib.sqlalchemy",
    "inboxkit.errors",
    "inboxkit.events",
    "inboxkit.role",
    "inboxkit_testing",
    "inboxkit_testing.conformance",
]
_DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+|py:data):: (\S+)$", re.MULTILINE)


def documented() -> Counter[object]:
    """How often each object is described, by identity."""
    found: Counter[object] = Counter()
    for page in sorted(REFERENCE.glob("*.md")):
        module = ""
        for kind, name in _DIRECTIVE.findall(page.read_text()):
            if kind == "currentmodule":
                module = name
            else:
                found[id(getattr(importlib.import_module(module), name))] += 1
    return found


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_in_the_reference(module: str) -> None:
    found = documented()
    home = importlib.import_module(module)
    values = {name: getattr(home, name) for name in home.__all__}
    missing = [
        name
        for name, value in values.items()
        if not isinstance(value, ModuleType) and not found[id(value)]
    ]
    assert missing == []
