"""Takes over what claims bring: which rows begin at once, which wait, which go back."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from datetime import timedelta
from typing import Any

from inboxkit.abc import Claim, Claimed

from .batches import Batch, split
from .held import Held, Stage
from .reporting import Reporter
from .turns import Turns

__all__ = ["Intake"]


class Intake:
    """The way of claimed rows to their workers.

    Args:
        holds: All deliveries of the subscription, by identity; those taken over are added.
        lease: The form's.
        holds_together: The form's.
        batch: Most rows of one call of the handler; None: each row is its own.
        turns: Whose turn it is, of rows that are worked on in order; None: they keep no order.
        report: The log.
        hand_over: Called with what a worker is to do: a row, or a batch.
        move: Called with a row that is past its cap.
        release: Called with a row that is to be given back.
        lose: Called with an older delivery of a row that was claimed again, and the reason.
    """

    def __init__(
        self,
        holds: MutableMapping[int, Held],
        lease: timedelta | None,
        report: Reporter,
        *,
        holds_together: bool,
        batch: int | None,
        turns: Turns | None,
        hand_over: Callable[[Held | Batch], None],
        move: Callable[[Held], None],
        release: Callable[[Held], None],
        lose: Callable[[Held, str], None],
    ) -> None:
        self._holds = holds
        self._lease = lease
        self._report = report
        self._holds_together = holds_together
        self._batch = batch
        self._turns = turns
        self._latest: dict[Any, Held] = {}
        """By row, the last of its deliveries that are in work."""
        self._hand_over = hand_over
        self._move = move
        self._release = release
        self._lose = lose

    def accept(self, claim: Claim, is_unwanted: bool) -> None:
        """Take over a claim's rows; unwanted ones are given back."""
        if not claim.rows:
            return
        rows = [self._take(claimed, is_unwanted) for claimed in claim.rows]
        if self._holds_together:
            for held in rows:
                held.together = rows
        if is_unwanted:
            for held in rows:
                self._release(held)
            return
        healthy = [held for held in rows if not held.claimed.spent]
        for held in rows:
            if held.claimed.spent and not held.waits:
                self._move(held)
        if self._batch is not None:
            for batch in split(healthy, self._batch):
                self._begin(batch)
            return
        for held in healthy:
            if not held.waits:
                self._hand_over(held)

    def answered(self, before: Held, is_resting: bool) -> None:
        """The answer to a delivery's settlement is there; another of its row may have waited for it.

        Args:
            before: The delivery that was settled.
            is_resting: Whether its row is to rest now.
        """
        held = before.successor
        if held is None:
            return
        held.waits = False
        if held.stage is not Stage.QUEUED:
            return
        if is_resting:
            # Beside others it goes back with them: they come again when it has rested.
            for row in held.batch.rows if held.batch is not None else (held,):
                if row.stage is Stage.QUEUED:
                    self._release(row)
        elif held.claimed.spent:
            self._move(held)
        else:
            self._begin_one(held)

    def passed(self, held: Held) -> None:
        """A delivery is over, or its hold is lost: rows that waited for it may begin."""
        if self._turns is not None:
            for ready in self._turns.leave(held):
                if ready.stage is Stage.QUEUED:
                    self._begin_one(ready)

    def forget(self, held: Held) -> None:
        """Nothing more is written for a delivery."""
        if self._latest.get(held.id) is held:
            del self._latest[held.id]
        self.passed(held)

    def close(self) -> None:
        """Nothing begins any more, whoever waited for its turn."""
        self._turns = None

    def _take(self, claimed: Claimed, is_unwanted: bool) -> Held:
        before = self._latest.get(claimed.fence.id)
        if before is not None:
            self._supersede(before)
        held = Held(claimed, self._lease)
        self._holds[id(held)] = held
        self._latest[held.id] = held
        if self._turns is not None:
            self._turns.enter(held)
        self._report.claimed(held)
        if (
            before is not None
            and not is_unwanted
            and before.stage is Stage.ENDED
            and self._lease is None
        ):
            # The older delivery's session let go of the row, and the answer is on its way.
            before.successor = held
            held.waits = True
        return held

    def _supersede(self, older: Held) -> None:
        """A claim took its row, so its token stands there no more: an operator may have cleared it."""
        if older.stage in (Stage.QUEUED, Stage.RUNNING) and not older.is_lost:
            self._lose(older, "the row was claimed again")
        older.is_renewed = False

    def _begin_one(self, held: Held) -> None:
        if held.batch is not None:
            self._begin(held.batch)
        else:
            self._hand_over(held)

    def _begin(self, batch: Batch) -> None:
        if batch.is_ready:
            self._hand_over(batch)
