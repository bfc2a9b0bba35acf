"""A row that cannot be settled: where it is back at once, it does not keep the others back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from database_cells import cells
from runtime_kit import MINUTE, Handler, Work, create, put, serve

from inboxkit import Database, Inbox, InboxQueue, role
from inboxkit_testing import VirtualClock


class Locked(Inbox, table="unsettled_locked"):
    """Under the lock of its claim's transaction."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Keyed(Inbox, table="unsettled_keyed", advisory_lock="unsettled-{id}"):
    """Under an advisory lock."""

    id: int = role.id(generated=True)
    payload: bytes = role.payload()


class Fifo(Inbox, table="unsettled_fifo"):
    """In order."""

    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    payload: bytes = role.payload()


LOCKED = InboxQueue(Locked, "locked", Work)
KEYED = InboxQueue(Keyed, "keyed", Work)
FIFO = InboxQueue(Fifo, "fifo", Work)


@pytest.mark.parametrize(
    ("inbox_db", "inbox_backend", "queue"),
    [
        pytest.param(*cell.values, queue, id=f"{cell.id}-{queue.name}", marks=cell.marks)
        for queue in (LOCKED, KEYED, FIFO)
        for cell in cells("postgres", "mariadb", "mysql", *(("sqlite",) if queue is KEYED else ()))
    ],
)
async def test_a_row_that_cannot_be_settled_lets_others_go_first(
    inbox_database: Database, virtual_clock: VirtualClock, queue: InboxQueue[Any, Work]
) -> None:
    await create(inbox_database, queue.row)
    first, *_ = await put(inbox_database, queue, *range(4))
    table = queue.spec.table
    if inbox_database.dialect == "sqlite":
        await inbox_database.execute(
            f"CREATE TRIGGER kept BEFORE DELETE ON {table} WHEN old.id = {first} "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    else:
        await inbox_database.execute(
            f"CREATE TABLE kept (id bigint, FOREIGN KEY (id) REFERENCES {table} (id))"
        )
        await inbox_database.execute("INSERT INTO kept VALUES ($1)", first)
    handler = Handler()
    async with serve(inbox_database, queue, handler).running():
        await virtual_clock.advance(MINUTE)
    runs = Counter(handler.numbers)
    if queue is FIFO:
        assert runs == {0: 61}, "its order is kept"
        return
    assert handler.numbers[:6] == [0, 0, 0, 1, 2, 3], (
        "tried again after a second, and then the others"
    )
    assert runs == {0: 8, 1: 1, 2: 1, 3: 1}, "once in ten seconds from then on"
