"""Notifications between the instances of one run: heard at instants that can be repeated.

A server sends them beside its answers, a moment later. So once something was written, and nothing else
can happen, whoever listens asks its server for a sign of life: what was told before comes before the
answer. Time moves after that.

What comes unasked is heard too, but not in a run whose order is chosen: it would wake a task between any
two others. There all ask once at each instant besides, for what outsiders have told.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from weakref import WeakKeyDictionary

import anyio

from inboxkit.abc import Listening
from inboxkit.errors import DatabaseError

from ._timekeeper import Timekeeper

__all__ = ["Mail", "mail_of"]

_of_run: WeakKeyDictionary[Timekeeper, Mail] = WeakKeyDictionary()


def mail_of(keeper: Timekeeper) -> Mail:
    """The one of this run."""
    found = _of_run.get(keeper)
    if found is None:
        found = _of_run[keeper] = Mail(keeper)
        # Before the gate's: what was told is seen before the next statement is let through.
        keeper.idle_hooks.insert(0, found.deliver)
        keeper.rewinds.append(found.rewind)
        keeper.endings.append(partial(_of_run.__delitem__, keeper))  # it holds its key
    return found


class Mail:
    """Who listens in a run, and whether there may be something to hear."""

    def __init__(self, keeper: Timekeeper) -> None:
        self._keeper = keeper
        self._waiting: dict[anyio.Event, None] = {}
        self._queue: deque[anyio.Event] = deque()
        self._is_there = False
        self._is_chosen = False
        self._looked_at = -1.0

    def written(self) -> None:
        """Something was committed, or a notification has come by itself."""
        self._is_there = True

    async def wait(self, ear: Listening, *, is_chosen: bool) -> None:
        """Return when it is time to look.

        Args:
            ear: The session that listens; it is heard meanwhile, unless `is_chosen`.
            is_chosen: Whether the order of this run is, so that nothing may be heard unasked.

        Raises:
            DatabaseError: The session has ended.
        """
        lost: list[DatabaseError] = []
        self._is_chosen = is_chosen
        self._waiting[turn := anyio.Event()] = None

        async def hear() -> None:
            try:
                await ear.notified()
            except DatabaseError as error:
                lost.append(error)
                turn.set()
            self.written()

        try:
            async with anyio.create_task_group() as race:
                if not is_chosen:
                    race.start_soon(hear)
                await turn.wait()
                race.cancel_scope.cancel()
        finally:
            del self._waiting[turn]
        if lost:
            raise lost[0]

    def rewind(self) -> None:
        """Time begins anew."""
        self._looked_at = -1.0

    def deliver(self) -> bool:
        """Let one look, if there may be something: one by one, since answers overtake each other."""
        now = self._keeper.now_seconds
        if self._is_there or (self._is_chosen and self._looked_at < now):
            self._is_there, self._looked_at = False, now
            self._queue.extend(self._waiting)
        while self._queue:
            event = self._queue.popleft()
            if event in self._waiting and not event.is_set():
                event.set()
                return True
        return False
