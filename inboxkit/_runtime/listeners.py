"""Functions that are told of a service's events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from inboxkit import events

__all__ = ["Listener", "Listeners"]

Listener: TypeAlias = Callable[[events.Event], object]

_logger = logging.getLogger("inboxkit")


class Listeners:
    """Called in the order in which they were added, on the event loop, where the event happens.

    One that raises changes nothing: the first time is logged.
    """

    def __init__(self) -> None:
        self.all: tuple[Listener, ...] = ()
        """Empty: no event needs to be made for them."""
        self._was_told = False

    def add(self, listener: Listener) -> None:
        """Tell this one too."""
        self.all = (*self.all, listener)

    def tell(self, event: events.Event) -> None:
        """Call each with an event."""
        for listener in self.all:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - the user's: no row is lost or stuck for it
                self._warn(listener, event, error)

    def _warn(self, listener: Listener, event: events.Event, error: Exception) -> None:
        if self._was_told:
            return
        self._was_told = True
        with suppress(Exception):  # as every record: a handler of the log may raise too
            _logger.warning(
                "a function given to on_event raised; this is told once: %r, of %s",
                listener,
                type(event).__name__,
                exc_info=error,
            )
