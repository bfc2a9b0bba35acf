"""Which simulated process a line of code runs in."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from typing import Protocol

__all__ = ["Process", "current_process"]


class Process(Protocol):
    """One instance of a service, from its start to its end or crash."""

    @property
    def is_crashed(self) -> bool:
        """Whether nothing that its tasks still do is seen by anybody."""
        ...

    def true_now(self) -> datetime:
        """The time, whatever its own clock says."""
        ...


current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)
"""Set in the tasks of an instance; None: in the test's own."""
