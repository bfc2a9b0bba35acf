"""LISTEN and NOTIFY of a broker: which channels its tables have, and who is told of new rows."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._core.spec import InboxSpec
from ._db.connection import Connection, Transaction
from ._db.foreign import foreign_of
from ._db.poolers import refuse_transaction_pooling
from ._runtime.listening import Listener
from ._runtime.records import describe_error, log
from ._sql.postgres.notify import IS_READ_ONLY, channel_of, notify, payload_of
from ._sql.statement import Reading, Script, Steps
from .clock import SystemClock
from .errors import DatabaseError, InboxkitError

if TYPE_CHECKING:
    from ._including import Included
    from .database import Database

__all__ = ["listener_of", "tell", "tell_on_foreign"]

_CURE = (
    "listen_notify listens in a session of its own; let the pooler pool sessions (pool_mode = session), or "
    "connect to the server itself, or leave listen_notify out: the poll finds the rows"
)


async def listener_of(database: Database, included: Sequence[Included]) -> Listener:
    """What listens for the rows of these subscriptions.

    Raises:
        DeclarationError: A table's channel would be too long.
        DialectError: A pooler shares sessions.
        StartupError: A table cannot be described.
    """
    if database.dialect == "postgres":
        await refuse_transaction_pooling(database, cure=_CURE)
    channels: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in included:
        channel = channel_of(await database.describe(one.spec))
        channels[channel][one.spec.name] = None
    return Listener(
        database.connect_apart, channels, database.wakes, database.clock, is_read_only=IS_READ_ONLY
    )


async def tell(connection: Connection, channel: str, groups: Iterable[str | None]) -> None:
    """Tell other processes of rows that were written on one of our connections.

    Inside a transaction they are told with its commit, of each group once. A failure is a warning:
    the rows are found by the next poll.
    """
    told = dict.fromkeys((channel, payload_of(group)) for group in groups)
    if isinstance(connection, Transaction):
        connection.notify_at_commit(told)
        return
    try:
        await connection.run(_script(told))
    except DatabaseError as error:
        log(logging.WARNING, "other processes were not notified: %s", describe_error(error))


async def tell_on_foreign(
    connection: Any, database: Database, spec: InboxSpec, group: str | None
) -> None:
    """Tell other processes of a row on a connection of the caller's; inside its transaction, if any.

    There is no savepoint around it: what the server refuses, it refuses to the caller's transaction.
    """
    try:
        channel = channel_of(await database.describe(spec))
    except InboxkitError as error:
        log(logging.WARNING, "other processes were not notified: %s", describe_error(error))
        return
    foreign = await foreign_of(connection)
    await foreign.run(_script([(channel, payload_of(group))]), SystemClock())


def _script(told: Iterable[tuple[str, str]]) -> Script[None]:
    def steps(_reading: Reading) -> Steps[None]:
        yield notify(told)

    return Script("notify", steps, "none")
