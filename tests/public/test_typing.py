"""What users write is right for mypy and pyright, and what is wrong is refused by both.

The examples of the documentation are checked as a user's own modules are.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = HERE.parents[2]
FILES = sorted(HERE.glob("*.py"))
EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = [
    file
    for file in sorted(EXAMPLES.glob("*.py"))
    # Django has no types of its own.
    if not file.name.startswith(("test_", "conftest")) and "django" not in file.name
]
TIMEOUT = 300

Places = set[tuple[str, int]]


def expected() -> Places:
    return {
        (file.name, number)
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if line.rstrip().endswith("# error")
    }


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Check all files at once, from the folder where the examples find each other by plain names."""
    return subprocess.run(
        [sys.executable, "-m", *command, *map(str, FILES + PROGRAMS)],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None,
        reason=f"{name} is not installed (it is in the extra dev)",
    )


def compare(found: Places, output: str) -> None:
    """Hold the refused places against the marked ones; the documentation's programs have none."""
    wanted = expected()
    assert len(wanted) > 50
    assert not found - wanted, f"refused, though right: {sorted(found - wanted)}\n{output}"
    assert not wanted - found, f"not refused, though wrong: {sorted(wanted - found)}\n{output}"


@needs("mypy")
def test_mypy_agrees(tmp_path: Path) -> None:
    answer = run(
        "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary"
    )
    places = re.findall(r"^(\S+?):(\d+): error: ", answer.stdout, re.MULTILINE)
    assert places, answer.stdout + answer.stderr
    compare({(Path(file).name, int(line)) for file, line in places}, answer.stdout)


@needs("pyright")
def test_pyright_agrees() -> None:
    answer = run("pyright", "--outputjson", f"--pythonpath={sys.executable}")
    if not answer.stdout.lstrip().startswith("{"):
        pytest.skip(f"pyright could not be run: {answer.stderr[-300:]}")
    found = [
        item
        for item in json.loads(answer.stdout)["generalDiagnostics"]
        if item["severity"] == "error"
    ]
    lines = "\n".join(
        f"{item['file']}:{item['range']['start']['line'] + 1}: {item['message']}" for item in found
    )
    compare(
        {(Path(item["file"]).name, item["range"]["start"]["line"] + 1) for item in found},
        lines,
    )


def test_every_program_of_the_documentation_is_checked() -> None:
    names = {file.stem for file in PROGRAMS}
    assert {"reports", "accounts", "shop", "mailer", "_main"} <= names
