"""How a running service is told to end, and how far it goes each time it is told."""

from __future__ import annotations

import enum

import anyio

__all__ = ["CANCEL_SECONDS", "RELEASE_SECONDS", "Phase", "Stop", "longest_stop"]

CANCEL_SECONDS = 5.0
"""How long cancelled handlers are waited for."""
RELEASE_SECONDS = 5.0
"""How long what is unsettled may take to be released."""
_LATE_SECONDS = 2.0


def longest_stop(drain_seconds: float) -> float:
    """Seconds after which a stop that has not ended hangs."""
    return drain_seconds + CANCEL_SECONDS + RELEASE_SECONDS + _LATE_SECONDS


class Phase(enum.IntEnum):
    """What is asked of a service; each includes those before it."""

    DRAIN = 1
    """Claim no more; let handlers finish."""
    CANCEL = 2
    """Cancel the handlers."""
    RELEASE = 3
    """Wait for nothing: give back what is unsettled and go."""


class Stop:
    """The request to stop, which only ever grows."""

    def __init__(self) -> None:
        self._asked = {phase: anyio.Event() for phase in Phase}
        self._scopes: dict[anyio.CancelScope, Phase] = {}
        self.error: BaseException | None = None

    def request(self, phase: Phase = Phase.DRAIN) -> None:
        """Ask for a phase and those before it."""
        for asked, event in self._asked.items():
            if asked <= phase:
                event.set()
        for scope, at in self._scopes.items():
            if at <= phase:
                scope.cancel()

    def fail(self, error: BaseException) -> None:
        """Ask for a drain because of an error; the first one is what `run` raises."""
        if self.error is None:
            self.error = error
        self.request()

    def is_requested(self, phase: Phase = Phase.DRAIN) -> bool:
        """Whether a phase was asked for."""
        return self._asked[phase].is_set()

    async def wait(self, phase: Phase = Phase.DRAIN) -> None:
        """Wait until a phase is asked for."""
        await self._asked[phase].wait()

    def cancels(self, scope: anyio.CancelScope, phase: Phase = Phase.DRAIN) -> None:
        """Cancel `scope` when that phase is asked for: a start-up, or a wait, that is no longer wanted."""
        self._scopes[scope] = phase
        if self.is_requested(phase):
            scope.cancel()

    def spares(self, scope: anyio.CancelScope) -> None:
        """Leave `scope` alone from now on."""
        del self._scopes[scope]
