"""A virtual clock over real databases, and what can be tested with it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._delivering import delivery
    from ._run import run
    from .app import SubscriberLog, TestApp
    from .bracketing import BracketedTransport
    from .clock import VirtualClock
    from .databases import ObservedDatabase, open_test_database
    from .errors import (
        ClockStalledError,
        CrashedError,
        InvariantViolation,
        SleepInTransactionError,
    )
    from .gate import StatementGate
    from .history import History
    from .history_log import HistoryHandler
    from .hosts import HostClock
    from .instances import Instance
    from .marks import note_calls
    from .runner import VirtualRunner
    from .stateful.checking import check_crash_and_resume
    from .stateful.machine import CrashAndResume
    from .stateful.traffic import traffic
    from .timeline import Timeline, recorded
    from .world import World

__all__ = [
    "BracketedTransport",
    "ClockStalledError",
    "CrashAndResume",
    "CrashedError",
    "History",
    "HistoryHandler",
    "HostClock",
    "Instance",
    "InvariantViolation",
    "ObservedDatabase",
    "SleepInTransactionError",
    "StatementGate",
    "SubscriberLog",
    "TestApp",
    "Timeline",
    "VirtualClock",
    "VirtualRunner",
    "World",
    "check_crash_and_resume",
    "delivery",
    "note_calls",
    "open_test_database",
    "recorded",
    "run",
    "traffic",
]

# Looked up when used: every pytest loads this package with the plugin, and most have no use for it.
# No module may be called like a public name, or its import would take the name's place.
_HOMES = {
    "BracketedTransport": "bracketing",
    "ClockStalledError": "errors",
    "CrashAndResume": "stateful.machine",
    "CrashedError": "errors",
    "History": "history",
    "HistoryHandler": "history_log",
    "HostClock": "hosts",
    "Instance": "instances",
    "InvariantViolation": "errors",
    "ObservedDatabase": "databases",
    "SleepInTransactionError": "errors",
    "StatementGate": "gate",
    "SubscriberLog": "app",
    "TestApp": "app",
    "Timeline": "timeline",
    "VirtualClock": "clock",
    "VirtualRunner": "runner",
    "World": "world",
    "check_crash_and_resume": "stateful.checking",
    "delivery": "_delivering",
    "note_calls": "marks",
    "open_test_database": "databases",
    "recorded": "timeline",
    "run": "_run",
    "traffic": "stateful.traffic",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
