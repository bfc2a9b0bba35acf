"""Databases for tests: the real ones, seen through `ObservedDriver`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Final
from weakref import WeakKeyDictionary

from inboxkit._db.drivers import make_driver
from inboxkit._db.sqlite_session import MEMORY
from inboxkit._db.turnstile import Turnstile
from inboxkit._db.url import DatabaseUrl, parse_url
from inboxkit.abc import Driver
from inboxkit.database import Database

from ._timekeeper import Timekeeper
from .clock import VirtualClock
from .faults import Faults
from .hosts import HostClock
from .inloop import InLoopDriver
from .observed import ObservedDriver
from .recording import Recording

__all__ = ["INLOOP", "STATEMENT_TIMEOUT", "ObservedDatabase", "open_test_database"]

STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
"""Where nothing else is said."""
INLOOP_MEMORY: Final = "sqlite-inloop"
INLOOP: Final = "sqlite+inloop://"

_turnstiles: WeakKeyDictionary[Timekeeper, dict[str, Turnstile]] = WeakKeyDictionary()


class ObservedDatabase(Database):
    """A `Database` whose statements are recorded, gated, and can be made to fail; made by
    `open_test_database`."""

    observed: ObservedDriver
    """Its driver."""
    url: str
    """Where it is, for another process to look at it: as `open_test_database` was told."""

    @property
    def recording(self) -> Recording:
        """What was sent."""
        return self.observed.recording

    @property
    def faults(self) -> Faults:
        """What goes wrong."""
        return self.observed.faults

    @property
    def instance(self) -> str:
        """Whose it is."""
        return self.observed.instance

    @property
    def is_crashed(self) -> bool:
        """Whether `crash` was called, or a fault has crashed it."""
        return self.observed.switch.is_thrown

    async def crash(self) -> None:
        """Kill the process whose database this is, as far as the database can tell.

        Its connections drop, what was not committed is undone, and no statement of it is sent again:
        one that is awaited now or later never returns. Cancel its tasks then; their `finally` and
        ``except BaseException`` cannot reach the database. A statement that nobody cancels, or that
        is shielded, raises `CrashedError` when nothing else can happen at this instant.

        Returns when the server has let go of its sessions; no virtual time passes.
        """
        await self.observed.crash()

    def crash_nowait(self) -> None:
        """As `crash`, without waiting for the server to notice."""
        self.observed.crash_nowait()


def open_test_database(
    url: str,
    *,
    clock: VirtualClock | HostClock,
    instance: str = "",
    pool_size: int = 10,
    random: Random | None = None,
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
) -> ObservedDatabase:
    """A database in virtual time; it is opened by ``async with``, like any `Database`.

    Several on one clock are several processes on one database, if they are given one URL. Those of a
    SQLite file share a turnstile: who waits for another's transaction has sent nothing, so time may
    pass.

    Args:
        url: As for `Database`; or ``sqlite-inloop`` (in memory) and ``sqlite+inloop:///file.db``:
            SQLite in the event loop's own thread, about twice as fast.
        clock: The time; `VirtualClock.at` makes that of a host whose clock is wrong.
        instance: Whose it is; sorts and names its statements at the gate.
        pool_size: Most connections at once.
        random: Where all randomness comes from; None: a source with the seed 0.
        statement_timeout: After this a statement is stopped, in virtual time.
    """
    timeout = statement_timeout.total_seconds()
    time = clock.clock if isinstance(clock, HostClock) else clock
    is_inloop = url == INLOOP_MEMORY or url.startswith(INLOOP)
    plain = f"sqlite:///{MEMORY}" if url == INLOOP_MEMORY else url.replace(INLOOP, "sqlite://", 1)
    parsed = parse_url(plain)

    def inloop() -> Driver:
        turnstile = _turnstile_of(time, parsed)
        return InLoopDriver(parsed.location, clock=clock, timeout=timeout, turnstile=turnstile)

    def real() -> Driver:
        turnstile = _turnstile_of(time, parsed)
        return make_driver(parsed, clock=clock, timeout=timeout, turnstile=turnstile)

    make: Callable[[], Driver] = inloop if is_inloop else real
    driver = ObservedDriver(
        make,
        dialect=parsed.dialect,
        clock=clock,
        instance=instance,
        server_url=None if parsed.dialect == "sqlite" else parsed.location,
    )
    seeded = random if random is not None else Random(0)  # noqa: S311
    database = ObservedDatabase.over(driver, pool_size=pool_size, clock=clock, random=seeded)
    assert isinstance(database, ObservedDatabase)
    database.observed = driver
    database.url = url
    return database


def _turnstile_of(clock: VirtualClock, url: DatabaseUrl) -> Turnstile | None:
    if url.dialect != "sqlite" or url.location == MEMORY:
        return None
    of_this_run = _turnstiles.setdefault(clock.keeper, {})
    return of_this_run.setdefault(url.location, Turnstile())
