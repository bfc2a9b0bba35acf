"""Hands claimed rows to worker tasks: any free one, or the one that serves their key."""

from __future__ import annotations

import math
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from .held import Held

__all__ = ["Workers"]

_QUEUED_A_WORKER = 4
"""Rows in work for each keyed worker, those that queue at it included."""


class Workers:
    """The worker tasks of one subscription.

    Args:
        count: How many.
        by_key: One key always goes to one worker, in the order of claims.
        deliver: What a worker does with a row; raises nothing.
    """

    def __init__(
        self, count: int, *, by_key: bool, deliver: Callable[[Held], Awaitable[None]]
    ) -> None:
        self._count = count
        self._by_key = by_key
        self._deliver = deliver
        self._senders: list[MemoryObjectSendStream[Held]] = []

    @property
    def room(self) -> int:
        """Most rows in work at once."""
        return self._count * (_QUEUED_A_WORKER if self._by_key else 1)

    def start(self, tasks: TaskGroup) -> None:
        """Start the worker tasks in `tasks`; they end when `close` was called and nothing is queued."""
        for _ in range(self._count if self._by_key else 1):
            send, receive = anyio.create_memory_object_stream[Held](math.inf)
            self._senders.append(send)
            with receive:
                for _ in range(1 if self._by_key else self._count):
                    tasks.start_soon(self._work, receive.clone())

    def hand_over(self, held: Held) -> None:
        """Queue a row at its worker."""
        number = _lane(held.claimed.key, self._count) if self._by_key else 0
        self._senders[number].send_nowait(held)

    def close(self) -> None:
        """No more rows come."""
        for send in self._senders:
            send.close()

    async def _work(self, receive: MemoryObjectReceiveStream[Held]) -> None:
        with receive:
            async for held in receive:
                await self._deliver(held)


def _lane(key: Any, count: int) -> int:
    # Not hash(): that of a str differs from process to process, and a run has to be repeatable.
    return zlib.crc32(repr(key).encode("utf-8", "surrogatepass")) % count
