"""Rows that one call of a handler takes, and how many a claim takes for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio

from inboxkit.abc import Clock
from inboxkit.errors import LeaseLostError

from .held import Held, Stage

__all__ = ["Batch", "Sizes", "split"]

_APART_SECONDS = 60.0
"""How long after its last failure a row is still expected to come back and fail."""


class Batch:
    """Rows for one call, in claim order.

    Args:
        rows: At least one; they are this batch's from now on.
    """

    def __init__(self, rows: Sequence[Held]) -> None:
        self.rows = tuple(rows)
        for held in rows:
            held.batch = self
        self._scopes: list[anyio.CancelScope] = []

    @property
    def is_ready(self) -> bool:
        """Whether none of its rows waits for the answer to an earlier delivery."""
        return not any(held.waits for held in self.rows)

    @property
    def running(self) -> list[Held]:
        """The rows that its handler has."""
        return [held for held in self.rows if held.stage is Stage.RUNNING]

    @property
    def is_unwanted(self) -> bool:
        """Whether nothing that the handler answers will be written: each row is lost, or was asked to stop."""
        return all(held.is_lost or held.stop_asked for held in self.running)

    @property
    def lost_error(self) -> LeaseLostError | None:
        """What middleware sees once all rows are lost."""
        errors = [held.lost_error for held in self.running]
        return errors[0] if errors and all(errors) else None

    def start(self) -> list[Held]:
        """Take the rows that nobody has released or lost meanwhile."""
        rows = [held for held in self.rows if held.stage is Stage.QUEUED]
        for held in rows:
            held.stage = Stage.RUNNING
        return rows

    def note_return(self) -> None:
        """The handler came to an end of its own."""
        for held in self.running:
            held.has_returned = True

    @contextmanager
    def cancelled_by(self, scope: anyio.CancelScope) -> Iterator[None]:
        """While this is open, and nothing inside it, `cancel` cancels `scope`."""
        self._scopes.append(scope)
        self.cancel()
        try:
            yield
        finally:
            self._scopes.remove(scope)

    def cancel(self) -> None:
        """End the handler, or the middleware around it, if no row is left for it."""
        if self._scopes and self.is_unwanted:
            self._scopes[-1].cancel()


class Sizes:
    """How many rows the next claim takes, where one session holds them all.

    As many as the handler takes; but one while a row is about whose settlement failed: it would undo
    those of the rows beside it again and again.

    Args:
        size: The handler's.
        clock: Tells when such a row has not been seen for long.
        falls_back: Whether a failed settlement undoes others at all.
    """

    def __init__(self, size: int, clock: Clock, *, falls_back: bool) -> None:
        self._size = size
        self._clock = clock
        self._falls_back = falls_back
        self._apart: dict[Any, float] = {}

    @property
    def next(self) -> int:
        """At least 1."""
        if self._apart:
            now = self._clock.monotonic()
            self._apart = {id: end for id, end in self._apart.items() if end > now}
        return 1 if self._apart else self._size

    def failed(self, id: Any) -> None:
        """A row was not settled, by its own fault or another's."""
        if self._falls_back and self._size > 1:
            self._apart[id] = self._clock.monotonic() + _APART_SECONDS

    def settled(self, id: Any) -> None:
        """A row was."""
        self._apart.pop(id, None)


def split(rows: Sequence[Held], size: int) -> list[Batch]:
    """Rows as batches, in order; the last may be smaller."""
    return [Batch(rows[start : start + size]) for start in range(0, len(rows), size)]
