"""The testing package looks its names up when they are used; types and run time must agree on them."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path

import inboxkit_testing


def test_every_public_name_resolves_and_comes_from_where_its_type_does() -> None:
    tree = ast.parse(Path(inboxkit_testing.__file__ or "").read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert typed == inboxkit_testing._HOMES
    assert sorted(typed) == sorted(inboxkit_testing.__all__)
    for name in inboxkit_testing.__all__:
        assert getattr(inboxkit_testing, name) is not None
        assert name in dir(inboxkit_testing)


def test_no_module_takes_a_public_names_place() -> None:
    modules = {module.name for module in pkgutil.iter_modules(inboxkit_testing.__path__)}
    assert not modules & set(inboxkit_testing.__all__)
