"""The command line: on which databases and backends tests run, and in which orders."""

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
    seed: int | None = None
    """The one seed of all tests in virtual time."""
    seeds: int | None = None
    """How many seeds they explore, but for those that name one."""


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
    group.addoption(
        "--inbox-seed",
        default=None,
        metavar="SEED",
        help="run async tests in virtual time in the one order that this seed chooses, whatever their markers say",
    )
    group.addoption(
        "--inbox-seeds",
        default=None,
        metavar="N",
        help="run each async test in virtual time in N orders, until one fails, but for those marked with seed=",
    )


def read_options(config: pytest.Config) -> Options:
    """What was chosen.

    Raises:
        pytest.UsageError: A name is unknown, or not installed; a number is none.
    """
    databases = _names("--inbox-db", str(config.getoption("inbox_db")), DATABASES)
    folder = config.getoption("inbox_timeline")
    timeline = Path(config.invocation_params.dir, folder) if folder else None
    seed, seeds = _number(config, "--inbox-seed"), _number(config, "--inbox-seeds", least=1)
    if seed is not None and seeds is not None:
        raise pytest.UsageError(
            "--inbox-seed is one order and --inbox-seeds many; give one of them"
        )
    chosen = config.getoption("inbox_backend")
    if chosen is None:
        installed = tuple(name for name in BACKENDS if _is_installed(name))
        return Options(databases, installed, timeline, seed, seeds)
    backends = _names("--inbox-backend", chosen, BACKENDS)
    for name in backends:
        if not _is_installed(name):
            raise pytest.UsageError(
                f"--inbox-backend: {name} is not installed: pip install 'inboxkit[{name}]'"
            )
    return Options(databases, backends, timeline, seed, seeds)


def _number(config: pytest.Config, option: str, *, least: int | None = None) -> int | None:
    text = config.getoption(option)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise pytest.UsageError(f"{option}: expected a whole number, got {text!r}") from None
    if least is not None and number < least:
        raise pytest.UsageError(f"{option}: expected at least {least}, got {text!r}")
    return number


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
