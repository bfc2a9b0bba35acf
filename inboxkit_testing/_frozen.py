"""Other things that take the time away: freezegun and time-machine, and a clock that they do not reach."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from inboxkit.errors import DeclarationError

__all__ = ["check_not_frozen", "real_seconds"]

_STACKS = (
    ("freezegun", "freezegun.api", "freeze_factories"),
    ("time-machine", "time_machine", "traveller_stack"),
    ("time-machine", "time_machine", "coordinates_stack"),  # before 3.0
)
"""A library, its module, and the list of what it has frozen and not yet let go."""


def real_seconds(_read: Callable[[], float] = time.perf_counter) -> float:
    """Real seconds of no particular beginning.

    Bound here, since freezegun replaces what modules are found to hold; time-machine lets this one be.
    """
    return _read()


def check_not_frozen() -> None:
    """Refuse virtual time beside another one.

    Raises:
        DeclarationError: freezegun or time-machine has frozen or moved the process's time.
    """
    for library, module, stack in _STACKS:
        if module in sys.modules and getattr(sys.modules[module], stack, None):
            raise DeclarationError(
                f"{library} has taken over the time of this process, and a run in virtual time has a time "
                "of its own: what reads datetime.now() would see the one, and every sleep, lease and "
                f"timeout the other. Leave {library} out of this test: start the clock where you want it, "
                "VirtualClock(start=...), and let the service ask for clock.now()"
            )
