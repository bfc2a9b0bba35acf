"""Wakes the one task that waits, on either backend."""

from __future__ import annotations

import anyio

__all__ = ["Bell"]


class Bell:
    """Rung while nobody waits, it is heard by the next to wait."""

    def __init__(self) -> None:
        self._was_rung = False
        self._waiter: anyio.Event | None = None

    def ring(self) -> None:
        """Wake the waiting task."""
        if self._waiter is not None:
            self._waiter.set()
            self._waiter = None
        else:
            self._was_rung = True

    async def wait(self) -> None:
        """Until it is rung."""
        if not self._was_rung:
            self._waiter = anyio.Event()
            await self._waiter.wait()
        self._was_rung = False
