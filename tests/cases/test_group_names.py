"""Group names are compared letter by letter, whatever a column's collation takes for one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from cases_kit import SECOND, Job, everywhere, make, serve

from inboxkit import Broker, Database, Inbox, InboxQueue, Service, ack, retry, role
from inboxkit_testing import TestApp, VirtualClock

BEER, SUSHI = "\N{BEER MUG}", "\N{SUSHI}"
NAMES = [BEER, SUSHI, "Mail", "mail", "mail ", "", None, f"{SUSHI}.dead"]


class Line(Inbox, table="jobs"):
    id: int = role.id(generated=True)
    name: str = role.group(fifo=True)
    attempt: int = role.attempt(generated=True)
    lease: datetime | None = role.locked_until()
    payload: bytes = role.payload()


@everywhere
@pytest.mark.parametrize("row", [Job, Line], ids=["plain", "fifo"])
async def test_each_queue_gets_its_own_rows_alone(
    row: Any, inbox_database: Database, frozen_clock: VirtualClock
) -> None:
    """And its dead letters are apart from those of the names that look alike."""
    db = inbox_database
    await make(db)
    for number, name in enumerate(NAMES):
        await db.execute("INSERT INTO jobs (name, payload) VALUES ($1, $2)", name, b"%d" % number)
    app = Service("service", Broker(db))
    # The other names' rows are in work elsewhere: of a FIFO group that would hold up the rest.
    later = frozen_clock.now().replace(year=2035)
    await db.execute("UPDATE jobs SET lease = $1 WHERE id IN (2, 3, 5)", later)
    found = {}
    for name, answer in ((BEER, retry()), ("mail", ack())):
        _, found[name] = serve(
            db,
            InboxQueue(row, name, bytes),
            lambda _m, _d, answer=answer: answer,
            app=app,
            max_attempts=1 if name == BEER else None,
            **({"dead_letter": f"{BEER}.dead"} if name == BEER else {}),
        )
    async with TestApp(app) as kit:
        await kit.advance(3 * SECOND)
        assert found == {BEER: [(b"0", 1)], "mail": [(b"3", 1)]}
        rows = {r.id: r.name for r in await kit.rows(row)}
    left = {n: name for n, name in enumerate(NAMES, 1) if name not in (BEER, "mail")}
    assert rows == {1: f"{BEER}.dead", **left}
