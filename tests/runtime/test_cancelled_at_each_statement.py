"""A service cancelled at each statement of a delivery: no session stays in a transaction, and the row is
settled once or handed out again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import pytest
from runtime_kit import MINUTE, Work, another, count, create, observed, put

from inboxkit import (
    Broker,
    Database,
    Inbox,
    InboxQueue,
    Service,
    TransactionalDelivery,
    role,
    subscriber,
)
from inboxkit._db.backend import waker
from inboxkit_testing import VirtualClock
from inboxkit_testing.faults import Operation


class Leased(Inbox, table="cut_leased"):
    """Under a lease."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    locked_until: datetime | None = role.locked_until()
    payload: bytes = role.payload()


class Locked(Inbox, table="cut_locked"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="cut_keyed", advisory_lock="cut-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    attempt: int = role.attempt(generated=True)
    payload: bytes = role.payload()


QUEUES: dict[str, InboxQueue[Any, Work]] = {
    "lease": InboxQueue(Leased, "leased", Work),
    "row": InboxQueue(Locked, "locked", Work),
    "key": InboxQueue(Keyed, "keyed", Work),
}


@pytest.mark.parametrize(
    ("inbox_db", "form"),
    [
        ("sqlite", "lease"),
        ("sqlite", "key"),
        ("postgres", "lease"),
        ("postgres", "row"),
        ("postgres", "key"),
        ("mariadb", "row"),
    ],
)
async def test_a_service_cancelled_at_any_statement_leaves_nothing_open_and_doubles_nothing(
    inbox_database: Database, virtual_clock: VirtualClock, form: str
) -> None:
    queue = QUEUES[form]
    await create(inbox_database, queue.row)
    await inbox_database.execute("CREATE TABLE effects (n int)")

    @subscriber(queue, transactional=True)
    async def handle(work: Work, delivery: TransactionalDelivery) -> None:
        await delivery.tx.execute("INSERT INTO effects VALUES ($1)", work.n)

    def service(database: Database) -> Service:
        app = Service("service", Broker(database))
        app.include(handle)
        return app

    number = 0
    async with another(inbox_database, "cut") as database:
        pool = database._pool
        assert pool is not None
        for at_end in (False, True):
            was_cut, nth = True, 0
            while was_cut:
                number, nth = number + 1, nth + 1
                await put(inbox_database, queue, number)
                was_cut = await _cut(service(database), nth, at_end=at_end)
                assert pool.in_use == 0
                assert [c for c in pool._idle if not c.is_closed and c.in_transaction] == []
                assert database.room._free == 9
            assert nth > 6, "a claim, the handler's statement and the ack were met"
    async with service(inbox_database).running():
        await virtual_clock.advance(MINUTE)
    assert await count(inbox_database, queue.row) == 0
    effects = await inbox_database.fetch("SELECT n FROM effects ORDER BY n")
    assert [n for (n,) in effects] == list(range(1, number + 1))


async def _cut(app: Service, nth: int, *, at_end: bool) -> bool:
    """Run a service until its nth statement since it served is sent, or was answered; then cancel it.

    Returns:
        Whether there was such a statement within half a second.
    """
    database = app.broker.database
    wake = waker()  # SQLite's statements are met in their thread
    seen = 0
    was_cut = False
    with anyio.CancelScope() as scope:

        def strike(operation: Operation) -> bool:
            nonlocal seen, was_cut
            if operation.script == "describe":
                return False
            seen += 1
            if seen == nth:
                was_cut = True
                wake(scope.cancel)
            return False

        faults = observed(database).faults
        faults.clear()
        (faults.lose_reply if at_end else faults.refuse)(strike)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.run)
            await database.clock.sleep(0.5)
            tasks.cancel_scope.cancel()
    return was_cut
