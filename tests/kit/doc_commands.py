"""Commands of the documentation, run as they stand there, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from doc_in_process import KNOWN, run_here
from doc_pages import ROOT

_OURS = {"inboxkit", "pytest"}
_TIMEOUT = 60
_CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\+00:00)?"), "<time>"),
    (re.compile(r"\b\d+\.\d+ ?s\b"), "<seconds>"),
]
"""What is another one in each run."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a shell, and what is printed below it."""

    text: str
    output: str | None = None
    """None: the page does not say. ``…`` stands for anything."""
    interrupted: bool = False
    """Whether Ctrl-C is pressed when all before ``^C`` has been printed."""

    @property
    def before(self) -> list[str]:
        """The lines before ``^C``."""
        return (self.output or "").partition("^C")[0].splitlines()


def commands(language: str, text: str) -> Iterator[Command]:
    """The commands of a block: of ``sh`` each line, of ``console`` those behind ``$``."""
    text = text.replace("\\\n", " ")
    if language == "sh":
        yield from (Command(line) for line in text.splitlines() if line.strip())
        return
    told: str | None = None
    for is_command, lines in groupby(text.splitlines(), lambda line: line.startswith("$ ")):
        if is_command:
            *silent, last = [line.removeprefix("$ ") for line in lines]
            for line in [] if told is None else [told]:
                yield Command(line, "")
            yield from (Command(line, "") for line in silent)
            told = last
            continue
        output = "\n".join(lines)
        if told is None:
            raise ValueError(f"output without a command: {output!r}")
        yield Command(told, output, "^C" in output.splitlines())
        told = None
    if told is not None:
        yield Command(told, "")


class Shell:
    """Runs commands in a folder, as a reader would who follows a page.

    Args:
        folder: Where.
        environment: Beside that of this process.
        elsewhere: Commands that other tests run: by their text, which ones.
    """

    def __init__(
        self, folder: Path, environment: dict[str, str], elsewhere: dict[str, str]
    ) -> None:
        self.folder = folder
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name != "INBOXKIT_URL" and not name.startswith("PYTEST")
        }
        self._environment = {
            **inherited,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "80",
            "PYTEST_ADDOPTS": "-p no:asyncio -p no:trio -p no:cacheprovider",
            **environment,
        }
        self._elsewhere = elsewhere

    def run(self, command: Command) -> None:
        """Run a line; see that it ends well, and has printed what the page says."""
        for part in command.text.split(" && "):
            argv = shlex.split(part, comments=True)
            while argv and re.fullmatch(r"\w+=.*", argv[0]) and argv[0] != part:
                name, _, value = argv.pop(0).partition("=")
                self._environment[name] = value
            self._run(part, argv, command)

    def _run(self, text: str, argv: list[str], command: Command) -> None:
        name = argv[0].removeprefix(".venv/bin/") if argv else ""
        match name, argv[1:]:
            case (("python3" | "python"), ["-m", "venv", *_]):
                return
            case "pip", ["install", *what]:
                check_requirements(what)
            case "cd", [folder]:
                self.folder = (self.folder / folder).resolve(strict=True)
            case "export", [setting]:
                key, _, value = setting.partition("=")
                self._environment[key] = value
            case "pytest", arguments if any((ROOT / one).is_dir() for one in arguments):
                self._check_paths(arguments)  # this project's own tests
            case _, arguments if " ".join([name, *arguments]) in self._elsewhere:
                return
            case _, arguments if name in KNOWN and arguments[:1] != ["run"]:
                status, printed = run_here(name, arguments, self.folder, self._environment)
                self._judge(command, status, printed)
            case _, arguments if name in _OURS:
                self._start([sys.executable, "-m", name, *arguments], command)
            case "python", arguments:
                self._start([sys.executable, *arguments], command)
            case _:
                raise AssertionError(f"nobody knows how to run {text!r}")

    @staticmethod
    def _check_paths(arguments: list[str]) -> None:
        paths = [one for one in arguments if not one.startswith("-")]
        missing = [one for one in paths if not (ROOT / one).exists()]
        assert not missing, f"pytest: this project has no {missing}"

    def _start(self, argv: list[str], command: Command) -> None:
        with subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            printed = ""
            if command.interrupted:
                for line in process.stdout:
                    printed += line
                    if matches("\n".join(command.before), printed):
                        break
                process.send_signal(signal.SIGINT)
                printed += "^C\n"
            rest, _ = process.communicate(timeout=_TIMEOUT)
        self._judge(command, process.returncode, printed + rest)

    @staticmethod
    def _judge(command: Command, status: int, printed: str) -> None:
        assert status == 0, f"{command.text!r} ended with {status}:\n{printed}"
        if command.output is not None and not matches(command.output, printed):
            wanted = f"the page says of {command.text!r}:\n{command.output}"
            raise AssertionError(f"{wanted}\n\nand this was printed:\n{printed}")


def matches(told: str, printed: str) -> bool:
    """Whether a program printed what is told; times and blanks at ends of lines are as they may be."""
    pattern = re.escape(_plain(told)).replace("…", ".*?")
    return re.fullmatch(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    for changing, name in _CHANGING:
        text = changing.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def check_requirements(what: list[str]) -> None:
    """See that extras and files of a ``pip install`` exist, and that we know the other projects."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    known = {re.split(r"[^\w-]", needed)[0] for listed in extras.values() for needed in listed}
    for one in what:
        found = re.fullmatch(r"(?:\.|(?:\.\./)?inboxkit)(?:\[([\w,]+)\])?", one)
        if found is None:
            assert one == "-e" or one in known, f"pip install: no extra of this project has {one!r}"
        elif found[1] is not None:
            named = set(found[1].split(","))
            assert named <= set(extras), (
                f"{one!r} names extras that there are not: {named - set(extras)}"
            )
