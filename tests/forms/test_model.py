"""The model shares no code with what it is compared with."""

from __future__ import annotations

import ast
from pathlib import Path

from inboxkit_testing import model

KNOWN = {"inboxkit.abc", "inboxkit.errors", "inboxkit._core.settlement", "inboxkit._core.spec"}
"""The port, the errors, and values that pass through the port."""


def test_the_model_knows_the_port_and_its_values_alone() -> None:
    files = sorted(Path(str(model.__file__)).parent.glob("*.py"))
    assert len(files) == 5
    for file in files:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        imported = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        imported |= {node.module or "" for node in froms if not node.level}
        assert {name for name in imported if name.startswith("inboxkit")} <= KNOWN
        assert {node.module for node in froms if node.level} <= {"form", "held", "lease", "table"}
        assert not any(isinstance(node, ast.Await) for node in nodes)
