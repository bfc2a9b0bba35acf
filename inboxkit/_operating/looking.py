"""Looks at how a running service's queues stand, at a bounded rate and cost, for what shows it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio

from inboxkit._runtime.records import describe_error, log
from inboxkit._sql.postgres.snapshots import Snapshot, oldest_snapshot
from inboxkit._sql.stats import MOST, Standing
from inboxkit.database import Database
from inboxkit.errors import DatabaseError, DeclarationError, InboxkitError
from inboxkit.service import Service

from .counting import QueueStanding, count_queues

__all__ = ["INTERVAL", "SNAPSHOT_LIMIT", "Look", "Looker", "ages", "counts"]

INTERVAL: Final = timedelta(seconds=15)
"""Between two looks, where nobody says otherwise."""
SNAPSHOT_LIMIT: Final = timedelta(minutes=5)
"""The age of a snapshot that is warned of, where nobody says otherwise."""
_LONGEST_LOOK: Final = 10.0
"""Seconds after which a look is given up, if its interval is no shorter."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found."""

    queues: Sequence[QueueStanding]
    snapshot: Snapshot | None
    """None: not known, or another database than PostgreSQL."""


def counts(rows: Standing) -> dict[str, int | None]:
    """Rows by how they stand, `MOST` where there are more; None: the claim form does not tell."""
    found = {
        "due": rows.due,
        "waiting": rows.waiting,
        "in_work": rows.in_work,
        "expired": rows.expired,
        "dead": rows.dead,
    }
    return {name: None if count is None else min(count, MOST) for name, count in found.items()}


def ages(rows: Standing) -> dict[str, float | None]:
    """Seconds for which the oldest row has been due, and its lease over: 0 where there is none, None
    where that is not known."""
    return {
        "oldest_due": _age(rows.due, rows.oldest_due, rows.at),
        "oldest_expired_lease": _age(rows.expired, rows.oldest_expired, rows.at),
    }


def _age(count: int | None, since: datetime | None, now: datetime) -> float | None:
    if count == 0:
        return 0.0
    return None if since is None else max((now - since).total_seconds(), 0.0)


class Looker:
    """Looks once an interval while a service runs.

    A look is one statement a queue, whose counts stop at `MOST`, on one connection of the pool; on
    PostgreSQL one more, about held snapshots. It is given up after 10 seconds, or an interval. One
    that fails is told once, until one succeeds.

    Args:
        service: Whose queues.
        found: Called after each look; with None where it failed, and when the service stops.
        looked: Called after each look, with whether it was answered.
        interval: Between two looks; jitter shortens it by a tenth at most.
        snapshot_limit: The age of a held snapshot that is warned of.

    Raises:
        DeclarationError: An interval or a limit is not a positive timedelta.
    """

    def __init__(
        self,
        service: Service,
        found: Callable[[Look | None], None],
        looked: Callable[[bool], None],
        *,
        interval: timedelta,
        snapshot_limit: timedelta,
    ) -> None:
        for name, value in (("interval", interval), ("snapshot_limit", snapshot_limit)):
            if not isinstance(value, timedelta) or value <= timedelta(0):
                raise DeclarationError(f"{name} must be a positive timedelta, not {value!r}")
        self._service = service
        self._found = found
        self._looked = looked
        self._seconds = interval.total_seconds()
        self._limit = snapshot_limit.total_seconds()
        self._is_failing = False
        self._is_old = False

    async def run(self, _service: Service) -> None:
        """Look until cancelled."""
        database = self._service.broker.database
        try:
            while True:
                look = await self._look(database)
                self._found(look)
                self._looked(look is not None)
                await database.clock.sleep(self._seconds * database.random.uniform(0.9, 1.0))
        finally:
            self._found(None)

    async def _look(self, database: Database) -> Look | None:
        bound = min(_LONGEST_LOOK, self._seconds)
        try:
            with anyio.fail_after(bound):
                queues = await count_queues(self._service)
                snapshot = await self._snapshot(database)
        except (InboxkitError, TimeoutError) as error:
            if not self._is_failing:
                self._is_failing = True
                text = "the queues could not be counted, so telemetry leaves their gauges out: %s"
                log(logging.WARNING, text, describe_error(error))
            return None
        self._is_failing = False
        return Look(queues, snapshot)

    async def _snapshot(self, database: Database) -> Snapshot | None:
        if database.dialect != "postgres":
            return None
        try:
            snapshot = await database.run(oldest_snapshot())
        except DatabaseError as error:
            # What speaks PostgreSQL's protocol need not have its views.
            log(logging.DEBUG, "held snapshots are not known: %s", describe_error(error))
            return None
        is_old = snapshot.age > self._limit
        if is_old and not self._is_old:
            log(logging.WARNING, "%s", _warning(snapshot))
        self._is_old = is_old
        return snapshot


def _warning(snapshot: Snapshot) -> str:
    who = f"of user {snapshot.user!r}, application {snapshot.application!r}, {snapshot.state}"
    where = "a prepared transaction" if snapshot.pid is None else f"backend {snapshot.pid}"
    return (
        f"a transaction has been open for {snapshot.age:.0f} s ({where} {who}): PostgreSQL removes no row "
        "that was deleted since, and each claim walks over them; end it, or shorten what holds it (a long "
        "query, a dump, a session idle in transaction, a handler of a row-lock queue)"
    )
