"""How many entries of indexes a look for groups reads on MariaDB and MySQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from inboxkit._core.spec import Column, InboxSpec
from inboxkit._sql.ddl import create_table
from inboxkit._sql.dialect import get_dialect
from inboxkit._sql.every_group import Look, Others, get_every_group
from inboxkit._sql.mysql.every_group import STEPS
from inboxkit._sql.table import bind
from inboxkit.database import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FORMS = {
    "FIFO": {"fifo": True, "locked_until": Column("lease")},
    "FIFO with due times": {
        "fifo": True,
        "locked_until": Column("lease"),
        "retry_after": Column("due", default=None),
    },
    "lease": {"locked_until": Column("lease"), "retry_after": Column("due", default=None)},
    "finished rows": {"locked_until": Column("lease"), "processed_at": Column("done")},
    "row lock": {"retry_after": Column("due", default=None)},
}
GROUPS, ROWS = 300, 9_000


@pytest.mark.parametrize("form", FORMS)
def test_a_look_reads_a_few_entries_for_each_group(mysql_url: str, table: str, form: str) -> None:
    """However many groups come before, rows a group has, and of them are in work or not yet due."""

    async def main() -> None:
        async with Database(mysql_url) as db:
            bound = await fill(db, InboxSpec(table, **BASE, **FORMS[form]))
            has_lease = bound.spec.locked_until is not None
            every = get_every_group(bound, cap=None, others=Others())
            name = bound.sql
            for change, due in [
                ("", STEPS),
                *([(f"lease = '2040-01-01' WHERE id <= {GROUPS}", 0)] * has_lease),
                *([("due = '2040-01-01'", 0)] * (bound.spec.retry_after is not None)),
            ]:
                if change:
                    await db.execute(f"UPDATE {name} SET {change}")
                    await db.execute(f"ANALYZE TABLE {name}")
                for after in (None, "g1450"):
                    look = every.look(Look(after, (), STEPS), now=NOW)
                    async with db.transaction() as tx:
                        before = await reads(tx)
                        rows = await tx.fetch(look.text, *look.parameters)
                        read = await reads(tx) - before
                    found = [row[0] for row in rows if row[0] is not None]
                    is_free = bound.spec.fifo or not change.startswith("lease")
                    assert len(found) == (due if is_free else STEPS), change
                    # The answer goes through tables of its own, several times.
                    assert read <= 40 * STEPS, (change, after, read)

    anyio.run(main)


BASE = {"id": Column("id", generated=True, type=int), "group": Column("grp")}


async def fill(db: Database, spec: InboxSpec) -> Any:
    dialect = get_dialect("mysql")
    for statement in create_table(dialect, spec):
        await db.execute(statement)
    name = dialect.table(spec.table, None)
    for first in range(0, ROWS, 3000):
        numbers = (1000 + 3 * (n % GROUPS) for n in range(first, first + 3000))
        lines = ", ".join(f"('g{number}')" for number in numbers)
        await db.execute(f"INSERT INTO {name} (grp) VALUES {lines}")
    await db.execute(f"ANALYZE TABLE {name}")
    return bind(dialect, spec, await db.run(dialect.describe(spec)))


async def reads(tx: Any) -> int:
    rows = await tx.fetch("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(row[1]) for row in rows)
