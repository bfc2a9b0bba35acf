"""Time and chance come from the `Database`, and loops from anyio: else a virtual clock would be a lie."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "inboxkit"

CLOCKS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "sleep",
    },
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
LOOPS = {"asyncio", "trio"}


def sources(*without: str) -> list[Path]:
    paths = (path for path in sorted(LIBRARY.rglob("*.py")))
    return [path for path in paths if not path.relative_to(LIBRARY).as_posix().startswith(without)]


def imports_of(tree: ast.AST) -> dict[str, str]:
    """Local name to the full name of what was imported under it."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def clocks_read(tree: ast.AST) -> Iterator[tuple[int, str]]:
    names = imports_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            full = names.get(owner.split(".")[0], "")
            kind = (full + "." + owner if "." in owner else full).rpartition(".")[2]
            if node.attr in CLOCKS.get(kind, ()):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Name):
            module, _, function = names.get(node.id, "").rpartition(".")
            if module == "time" and function in CLOCKS["time"]:
                yield node.lineno, node.id


def dice_thrown(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Uses of the process's own source of chance, and sources without a seed."""
    names = imports_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if names.get(node.value.id) == "random" and node.attr not in ("Random", "SystemRandom"):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Name):
            module, _, function = names.get(node.id, "").rpartition(".")
            if module == "random" and function != "Random":
                yield node.lineno, node.id
        elif isinstance(node, ast.Call) and not node.args and not node.keywords:
            called = ast.unparse(node.func)
            if called in ("random.Random", "Random"):
                yield node.lineno, ast.unparse(node)


def loops_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [node.module or ""]
        else:
            continue
        for name in found:
            if name.split(".")[0] in LOOPS:
                yield node.lineno, name


@pytest.mark.parametrize(
    ("rule", "without"),
    [
        pytest.param(clocks_read, ("clock.py",), id="clocks are read in clock.py"),
        pytest.param(dice_thrown, ("database.py",), id="chance belongs to the database"),
        pytest.param(loops_named, ("_db/",), id="drivers alone name a loop"),
    ],
)
def test_the_library_keeps_the_rule(rule: object, without: tuple[str, ...]) -> None:
    assert callable(rule)
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sources(*without)
        for line, text in rule(ast.parse(path.read_text()))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (clocks_read, "import time\ntime.monotonic()"),
        (clocks_read, "from time import time as when\nwhen()"),
        (clocks_read, "from datetime import datetime, UTC\ndatetime.now(UTC)"),
        (clocks_read, "import datetime\ndatetime.datetime.utcnow()"),
        (clocks_read, "import datetime as dt\ndt.date.today()"),
        (dice_thrown, "import random\nrandom.uniform(0, 1)"),
        (dice_thrown, "from random import uniform\nuniform(0, 1)"),
        (dice_thrown, "from random import Random\nRandom()"),
        (loops_named, "def lazily():\n    import asyncio"),
        (loops_named, "from trio.lowlevel import current_task"),
    ],
)
def test_a_rule_sees_what_breaks_it(rule: object, source: str) -> None:
    assert callable(rule)
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "def pause(clock):\n    return clock.now(), clock.monotonic(), clock.sleep(1)",
        "from random import Random\ndef jitter(random: Random):\n    return random.uniform(0, 1)",
        "import random\nsource = random.Random(7)",
        "from datetime import datetime, time\ndatetime.fromtimestamp(0)\ntime(12, 30)",
    ],
)
def test_what_is_passed_in_is_fine(source: str) -> None:
    tree = ast.parse(source)
    assert not [*clocks_read(tree), *dice_thrown(tree), *loops_named(tree)]


def sets_in_turn(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Loops over attributes that are kept as sets, whose order is another in each process."""
    kept = {
        ast.unparse(node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and ast.unparse(node.annotation).startswith(("set[", "frozenset[", "WeakSet["))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            found: ast.AST = node.iter
        elif isinstance(node, ast.Starred):
            found = node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("list", "tuple", "iter"):
            found = node.args[0] if node.args else node
        else:
            continue
        if (text := ast.unparse(found)) in kept:
            yield getattr(found, "lineno", 0), text


def test_nothing_is_done_in_the_order_of_a_set() -> None:
    """A seed would not repeat it."""
    found = [
        f"{path.name}:{line}: {what}"
        for path in sources()
        for line, what in sets_in_turn(ast.parse(path.read_text()))
    ]
    assert found == []
    wrong = "self._a: set[str] = set()\nfor a in self._a: ...\nb = [*self._a]\nc = tuple(self._a)\n"
    assert sorted(line for line, _ in sets_in_turn(ast.parse(wrong))) == [2, 3, 4]


def kinds_compared(tree: ast.AST) -> Iterator[int]:
    """Lines where the kind of a test's database is compared with one of the two kinds of SQLite."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = {ast.unparse(side) for side in (node.left, *node.comparators)}
        if "inbox_db" in sides and sides & {"'sqlite'", "'sqlite-inloop'"}:
            yield node.lineno


def test_sqlite_in_the_loop_is_taken_for_sqlite() -> None:
    """``--inbox-db=sqlite-inloop`` is the same SQL: who must know asks for the dialect, or how it begins."""
    folders = [ROOT / name for name in ("tests", "docs", "property_tests")]
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        if "inbox_db" in (text := path.read_text())
        for line in kinds_compared(ast.parse(text))
    ]
    assert found == []
    wrong = "inbox_db == 'sqlite'\n'sqlite-inloop' != inbox_db\ninbox_db.startswith('sqlite')\n"
    assert list(kinds_compared(ast.parse(wrong))) == [1, 2]
