"""Queues paused and resumed, by the control table."""

from __future__ import annotations

from collections.abc import Sequence

from inboxkit._pausing import check_control
from inboxkit._sql.control import read_paused, resume
from inboxkit._sql.dialect import get_dialect
from inboxkit.errors import DatabaseError
from inboxkit.insert import insert_rows
from inboxkit.service import Service

__all__ = ["set_paused"]


async def set_paused(service: Service, queues: Sequence[str], *, paused: bool) -> set[str]:
    """Pause or resume queues.

    Args:
        service: Has a control table; its broker is open.
        queues: Their names.
        paused: Which of the two.

    Returns:
        Those that were not so before.

    Raises:
        SchemaError: The control table does not fit.
        EncodeError: It cannot hold a name.
        DatabaseError: It could not be written.
    """
    database, spec = service.broker.database, service.control
    assert spec is not None
    dialect = get_dialect(database.dialect)
    await check_control(database, spec)
    changed = set()
    for queue in dict.fromkeys(queues):
        if paused:
            row = spec.of(queue=queue, paused_at=database.clock.now())
            async with database.transaction() as tx:
                ids = await insert_rows(tx, row, on_conflict="ignore")
            was_changed = ids != [None]
        else:
            was_changed = await database.run(resume(dialect, spec, queue))
        if was_changed:
            changed.add(queue)
    now = await database.run(read_paused(dialect, spec))
    for queue in queues:
        if (queue in now) != paused:
            # A collation that takes two names for one, or a trigger.
            raise DatabaseError(
                f"the control table {spec.name!r} does not tell {queue!r} from other names; make it as "
                "inboxkit ddl prints it",
                statement="control",
            )
    return changed
