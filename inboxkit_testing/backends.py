"""What `VirtualClock` needs of an event loop, and where the two loops come from.

asyncio and trio are imported when a run on them begins, so that a plugin that loads in every pytest
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from inboxkit.errors import MissingExtraError

if TYPE_CHECKING:
    from ._timekeeper import Timekeeper

__all__ = ["BackendName", "Call", "Choose", "Host", "VirtualBackend", "open_backend"]

BackendName = Literal["asyncio", "trio"]
Choose: TypeAlias = Callable[[int], int]
"""Given how many things are to be chosen from (2 or more), the index of one."""


class VirtualBackend(Protocol):
    """One loop in virtual time; for one run."""

    @property
    def options(self) -> dict[str, Any]:
        """`backend` and `backend_options` of `anyio.run`."""
        ...

    def bind(self, keeper: Timekeeper) -> None:
        """Take the time from here; before the run begins."""
        ...

    async def sleep_until(self, when: float) -> None:
        """Wait for that second of the run; a checkpoint if it has passed."""
        ...

    def host(self) -> Host:
        """What turns this loop from sync code, in place of `anyio.run`."""
        ...


class Call(Protocol):
    """Something that the loop is turned for."""

    is_done: bool
    when_done: Callable[[], None]
    """Called once, in the loop, when it becomes done."""


class Host(Protocol):
    """Turns a loop by pieces; all calls come from one thread."""

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the loop with this main, which has not run yet or has run a little."""
        ...

    def turn_until(self, call: Call) -> None:
        """Turn the loop until the call is done."""
        ...

    def stop(self) -> None:
        """Turn it until the main has ended, and close it; raises what the main raised."""
        ...


def open_backend(name: BackendName, *, choose: Choose | None = None) -> VirtualBackend:
    """A fresh loop in virtual time.

    Args:
        name: ``"asyncio"`` or ``"trio"``.
        choose: Picks the next among the tasks that are ready, in the order in which they became so;
            what comes from outside then comes when nothing else can happen. None: the loop's own
            order, which on trio is another in each run.

    Raises:
        StartupError: This version of trio keeps its order to itself.
    """
    if name == "asyncio":
        from ._asyncio_loop import AsyncioBackend  # noqa: PLC0415 - see above

        return AsyncioBackend(choose)
    if name == "trio":
        try:
            from ._trio_clock import TrioBackend  # noqa: PLC0415 - see above
        except ImportError as error:
            raise MissingExtraError(
                "trio is not installed: pip install 'inboxkit[trio]'"
            ) from error
        return TrioBackend(choose)
    raise ValueError(f"expected the backend 'asyncio' or 'trio', got {name!r}")
