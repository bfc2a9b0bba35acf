"""What `inboxkit check` finds: all that would stop a start, and what works but will cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from inboxkit._advisory import advisory_keys
from inboxkit._composing import checked_table, cluster_warnings, form_of
from inboxkit._core.handler import handler_name
from inboxkit._core.spec import Role
from inboxkit._db.process_keys import MemoryKeys
from inboxkit._including import Included
from inboxkit._including_together import left_to_others
from inboxkit._pausing import check_control
from inboxkit._skew import skew_watch
from inboxkit._sql.advice import missing_indexes
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.info import TableInfo
from inboxkit._sql.sqlite.time_text import odd_times
from inboxkit._sql.statement import Reading, Script, Steps
from inboxkit._sql.table import Table, bind
from inboxkit.errors import SchemaError, StartupError
from inboxkit.service import Service

__all__ = ["Finding", "Severity", "check_service"]

Severity: TypeAlias = Literal["error", "warning", "note"]
"""error: the service does not start. warning: it does, and something is wrong. note: good to know."""

_TIMES = (Role.RETRY_AFTER, Role.PROCESSED_AT, Role.LOCKED_UNTIL)
_SHOWN_IDS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    subject: str
    """The queue's name, or what else it is about."""
    text: str
    """What is wrong, and what to do."""


async def check_service(service: Service) -> list[Finding]:
    """Look at all that can be seen without running anything of the service's.

    Args:
        service: Its broker is open.

    Raises:
        DatabaseError: The database stopped answering.
    """
    # Queues of one table have its troubles in common: each is told once.
    by_text: dict[str, Finding] = {}
    async for finding in _look(service):
        by_text.setdefault(finding.text, finding)
    order: tuple[Severity, ...] = ("error", "warning", "note")
    return sorted(by_text.values(), key=lambda finding: order.index(finding.severity))


async def _look(service: Service) -> AsyncIterator[Finding]:
    broker = service.broker
    try:
        broker.database.check_writable()
    except StartupError as error:
        yield Finding("error", "database", str(error))
    if service.control is not None:
        try:
            await check_control(broker.database, service.control)
        except StartupError as error:
            yield Finding("error", "control table", _with_hooks(error, service))
    looked_at = set()
    for one in service.included:
        try:
            info = await _check_one(one, service)
        except StartupError as error:
            yield Finding("error", one.queue.name, _with_hooks(error, service))
            continue
        if one.spec.name not in looked_at:
            looked_at.add(one.spec.name)
            for finding in _indexes(one, service, info):
                yield finding
            async for finding in _times(one, service, info):
                yield finding
        for finding in _cap(one, service):
            yield finding
    for finding in _sessions(service):
        yield finding
    for one, warning in await cluster_warnings(service.included, broker):
        yield Finding("warning", one.queue.name, warning)
    async for finding in _clock(service):
        yield finding


async def _clock(service: Service) -> AsyncIterator[Finding]:
    watch = skew_watch(service.broker, service.included)
    excess = None if watch is None else await watch.excess()
    if excess is not None:
        yield Finding("warning", "clock", excess)


async def _check_one(one: Included, service: Service) -> TableInfo:
    database = service.broker.database
    info = await checked_table(one, service.broker)
    if one.spec.form == "advisory lock" and database.dialect != "sqlite":
        # On SQLite a service that runs has the keys, and that is as it should be.
        await advisory_keys(database, one.spec)
    others = left_to_others(one, service.included)
    form_of(one, others=others, broker=service.broker, info=info, keys=MemoryKeys())
    return info


def _with_hooks(error: StartupError, service: Service) -> str:
    is_missing = isinstance(error, SchemaError) and "does not exist" in str(error)
    if not is_missing or not service.startup_hooks:
        return str(error)
    names = ", ".join(handler_name(hook) for hook in service.startup_hooks)
    return f"{error}\n(the start-up hooks, {names}, may make it: check runs none)"


def _indexes(one: Included, service: Service, info: TableInfo) -> Iterator[Finding]:
    dialect = get_dialect(service.broker.database.dialect)
    first = dialect.indexes(one.spec)[0]
    for index in missing_indexes(dialect, one.spec, info):
        yield Finding(
            "warning" if index == first else "note",
            one.queue.name,
            f"table {one.spec.name!r} has no index for this ({index.purpose}); {index.text}",
        )


async def _times(one: Included, service: Service, info: TableInfo) -> AsyncIterator[Finding]:
    database = service.broker.database
    if database.dialect != "sqlite":
        return
    table = bind(get_dialect("sqlite"), one.spec, info)
    for role in _TIMES:
        ids = [] if table.find(role) is None else await database.run(_odd(table, role))
        if ids:
            name = table.get(role).name
            more = ", …" if len(ids) > _SHOWN_IDS else ""
            yield Finding(
                "warning",
                one.queue.name,
                f"table {one.spec.name!r} has rows whose {name!r} is no canonical time text, so that they "
                f"sort wrong and are set aside (id {', '.join(map(repr, ids[:_SHOWN_IDS]))}{more}); write "
                "every time as '2026-01-02T03:04:05.678901+00:00'",
            )


def _odd(table: Table, role: Role) -> Script[list[object]]:
    def steps(_reading: Reading) -> Steps[list[object]]:
        answer = yield odd_times(table, table.get(role), limit=_SHOWN_IDS + 1)
        return [row[0] for row in answer.rows]

    return Script("check times", steps, "read")


def _cap(one: Included, service: Service) -> Iterator[Finding]:
    name = one.queue.name
    if one.max_attempts is not None and one.spec.form == "row lock":
        yield Finding(
            "note",
            name,
            "in the row lock form a delivery whose process dies is not counted, so max_attempts does not "
            "stop a row that kills its process; a locked_until column (the lease form) would",
        )
    reads_dead = any(other.has_dead_letters_of(one) for other in service.included)
    if one.max_attempts is None and not reads_dead:
        yield Finding(
            "note",
            name,
            "no cap: a row that always fails is tried for ever; include it with max_attempts and "
            "dead_letter",
        )


def _sessions(service: Service) -> Iterator[Finding]:
    """Handlers at a time that need more connections than there are."""
    database = service.broker.database
    is_session = database.dialect != "sqlite"
    wanted = sum(
        1 if one.spec.fifo and not one.is_every_group else one.workers_by_key or one.workers
        for one in service.included
        if one.subscriber.transactional or (is_session and one.spec.form != "lease")
    )
    room = max(database.pool_size - 1, 1)
    if wanted > room:
        yield Finding(
            "warning",
            "pool",
            f"{wanted} handlers at a time keep a connection each, and a pool of {database.pool_size} has "
            f"{room} for them (one is left to their own statements): the others wait; give the Database "
            f"pool_size={wanted + 1}, or fewer workers",
        )
