"""The control table of a service: checked, and watched while the service runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ._core.spec import InboxSpec
from ._runtime.pausing import Pausable, PauseWatch
from ._sql.control import create_control, read_paused
from ._sql.dialect import get_dialect
from .errors import SchemaError

if TYPE_CHECKING:
    from .broker import Broker
    from .database import Database

__all__ = ["check_control", "pause_watch"]


async def check_control(database: Database, spec: InboxSpec) -> None:
    """Check that the control table is there and can hold what it is for.

    Raises:
        SchemaError: It is missing, or a column is or cannot hold its values.
    """
    try:
        await database.describe(spec, fresh=True)
    except SchemaError as error:
        text = str(error).partition("; inboxkit makes no tables")[0]
        if text != str(error):
            statement = create_control(get_dialect(database.dialect), spec)
            text += f"; make it, such as by:\n{statement}"
        error.args = (f"control table: {text}", *error.args[1:])
        raise


async def pause_watch(broker: Broker, spec: InboxSpec, queues: Sequence[Pausable]) -> PauseWatch:
    """What pauses the queues as the control table says.

    Raises:
        SchemaError: The table does not fit.
    """
    database = broker.database
    await check_control(database, spec)
    read = partial(database.run, read_paused(get_dialect(database.dialect), spec))
    return PauseWatch(read, queues, database.clock, broker.poll_interval)
