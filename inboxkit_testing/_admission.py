"""What an operation of one session goes through before it is sent: the gate, and what a test has in its way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

import anyio

from .faults import UNTOLD, Operation, given_up

if TYPE_CHECKING:
    from ._brackets import Block
    from .observed import ObservedDriver

__all__ = ["Admission"]


class Admission:
    """Lets the operations of one session through.

    Args:
        driver: Whose session it is.
        number: The session's.
        drop: Drops it.
    """

    def __init__(self, driver: ObservedDriver, number: int, drop: Callable[[], None]) -> None:
        self._driver = driver
        self._number = number
        self._drop = drop

    async def admitted(
        self, describe: Callable[[], Operation], *, block: Block | None, asks: bool
    ) -> Operation:
        """Wait until an operation may be sent; it is to be sent before the next checkpoint.

        Args:
            describe: Makes the operation: others are sent meanwhile, and its number changes.
            block: The transaction of the service's own that it belongs to.
            asks: Whether it is a turn of its own at the gate.

        Raises:
            BaseException: It is refused, was given up, or its instance is dead; it was not sent.
        """
        driver = self._driver
        if driver.has_dropped:
            await driver.dropped_ended()
        operation = describe()
        if driver.switch.is_thrown:
            await driver.check_alive(operation.name)
        if asks and driver.time.gate is not None:
            operation = await self._turn(operation, describe, block)
        if driver.faults.has_any or driver.link.is_cut:
            operation = await self._through_troubles(operation, describe, block, asks)
        if driver.switch.is_thrown:
            await driver.check_alive(operation.name)
        if (refusal := driver.faults.refusal_of(operation)) is not None:
            raise refusal
        return operation

    async def _through_troubles(
        self,
        operation: Operation,
        describe: Callable[[], Operation],
        block: Block | None,
        asks: bool,
    ) -> Operation:
        driver = self._driver
        if (delay := driver.faults.delay_of(operation)) > 0:
            await self._hold_back(delay, block)
            operation = await self._turn(operation, describe, block) if asks else describe()
        while driver.link.is_cut:
            await driver.link.reached(operation, block=block, drop=self._drop)
            operation = await self._turn(operation, describe, block) if asks else describe()
        if (patience := driver.faults.hang_of(operation)) is not None:
            await self._hang(operation, patience, block)
        if driver.faults.crashes_before(operation):
            driver.crash_nowait()
        return operation

    async def _turn(
        self, operation: Operation, describe: Callable[[], Operation], block: Block | None
    ) -> Operation:
        text = operation.text if operation.name in UNTOLD else ""
        await self._driver.turn(operation.name, self._number, block, text)
        return describe()

    async def _hang(self, operation: Operation, patience: float, block: Block | None) -> NoReturn:
        """Wait for an answer that does not come, then drop the connection."""
        try:
            await self._hold_back(patience, block)
        finally:
            self._drop()
        raise given_up(operation, patience)

    async def _hold_back(self, seconds: float, block: Block | None) -> None:
        with nullcontext() if block is None else block.held_back():
            await anyio.sleep(seconds)
