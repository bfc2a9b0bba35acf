"""Writes the ends of deliveries whose rows are held by sessions: each on its own session, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio

from inboxkit._core.lease import add
from inboxkit._core.settlement import Settlement, Verb
from inboxkit.abc import ClaimForm, Settled

from .held import Held, Release, Stage
from .reporting import Reporter

__all__ = ["Ender"]

_SHORTEST_PAUSE = timedelta(seconds=1)
"""For which nothing is claimed after a row came back at once because it failed: a row that
always fails must not spin."""


class Ender:
    """Settles and releases rows; the answer is final, whatever it is.

    A worker writes the end of its own delivery (`end`). What has no worker, such as a row that is
    released before its handler could begin, is written by `run`.

    Args:
        form: Writes.
        report: The log.
        settled: Called once for each delivery for which nothing more will be written.
        due: Called with what was written once the row can be claimed again.
        pause: Called with the row that failed, and the seconds for which nothing is to be claimed.
        answered: Called with each delivery once its answer is there, and whether its row rests now.
    """

    def __init__(
        self,
        form: ClaimForm,
        report: Reporter,
        *,
        settled: Callable[[Held], None],
        due: Callable[[Settlement | Release, Settled], None],
        pause: Callable[[Any, float], None],
        answered: Callable[[Held, bool], None],
    ) -> None:
        self._form = form
        self._report = report
        self._settled = settled
        self._due = due
        self._pause = pause
        self._answered = answered
        self._pending: list[Held] = []
        self._event = anyio.Event()

    def add(self, held: Held, ending: Settlement | Release) -> None:
        """A delivery without a worker has ended: write this."""
        held.ending = ending
        held.stage = Stage.ENDED
        self._pending.append(held)
        self.notify()

    async def end(self, held: Held, ending: Settlement | Release) -> None:
        """The calling worker's delivery has ended: write this, here and now."""
        held.ending = ending
        held.stage = Stage.ENDED
        await self._write(held, ending)

    def take(self, held: Held, ending: Settlement, answer: Settled) -> None:
        """A worker has written this itself, in its handler's transaction: what became of it."""
        held.stage = Stage.GONE
        self._settled(held)
        self._take_answer(held, ending, answer)
        self._answered(held, answer.result != "written")

    def let_go(self, held: Held) -> None:
        """Its hold is lost: nothing is written, but its session is still to be given back."""
        self.add(held, Release(give_back=True))

    def notify(self) -> None:
        """Something is to be written."""
        self._event.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as writing:
            while True:
                pending, self._pending = self._pending, []
                for held in pending:
                    assert held.ending is not None
                    writing.start_soon(self._write, held, held.ending)
                await self._event.wait()
                self._event = anyio.Event()

    async def _write(self, held: Held, ending: Settlement | Release) -> None:
        was_lost = held.lost.is_set()
        try:
            if isinstance(ending, Release):
                (answer,) = await self._form.release([(held.fence, ending.give_back)])
            else:
                (answer,) = await self._form.settle([(held.fence, ending)])
        finally:
            # Cancelled or not, the form has given the session back.
            held.stage = Stage.GONE
            self._settled(held)
        if was_lost:
            self._due(ending, answer)
        else:
            self._take_answer(held, ending, answer)
        is_hold = isinstance(ending, Settlement) and ending.verb is Verb.HOLD
        is_resting = is_hold or (answer.result != "written" and not was_lost)
        self._answered(held, is_resting)

    def _take_answer(self, held: Held, ending: Settlement | Release, answer: Settled) -> None:
        match answer.result:
            case "written":
                self._written(held, ending, answer)
            case "lost" | "gone":
                self._pause(held.id, _SHORTEST_PAUSE.total_seconds())
                held.lost.set()
                self._report.lost(held, "its connection ended before its settlement was written")
            case "failed":
                self._pause(held.id, _SHORTEST_PAUSE.total_seconds())
                self._report.trouble(
                    f"row {held.id!r} could not be settled; it is handed out again after a second",
                    answer.error,
                )
            case "unknown":
                self._pause(held.id, _SHORTEST_PAUSE.total_seconds())
                self._report.trouble(
                    f"row {held.id!r}: the answer to its settlement was lost; if it was not written, "
                    "the row is handed out again",
                    answer.error,
                )

    def _written(self, held: Held, ending: Settlement | Release, answer: Settled) -> None:
        if isinstance(ending, Release):
            self._due(ending, answer)
            self._report.released(held, ending.give_back)
            return
        if ending.verb is Verb.HOLD:
            # No column can keep this back-off: the row is due again, and its queue rests instead.
            rest = max(ending.delay, _SHORTEST_PAUSE)
            self._pause(held.id, rest.total_seconds())
            answer = replace(answer, due=add(answer.due, rest) if answer.due else None)
        self._due(ending, answer)
        self._report.settled(held, ending, answer.due)
