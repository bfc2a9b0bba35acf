"""A virtual clock over real databases, and what can be tested with it."""

from __future__ import annotations

from .clock import VirtualClock
from .errors import (
    ClockStalledError,
    CrashedError,
    InvariantViolation,
    SleepInTransactionError,
)
from .gate import StatementGate
from .hosts import HostClock
from .run import run

__all__ = [
    "ClockStalledError",
    "CrashedError",
    "HostClock",
    "InvariantViolation",
    "SleepInTransactionError",
    "StatementGate",
    "VirtualClock",
    "run",
]
