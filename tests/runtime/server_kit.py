"""What the server of a test's database knows: who holds rows and locks; and how to end it."""

from __future__ import annotations

import re
from typing import Any

from runtime_kit import another, observed

from inboxkit import Database
from inboxkit_testing.sessions import end_sessions


async def holders(database: Database) -> list[int]:
    """Sessions of this database that are in a transaction, as those that hold rows are; the oldest first."""
    if database.dialect == "sqlite":
        return []
    if database.dialect == "postgres":
        found = await database.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND state LIKE 'idle in transaction%' ORDER BY backend_start"
        )
        return [pid for (pid,) in found]
    # The information schema's list of transactions may be a tenth of a second old.
    (status,) = await database.fetch("SHOW ENGINE INNODB STATUS")
    active = {int(session) for session in _ACTIVE.findall(status[2])}
    listed = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() ORDER BY id"
    return [session for (session,) in await database.fetch(listed) if session in active]


_ACTIVE = re.compile(
    r"^---TRANSACTION \S+, ACTIVE(?:(?!^---).)*?thread id (\d+)", re.MULTILINE | re.DOTALL
)


_KEY = re.compile(r" USING utf8mb4\) AS BINARY\) = CAST\(\$(\d+) AS BINARY\)")
"""In what takes the row of a key that was got: the key's placeholder."""
_HOLDER = "SELECT IS_USED_LOCK(CONCAT(LOWER(DATABASE()), '.', $1))"


async def lock_holders(database: Database) -> list[int]:
    """The session of each advisory lock of this database; on MariaDB and MySQL, which list none, of each
    that its own statements asked for."""
    if database.dialect == "sqlite":
        return []
    if database.dialect == "postgres":
        found = await database.fetch(
            "SELECT pid FROM pg_locks JOIN pg_database AS d ON d.oid = database "
            "WHERE locktype = 'advisory' AND d.datname = current_database()"
        )
        return [pid for (pid,) in found]
    asked = set()
    for each in observed(database).recording.statements():
        if ", 0), 0)" in each.text:  # a guard
            text = each.text.replace("GET_LOCK(", "IS_USED_LOCK(").replace(", 0), 0)", "), 0)")
            asked.add((text, each.parameters))
        elif found := _KEY.search(each.text):
            asked.add((_HOLDER, (each.parameters[int(found[1]) - 1],)))
    users = [await database.fetch_value(text, *given) for text, given in asked]
    return [session for session in users if session]


async def locks(database: Database) -> int:
    """How many advisory locks there are, and transactions that hold rows."""
    return len(await lock_holders(database)) + len(await holders(database))


async def kill(database: Database, sessions: list[int]) -> None:
    """End sessions as an administrator does; return when their sockets are closed."""
    async with another(database, "administrator") as administrator:
        if database.dialect != "postgres":
            await end_sessions(administrator.observed, sessions, database.dialect)
            return
        for session in sessions:  # PostgreSQL ceases to list one before its process ends
            await administrator.execute(f"SELECT pg_terminate_backend({session}, 5000)")


async def refuse(database: Database, kind: Any, id: int, verb: str = "DELETE") -> None:
    """Let the database refuse to write one row, as a constraint would."""
    name, text = kind.spec.table, "refused by a trigger"
    begin = f"CREATE TRIGGER refuse BEFORE {verb} ON {name}"
    if database.dialect == "sqlite":
        await database.execute(
            f"{begin} WHEN OLD.id = {id} BEGIN SELECT RAISE(ABORT, '{text}'); END"
        )
    elif database.dialect == "mysql":
        await database.execute(
            f"{begin} FOR EACH ROW IF OLD.id = {id} THEN "
            f"SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 3819, MESSAGE_TEXT = '{text}'; END IF"
        )
    else:
        await database.execute(
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF OLD.id = {id} THEN RAISE EXCEPTION '{text}' USING ERRCODE = '23514'; "
            f"END IF; RETURN {'OLD' if verb == 'DELETE' else 'NEW'}; END $$"
        )
        await database.execute(f"{begin} FOR EACH ROW EXECUTE FUNCTION refuse()")


async def allow(database: Database, kind: Any) -> None:
    """Take `refuse` back."""
    where = f" ON {kind.spec.table}" if database.dialect == "postgres" else ""
    await database.execute(f"DROP TRIGGER refuse{where}")
