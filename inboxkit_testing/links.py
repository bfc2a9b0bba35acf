"""The way from one instance to its database, which a test may cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import anyio

from .faults import Operation, broken_in_transaction, given_up

if TYPE_CHECKING:
    from ._brackets import Block

__all__ = ["How", "Link"]

How = Literal["hang", "fail"]


class Link:
    """Whether statements of one instance reach its database.

    One that is sent while the link is cut has not reached the server, so it is not in flight and
    time may pass.
    """

    def __init__(self) -> None:
        self._healed = anyio.Event()
        self.how: How | None = None
        """None: it is whole. hang: statements wait until it is healed, or for `patience`. fail: they
        fail at once."""
        self.patience: float = 30.0
        """Seconds after which a hanging statement is given up."""

    @property
    def is_cut(self) -> bool:
        """Whether nothing reaches the database."""
        return self.how is not None

    def cut(self, how: How) -> None:
        """From here on nothing reaches the database."""
        self.how = how

    def heal(self) -> None:
        """From here on everything does, and so does what hangs."""
        self.how = None
        self._healed.set()
        self._healed = anyio.Event()

    async def healed(self) -> bool:
        """Wait until it is whole; False: it is not, and this statement is given up."""
        healed = self._healed
        if self.how == "hang":
            with anyio.move_on_after(self.patience):
                await healed.wait()
        return self.how is None

    async def reached(
        self, operation: Operation, *, block: Block | None, drop: Callable[[], None]
    ) -> None:
        """Wait until the link is whole, or give the operation up.

        Args:
            operation: What is to be sent.
            block: The transaction of the service's own that it belongs to.
            drop: Drops its connection: a client that cannot take back what it has sent does so.

        Raises:
            DatabaseBusyError: It was refused; or given up, and its transaction is gone.
            OutcomeUnknownError: It was given up, and would have lasted.
        """
        has_failed = self.how == "fail"
        try:
            with nullcontext() if block is None else block.held_back():
                is_healed = await self.healed()
        except BaseException:
            drop()
            raise
        if is_healed:
            return
        drop()
        if has_failed:
            raise broken_in_transaction(operation)
        raise given_up(operation, self.patience)
