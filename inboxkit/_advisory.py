"""What the advisory lock form asks of a database before it serves: who keeps the keys there."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ._core.key_ring import KeyRing
from ._core.spec import InboxSpec
from ._db.poolers import refuse_transaction_pooling
from ._db.process_keys import MemoryKeys, keys_of_file
from ._forms import Keys
from .database import Database

__all__ = ["advisory_keys"]

_in_memory: WeakKeyDictionary[Database, KeyRing] = WeakKeyDictionary()


async def advisory_keys(database: Database, spec: InboxSpec) -> Keys | None:
    """Make sure that one process, or one session of a server, can keep a key.

    Returns:
        The keys, where this process keeps them (SQLite): to be closed. None: a server does.

    Raises:
        DialectError: Another process has the file, or a pooler shares sessions.
    """
    if database.dialect == "postgres":
        await refuse_transaction_pooling(database)
    if database.dialect != "sqlite":
        return None
    path = await database.fetch_value(
        "SELECT file FROM pragma_database_list WHERE name = $1", (spec.schema or "main").lower()
    )
    if not path:
        return MemoryKeys(_in_memory.setdefault(database, KeyRing()))
    return keys_of_file(path)
