"""Writes the ends of deliveries whose rows are held by sessions: on their own sessions, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import anyio

from inboxkit._core.lease import add
from inboxkit._core.settlement import Settlement, Verb
from inboxkit.abc import ClaimForm, Settled

from .batches import Sizes
from .held import Held, Release, Stage
from .reporting import GONE, Reporter

__all__ = ["Ender"]

_GIVEN_BACK = Release(give_back=True)
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
        pause: Called with the row that failed, and the seconds for which nothing of its queue is to be
            claimed.
        rest: Called with a row whose session ended, and the seconds for which it is not to be claimed.
        sizes: Is told of rows that were settled, and of those that were not.
        answered: Called with each delivery once its answer is there, and whether its row rests now.
    """

    def __init__(
        self,
        form: ClaimForm,
        report: Reporter,
        *,
        settled: Callable[[Held], None],
        due: Callable[[Settlement | Release, Settled], None],
        pause: Callable[[Held, float], None],
        rest: Callable[[Held, float], None],
        sizes: Sizes,
        answered: Callable[[Held, bool], None],
    ) -> None:
        self._form = form
        self._report = report
        self._settled = settled
        self._due = due
        self._pause = pause
        self._rest = rest
        self._sizes = sizes
        self._answered = answered
        self._pending: list[list[Held]] = []
        self._event = anyio.Event()

    def add(self, held: Held, ending: Settlement | Release) -> None:
        """A delivery without a worker has ended: write this, with the other rows of its session."""
        for group in _end([(held, ending)]):
            self._pending.append(group)
            self.notify()

    async def end(self, held: Held, ending: Settlement | Release) -> None:
        """The calling worker's delivery has ended: write this, here and now."""
        await self.end_all([(held, ending)])

    async def end_all(self, endings: Sequence[tuple[Held, Settlement | Release]]) -> None:
        """The same for a batch. What one session holds is written once all its rows have ended."""
        groups = _end(endings)
        if len(groups) == 1:
            await self._write(groups[0])
            return
        async with anyio.create_task_group() as writing:
            for group in groups:
                writing.start_soon(self._write, group)

    def take(self, held: Held, ending: Settlement, answer: Settled) -> None:
        """A worker has written this itself, in its handler's transaction: what became of it."""
        held.stage = Stage.GONE
        self._settled(held)
        self._take_answer(held, ending, answer, is_alone=True)
        self._answered(held, answer.result != "written")

    def let_go(self, held: Held) -> None:
        """Its hold is lost: nothing is written, but its session is still to be given back."""
        self.add(held, _GIVEN_BACK)

    def notify(self) -> None:
        """Something is to be written."""
        self._event.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as writing:
            while True:
                pending, self._pending = self._pending, []
                for group in pending:
                    writing.start_soon(self._write, group)
                await self._event.wait()
                self._event = anyio.Event()

    async def _write(self, rows: list[Held]) -> None:
        """Write the ends of all rows of one session."""
        lost = [held for held in rows if held.is_lost]
        try:
            answers = await self._ask(rows)
        finally:
            # Cancelled or not, the form has given the session back.
            for held in rows:
                held.stage = Stage.GONE
                self._settled(held)
        if len(rows) > 1:
            self._tell_of_undone(rows, answers)
        for held, answer in zip(rows, answers, strict=True):
            ending = held.ending
            assert ending is not None
            if held in lost:
                self._due(ending, answer)
            else:
                self._take_answer(held, ending, answer, is_alone=len(rows) == 1)
            is_hold = isinstance(ending, Settlement) and ending.verb is Verb.HOLD
            is_resting = is_hold or (answer.result != "written" and held not in lost)
            self._answered(held, is_resting)

    async def _ask(self, rows: list[Held]) -> list[Settled]:
        """Answers in the order of the rows. Beside a settlement, what is released is left as it is."""
        releases = [(row.fence, row.ending) for row in rows if isinstance(row.ending, Release)]
        if len(releases) == len(rows):
            return await self._form.release([(fence, end.give_back) for fence, end in releases])
        settlements = [(held, _settlement_of(held)) for held in rows]
        answers = iter(
            await self._form.settle(
                [(held.fence, settlement) for held, settlement in settlements if settlement]
            )
        )
        return [
            next(answers) if settlement else Settled("written") for _, settlement in settlements
        ]

    def _tell_of_undone(self, rows: list[Held], answers: list[Settled]) -> None:
        failed = [
            (held, answer)
            for held, answer in zip(rows, answers, strict=True)
            if answer.result == "failed"
        ]
        if not failed:
            return
        culprits = [(held, answer.error) for held, answer in failed if answer.error is not None]
        why = f"that of row {culprits[0][0].id!r} failed" if len(culprits) == 1 else "it failed"
        self._report.trouble(
            f"the settlements of {len(failed)} rows of one batch were undone together, since {why}; the "
            "rows are handed out again, one by one",
            culprits[0][1] if culprits else None,
            held=(culprits or failed)[0][0],
        )

    def _take_answer(
        self, held: Held, ending: Settlement | Release, answer: Settled, *, is_alone: bool
    ) -> None:
        match answer.result:
            case "written":
                self._sizes.settled(held.id)
                self._written(held, ending, answer)
            case "lost" | "gone":
                self._rest(held, _SHORTEST_PAUSE.total_seconds())
                held.lose()
                is_gone = answer.result == "gone"
                reason = (
                    GONE if is_gone else "its connection ended before its settlement was written"
                )
                self._report.lost(held, reason, is_gone=is_gone)
            case "failed":
                self._sizes.failed(held.id)
                if answer.due is not None:
                    self._due(_GIVEN_BACK, answer)
                self._pause(held, _SHORTEST_PAUSE.total_seconds())
                rest = "a second" if answer.due is None else "others"
                self._report.unsettled(
                    held,
                    f"row {held.id!r} could not be settled; it is handed out again after {rest}",
                    answer.error,
                    is_told=is_alone,
                )
            case "unknown":
                self._rest(held, _SHORTEST_PAUSE.total_seconds())
                self._report.outcome_unknown(held, error=answer.error)

    def _written(self, held: Held, ending: Settlement | Release, answer: Settled) -> None:
        if isinstance(ending, Release):
            self._due(ending, answer)
            self._report.released(held, ending.give_back)
            return
        if ending.verb is Verb.HOLD:
            # No column can keep this back-off: the row is due again, and its queue rests instead.
            rest = max(ending.delay, _SHORTEST_PAUSE)
            self._pause(held, rest.total_seconds())
            answer = replace(answer, due=add(answer.due, rest) if answer.due else None)
        self._due(ending, answer)
        self._report.settled(held, ending, answer.due)


def _end(endings: Sequence[tuple[Held, Settlement | Release]]) -> list[list[Held]]:
    """Note how deliveries have ended; returns those that can be written now, by session."""
    for held, ending in endings:
        held.ending = ending
        held.stage = Stage.ENDED
    groups: dict[int, list[Held]] = {}
    for held, _ in endings:
        rows = list(held.together) or [held]
        if all(row.stage is Stage.ENDED for row in rows):
            groups.setdefault(id(rows[0]), rows)
    return list(groups.values())


def _settlement_of(held: Held) -> Settlement | None:
    """What is written of a row while others of its session are settled; None: nothing."""
    if isinstance(held.ending, Release):
        is_counted = not held.ending.give_back and not held.claimed.spent
        return Settlement(Verb.GIVE_BACK) if is_counted else None
    return held.ending
