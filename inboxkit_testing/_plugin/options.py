"""The command line: on which databases and backends tests run."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["BACKENDS", "DATABASES", "Options", "add_options", "read_options"]

DATABASES = ("sqlite", "sqlite-inloop", "sqlite-memory", "postgres", "mariadb", "mysql")
BACKENDS = ("asyncio", "trio")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the settings chose."""

    databases: tuple[str, ...]
    backends: tuple[str, ...]
    timeline: Path | None
    """Where failing tests leave their timelines."""


def add_options(parser: pytest.Parser) -> None:
    """Add the group `inboxkit`."""
    group = parser.getgroup("inboxkit", "inboxkit: task inboxes in virtual time")
    group.addoption(
        "--inbox-db",
        default="sqlite",
        metavar="NAMES",
        help=f"databases of inbox_database, split by commas: {', '.join(DATABASES)} (default: sqlite)",
    )
    group.addoption(
        "--inbox-backend",
        default=None,
        metavar="NAMES",
        help=f"event loops, split by commas: {', '.join(BACKENDS)} (default: those installed)",
    )
    group.addoption(
        "--inbox-timeline",
        default=None,
        metavar="DIR",
        help="write what happened to rows in each failing test as an HTML page into this folder",
    )


def read_options(config: pytest.Config) -> Options:
    """What was chosen.

    Raises:
        pytest.UsageError: A name is unknown, or not installed.
    """
    databases = _names("--inbox-db", str(config.getoption("inbox_db")), DATABASES)
    folder = config.getoption("inbox_timeline")
    timeline = Path(config.invocation_params.dir, folder) if folder else None
    chosen = config.getoption("inbox_backend")
    if chosen is None:
        installed = tuple(name for name in BACKENDS if _is_installed(name))
        return Options(databases, installed, timeline)
    backends = _names("--inbox-backend", chosen, BACKENDS)
    for name in backends:
        if not _is_installed(name):
            raise pytest.UsageError(
                f"--inbox-backend: {name} is not installed: pip install 'inboxkit[{name}]'"
            )
    return Options(databases, backends, timeline)


def _names(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    split = (name.strip() for name in text.split(","))
    names = tuple(dict.fromkeys(name for name in split if name))
    if not names:  # and all tests would be skipped
        raise pytest.UsageError(f"{option}: no name in {text!r}; choose from {', '.join(known)}")
    for name in names:
        if name not in known:
            raise pytest.UsageError(
                f"{option}: unknown name {name!r}; choose from {', '.join(known)}"
            )
    return names


def _is_installed(backend: str) -> bool:
    return importlib.util.find_spec(backend) is not None
