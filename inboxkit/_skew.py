"""Which services have their host's clock compared with the database server's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from ._runtime.skew import SkewWatch
from ._sql import server_time
from ._sql.statement import Reading, Script, Steps
from .abc import ServerClock

if TYPE_CHECKING:
    from ._including import Included
    from .broker import Broker
    from .database import Database

__all__ = ["skew_watch"]


def skew_watch(broker: Broker, included: Sequence[Included]) -> SkewWatch | None:
    """What compares the clocks; None where there is nothing to compare.

    That is so on SQLite, whose clock is the host's; with a `DatabaseClock`; for a clock that says that
    it `is_virtual`; and without leases.
    """
    database = broker.database
    clock = database.clock
    if database.dialect == "sqlite" or isinstance(clock, ServerClock):
        return None
    if getattr(clock, "is_virtual", False):
        return None
    leases = [
        one.queue.lease or broker.lease for one in included if one.spec.locked_until is not None
    ]
    if not leases:
        return None

    async def measure() -> tuple[timedelta, timedelta]:
        return await database.run(
            Script("clock", lambda before: _compare(database, before), "none")
        )

    return SkewWatch(measure, clock, min(leases) / 10)


def _compare(database: Database, before: Reading) -> Steps[tuple[timedelta, timedelta]]:
    answer = yield server_time.ask(database.dialect)
    doubt = (database.clock.now() - before.now) / 2
    return before.now + doubt - server_time.read(answer), abs(doubt)
