"""Notifications between the instances of one run: heard at instants that can be repeated.

A server sends them beside its answers, a moment later. So once something was written, and nothing else
can happen, whoever listens asks its server for a sign of life: what was told before comes before the
answer. Time moves after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import anyio

from ._timekeeper import Timekeeper

__all__ = ["Mail", "mail_of"]

_of_run: WeakKeyDictionary[Timekeeper, Mail] = WeakKeyDictionary()


def mail_of(keeper: Timekeeper) -> Mail:
    """The one of this run."""
    found = _of_run.get(keeper)
    if found is None:
        found = _of_run[keeper] = Mail()
        # Before the gate's: what was told is seen before the next statement is let through.
        keeper.idle_hooks.insert(0, found.deliver)
    return found


class Mail:
    """Who listens in a run, and whether there may be something to hear."""

    def __init__(self) -> None:
        self._waiting: dict[anyio.Event, None] = {}
        self._is_there = False

    def written(self) -> None:
        """Something was committed, or a notification has come by itself."""
        self._is_there = True

    @contextmanager
    def round(self) -> Iterator[anyio.Event]:
        """An event that is set when it is time to look."""
        event = anyio.Event()
        self._waiting[event] = None
        try:
            yield event
        finally:
            self._waiting.pop(event, None)

    def deliver(self) -> bool:
        """Let all look, if there may be something."""
        if not self._is_there or not self._waiting:
            return False
        self._is_there = False
        for event in self._waiting:
            event.set()
        return True
