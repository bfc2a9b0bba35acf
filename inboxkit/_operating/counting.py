"""How each queue of a service stands."""

from __future__ import annotations

from dataclasses import dataclass

from inboxkit._pausing import check_control
from inboxkit._sql.control import read_paused
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.stats import Standing, standing
from inboxkit.service import Service

from .places import dead_letters, open_dead_letter, open_table, scope_of

__all__ = ["QueueStanding", "count_queues", "paused_queues"]


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """One queue."""

    queue: str
    table: str
    form: str
    """Its claim form."""
    dead_letter: str | None
    """The name of its dead letter."""
    is_paused: bool | None
    """None: the service has no control table."""
    rows: Standing


async def count_queues(service: Service) -> list[QueueStanding]:
    """Count the rows of each queue, in one statement a queue.

    Raises:
        StartupError: A table does not fit its description.
        DatabaseError: The database did not answer.
    """
    database = service.broker.database
    paused = await paused_queues(service)
    found = []
    for one in service.included:
        queue = await open_table(database, one.spec), scope_of(one, service.included)
        letter = next((each for each in dead_letters(service) if one in each.sources), None)
        dead = None
        if letter is not None:
            dead = await open_dead_letter(database, letter), letter.scope
        rows = await database.run(standing(queue, dead))
        name = one.queue.name
        found.append(
            QueueStanding(
                name,
                one.spec.name,
                one.spec.form,
                None if letter is None else letter.name,
                None if paused is None else name in paused,
                rows,
            )
        )
    return found


async def paused_queues(service: Service) -> frozenset[str] | None:
    """The names in the control table; None: the service has none.

    Raises:
        SchemaError: The table does not fit.
    """
    if service.control is None:
        return None
    database = service.broker.database
    await check_control(database, service.control)
    return await database.run(read_paused(get_dialect(database.dialect), service.control))
