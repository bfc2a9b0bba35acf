"""Hands claimed rows to worker tasks: any free one, or the one that serves their key."""

from __future__ import annotations

import math
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["Workers"]

T = TypeVar("T")

_QUEUED_A_WORKER = 4
"""Rows in work for each keyed worker, those that queue at it included."""


class Workers(Generic[T]):
    """The worker tasks of one subscription; what they are handed is a row, or a batch of rows.

    Args:
        count: How many.
        by_key: One key always goes to one worker, in the order of claims.
        deliver: What a worker does with it; raises nothing.
    """

    def __init__(
        self, count: int, *, by_key: bool, deliver: Callable[[T], Awaitable[None]]
    ) -> None:
        self._count = count
        self._by_key = by_key
        self._deliver = deliver
        self._senders: list[MemoryObjectSendStream[T]] = []

    @property
    def room(self) -> int:
        """Most rows or batches in work at once."""
        return self._count * (_QUEUED_A_WORKER if self._by_key else 1)

    def start(self, tasks: TaskGroup) -> None:
        """Start the worker tasks in `tasks`; they end when `close` was called and nothing is queued."""
        for _ in range(self._count if self._by_key else 1):
            send, receive = anyio.create_memory_object_stream[T](math.inf)
            self._senders.append(send)
            with receive:
                for _ in range(1 if self._by_key else self._count):
                    tasks.start_soon(self._work, receive.clone())

    def hand_over(self, work: T, key: Any = None) -> None:
        """Queue a row, or a batch, at its worker.

        Args:
            work: What `deliver` is called with.
            key: The row's partition key.
        """
        number = _lane(key, self._count) if self._by_key else 0
        self._senders[number].send_nowait(work)

    def close(self) -> None:
        """No more rows come."""
        for send in self._senders:
            send.close()

    async def _work(self, receive: MemoryObjectReceiveStream[T]) -> None:
        with receive:
            async for work in receive:
                await self._deliver(work)


def _lane(key: Any, count: int) -> int:
    # Not hash(): that of a str differs from process to process, and a run has to be repeatable.
    return zlib.crc32(repr(key).encode("utf-8", "surrogatepass")) % count
