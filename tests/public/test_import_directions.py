"""Imports go inwards only; what is needed for annotations alone (`if TYPE_CHECKING:`) does not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

KNOWS = {
    "_core": {"errors"},
    "_sql": {"_core", "errors"},
    "abc": {"_core", "_sql.statement"},
    "errors": set[str](),
    "events": {"_core", "errors"},
    "clock": {"abc"},
    "_db": {"_core", "_sql", "abc", "errors"},
    "_forms": {"_core", "_sql", "abc", "errors"},
    "_runtime": {"_core", "abc", "errors", "events"},
}
"""What each part may import beside itself; parts that are not named compose the others."""


def modules(package: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        yield path, name.removesuffix(".__init__")


def imported(path: Path, module: str) -> Iterator[tuple[int, str, bool]]:
    """Line, full name and laziness of each import that happens at run time."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def walk(node: ast.AST, lazy: bool) -> Iterator[tuple[int, str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from walk(other, lazy)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield child.lineno, alias.name, lazy
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, *([base] if base else [])])
                for alias in child.names:
                    yield child.lineno, f"{base}.{alias.name}", lazy
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from walk(child, lazy or inside)

    yield from walk(ast.parse(path.read_text()), False)


def part_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def may_import(part: str, name: str) -> bool:
    inside = name.removeprefix("inboxkit.")
    return any(inside == known or inside.startswith(f"{known}.") for known in KNOWS[part] | {part})


@pytest.mark.parametrize("part", KNOWS)
def test_a_part_knows_only_what_lies_inwards(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path, module in modules("inboxkit")
        if part_of(module) == part
        for line, name, _ in imported(path, module)
        if name.startswith("inboxkit.") and not may_import(part, name)
    ]
    assert wrong == []


def test_the_library_imports_the_testing_package_only_when_the_demo_runs() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path, module in modules("inboxkit")
        for line, name, lazy in imported(path, module)
        if (name.startswith("inboxkit_testing") and not module.startswith("inboxkit._cli.demo"))
        # and the demo's modules come in only when the command runs
        or (
            name.startswith("inboxkit._cli.demo")
            and not (lazy or module.startswith("inboxkit._cli.demo"))
        )
    ]
    assert wrong == []


def test_the_rule_sees_relative_and_lazy_imports_and_not_those_of_types(tmp_path: Path) -> None:
    path = tmp_path / "claims.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "from .._sql import table\n"
        "from . import fences\n"
        "if TYPE_CHECKING:\n    from inboxkit.database import Database\n"
        "def lazily():\n    import inboxkit_testing.clock\n"
    )
    assert list(imported(path, "inboxkit._forms.claims")) == [
        (1, "typing.TYPE_CHECKING", False),
        (2, "inboxkit._sql.table", False),
        (3, "inboxkit._forms.fences", False),
        (7, "inboxkit_testing.clock", True),
    ]
    assert may_import("abc", "inboxkit._sql.statement.Answer")
    assert not may_import("abc", "inboxkit._sql.table.Table")
    assert not may_import("_runtime", "inboxkit._sql.statement.Answer")
