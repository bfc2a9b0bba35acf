"""What pytest's command line chose, for code that no fixture reaches."""

from __future__ import annotations

from dataclasses import dataclass

from inboxkit_testing._plugin.databases import Databases
from inboxkit_testing._plugin.options import BACKENDS, Options

__all__ = ["Choice", "chosen", "current_choice"]

chosen: list[Choice] = []
"""Of the sessions that run, the innermost last."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Databases and loops, and where fresh databases come from."""

    options: Options
    databases: Databases


def current_choice() -> Choice:
    """Of the pytest session that runs; outside of pytest SQLite and asyncio."""
    if chosen:
        return chosen[-1]
    return Choice(Options(("sqlite-inloop",), BACKENDS[:1], None), Databases())
