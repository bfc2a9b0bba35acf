"""How many more rows a subscription may claim."""

from __future__ import annotations

from collections.abc import Callable, Collection

from .held import Held, Stage
from .plan import Plan

__all__ = ["Capacity"]


class Capacity:
    """Room for as many rows as workers are free, and for those that are claimed ahead.

    Where an expiry holds the rows, a worker is free once its handler has ended, though the settlement is
    still to be written. Rows that await that are bounded too: of a database that does not answer there
    are never more than twice as many as there would be otherwise.

    While every worker has a row, nothing is claimed until half of those that are claimed ahead are gone: a
    claim for each row that ends would cost as much as without them.

    Args:
        plan: The subscription's.
        most: Rows in work at once, or batches, without those that are claimed ahead.
        counts_rows: Whether a claim counts rows, although the handler takes batches.
        unsettled: How many rows only await their settlement; None: a worker goes on once that of its
            last row was answered.
    """

    def __init__(
        self, plan: Plan, most: int, *, counts_rows: bool, unsettled: Callable[[], int] | None
    ) -> None:
        self._most = most
        self._batch = plan.batch
        self._ahead = plan.prefetch
        self._least = (plan.prefetch + 1) // 2
        self._counts_rows = counts_rows
        self._unsettled = unsettled

    def room(self, holds: Collection[Held]) -> int:
        """Rows that may be claimed; where a session holds a batch, batches. 0 or less: none.

        Args:
            holds: All deliveries of the subscription.
        """
        if self._batch is not None:
            return self._room_for_batches(holds, self._batch)
        limit = self._most + self._ahead
        if self._unsettled is None:
            return limit - len(holds)
        in_hand = len(holds) - self._unsettled()
        room = min(limit - in_hand, 2 * limit - len(holds))
        return room if room >= self._least or in_hand < self._most else 0

    def _room_for_batches(self, holds: Collection[Held], size: int) -> int:
        taken = {
            held.batch
            for held in holds
            if held.batch is not None and (self._unsettled is None or held.stage is not Stage.ENDED)
        }
        free = self._most - len(taken)
        if not self._counts_rows:
            return free
        room = free * size + self._ahead
        if self._unsettled is not None:
            room = min(room, 2 * (self._most * size + self._ahead) - len(holds))
        return room if room >= self._least or free > 0 else 0
