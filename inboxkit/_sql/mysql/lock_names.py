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

__all__ = ["free_guard", "lock_name", "try_guard"]

_LONGEST: Final = 64
"""Characters that MySQL takes; no more than that many bytes on MariaDB, as these are ASCII."""


def lock_name(table: Table, key: str, values: Parameters) -> str:
    """SQL of a lock's name.

    Args:
        table: Says in which database; where the description names none, it is the session's.
        key: SQL of a text.
        values: The statement's.
    """
    schema = table.info.schema
    database = "DATABASE()" if schema is None else values.add(schema)
    name = f"CONVERT(CONCAT(LOWER({database}), '.', {key}) USING utf8mb4)"
    is_plain = (
        f"CHAR_LENGTH({name}) <= {_LONGEST} AND LENGTH({name}) = CHAR_LENGTH({name}) "
        f"AND CAST({name} AS BINARY) = CAST(LOWER({name}) AS BINARY)"
    )
    return f"IF({is_plain}, {name}, SHA2({name}, 256))"


def try_guard(table: Table, group: Any) -> Statement:
    """Try the guard of a FIFO group, which outlasts transactions; answers 1 where it was had."""
    values = Parameters()
    text = f"SELECT COALESCE(GET_LOCK({_guard_name(table, group, values)}, 0), 0)"
    return Statement("claim guard", text, values.values)


def free_guard(table: Table, group: Any) -> Statement:
    """Let go of the guard; answers 1 where this session had it."""
    values = Parameters()
    text = f"SELECT COALESCE(RELEASE_LOCK({_guard_name(table, group, values)}), 0)"
    return Statement("guard release", text, values.values)


def _guard_name(table: Table, group: Any, values: Parameters) -> str:
    return lock_name(table, values.add(f"{names.quote(table.info.table)}:{group}"), values)
