"""Sessions whose connection was dropped in a run, and that their server may not have ended yet.

It sees a cut socket a moment later, and until then keeps the session's locks. Virtual time does not wait
for that moment: hours may pass before it. So whatever is sent next, by any instance of the run, is sent
when the server has ended them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio

from inboxkit.errors import ConnectError

from .sessions import end_sessions

if TYPE_CHECKING:
    from inboxkit.abc import Driver

    from ._timekeeper import Timekeeper
    from .clock import VirtualClock
    from .kept import KeptSessions

__all__ = ["DroppedSessions", "dropped_sessions_of"]

_of_run: WeakKeyDictionary[Timekeeper, DroppedSessions] = WeakKeyDictionary()


def dropped_sessions_of(keeper: Timekeeper) -> DroppedSessions:
    """The one of this run."""
    found = _of_run.get(keeper)
    if found is None:
        found = _of_run[keeper] = DroppedSessions()
        keeper.endings.append(found.clear)
    return found


class DroppedSessions:
    """The sessions that were dropped since a server was asked last."""

    def __init__(self) -> None:
        self._by_server: dict[str, list[int]] = {}
        self._asking = anyio.Lock()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_server)

    def add(self, server: str, session: int) -> None:
        """One was dropped there."""
        self._by_server.setdefault(server, []).append(session)

    def clear(self) -> None:
        """The run is over."""
        self._by_server.clear()

    async def ended(
        self, server: str, driver: Driver, clock: VirtualClock, kept: KeptSessions | None
    ) -> None:
        """Return when that server has ended all that were dropped; the clock stands meanwhile.

        Args:
            server: Where they are.
            driver: Connects there.
            clock: The run's.
            kept: Where a session to ask by is to be had.

        Raises:
            ClockStalledError: Some are still there after five seconds.
        """
        async with self._asking:  # who comes while another asks waits for the same answer
            while sessions := self._by_server.get(server):
                asked = list(sessions)
                with clock.external("end of dropped sessions"), suppress(ConnectError):
                    await end_sessions(driver, asked, driver.dialect, kept=kept)
                # What was dropped while it was asked is asked for in the next round.
                del sessions[: len(asked)]
                if not sessions:
                    self._by_server.pop(server, None)
