"""The way from one instance to its database, which a test may cut."""

from __future__ import annotations

from typing import Literal

import anyio

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
        self.patience = 30.0
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
