"""Names of the server's locks (GET_LOCK), which a session holds until it lets go of them or ends.

They belong to the whole server, so the database's name comes first. The servers differ in what they
take for one name: MySQL does not tell 'A' from 'a' and counts characters where MariaDB counts bytes. A
name that is not plain is therefore hashed.
"""

from __future__ import annotations

from typing import Any, Final

from inboxkit._sql.statement import Statement
from inboxkit._sql.table import Table

from . import names
from .held import Parameters

__all__ = ["free_lock", "guard_key", "lock_name", "try_lock"]

_LONGEST: Final = 64
"""Characters that MySQL takes; no more than that many bytes on MariaDB, as these are ASCII."""


def lock_name(table: Table, key: str, values: Parameters) -> str:
    """SQL of a lock's name.

    Args:
        table: Says in which database; where the description names none, it is the session's.
        key: SQL of a text in utf8mb4.
        values: The statement's.
    """
    schema = table.info.schema
    database = "DATABASE()" if schema is None else values.add(schema)
    name = f"CONCAT(CONVERT(LOWER({database}) USING utf8mb4), '.', {key})"
    is_plain = (
        f"CHAR_LENGTH({name}) <= {_LONGEST} AND LENGTH({name}) = CHAR_LENGTH({name}) "
        f"AND CAST({name} AS BINARY) = CAST(LOWER({name}) AS BINARY)"
    )
    return f"IF({is_plain}, {name}, SHA2({name}, 256))"


def try_lock(name: str, table: Table, key: Any) -> Statement:
    """Try for a lock without waiting; answers 1 where it was got."""
    values = Parameters()
    text = f"SELECT COALESCE(GET_LOCK({lock_name(table, values.add(key), values)}, 0), 0)"
    return Statement(name, text, values.values)


def free_lock(name: str, table: Table, key: Any) -> Statement:
    """Let go of a lock; answers 1 where this session had it."""
    values = Parameters()
    text = f"SELECT COALESCE(RELEASE_LOCK({lock_name(table, values.add(key), values)}), 0)"
    return Statement(name, text, values.values)


def guard_key(table: Table, group: Any) -> str:
    """What stands for a FIFO group."""
    return f"{names.quote(table.info.table)}:{group}"
