"""SQLAlchemy's `AsyncConnection` and `AsyncSession`: what is beneath them, and what follows a commit."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final, Self, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from inboxkit._sql.statement import Answer, Statement

__all__ = ["after_foreign_commit", "connection_of", "is_sqlalchemy", "through_sqlalchemy"]

Path: TypeAlias = tuple[tuple[str, int], ...]
"""Savepoints, outermost first: each by its name, and by a number that none other of its connection has."""

_OF_SAVEPOINTS: Final = re.compile(
    r"\s*(SAVEPOINT|RELEASE(?:\s+SAVEPOINT)?|ROLLBACK(?:\s+(?:WORK|TRANSACTION))?\s+TO(?:\s+SAVEPOINT)?)"
    r"\s+([^\s;]+)",
    re.IGNORECASE,
)
_KINDS = frozenset({"AsyncConnection", "AsyncSession", "async_scoped_session"})


def is_sqlalchemy(connection: Any) -> bool:
    """Whether it is one of the two."""
    return any(
        kind.__name__ in _KINDS and kind.__module__.startswith("sqlalchemy.")
        for kind in type(connection).__mro__
    )


async def connection_of(given: Any) -> tuple[Any, Any]:
    """The `AsyncConnection`, inside its transaction, and the driver's own connection beneath it.

    A session is asked for the connection of its default bind.
    """
    outer = await given.connection() if _is_session(given) else given
    if not outer.in_transaction():
        # As any statement of the caller's would; else its commit() would find nothing to commit.
        await outer.begin()
    raw = await outer.get_raw_connection()
    return outer, raw.driver_connection


async def through_sqlalchemy(connection: Any, statement: Statement) -> Answer:
    """Run a statement whose placeholders the dialect takes as they are."""
    result = await connection.exec_driver_sql(statement.text, statement.parameters or None)
    rows = [tuple(row) for row in result.fetchall()] if result.returns_rows else []
    return Answer(rows=rows, rowcount=len(rows))


async def after_foreign_commit(
    connection: Any, key: Hashable, function: Callable[[], None]
) -> None:
    """Call a function, one for each key, after the commit of the transaction that is open there.

    It is not called where the transaction rolls back, or a savepoint that is open now. For an
    `AsyncConnection` the commit is when it is given back, or begins its next transaction: it tells of
    a commit only beforehand. Nothing is called for connections of other kinds, whose commits nobody
    tells of.
    """
    if not is_sqlalchemy(connection):
        return
    if _is_session(connection):
        outer = await connection.connection()
        session = connection if hasattr(connection, "sync_session") else connection.registry()
        functions = _Session.of(session.sync_session).functions
    else:
        outer = connection
        functions = _Connection.of(connection.sync_connection).functions
    _Savepoints.of(outer.sync_connection).add(functions, key, function)


def _is_session(given: Any) -> bool:
    return hasattr(given, "sync_session") or type(given).__name__ == "async_scoped_session"


class _Functions:
    """What is to be called, with the savepoints under which each was given."""

    def __init__(self) -> None:
        self._given: dict[tuple[Hashable, Path], Callable[[], None]] = {}

    def add(self, key: Hashable, function: Callable[[], None], under: Path) -> None:
        """Keep one, in place of another with the same key under the same savepoints."""
        self._given[key, under] = function

    def undo(self, savepoints: Path) -> None:
        """Forget what was given under these."""
        size = len(savepoints)
        self._given = {
            (key, under): function
            for (key, under), function in self._given.items()
            if under[:size] != savepoints
        }

    def clear(self) -> None:
        """Forget all."""
        self._given.clear()

    def take(self) -> dict[Hashable, Callable[[], None]]:
        """One for each key, no longer kept."""
        given, self._given = self._given, {}
        return {key: function for (key, _), function in given.items()}


class _Follower(ABC):
    """What follows one of SQLAlchemy's objects, for as long as there is that."""

    _known: ClassVar[WeakKeyDictionary[Any, Any]]

    def __init_subclass__(cls) -> None:
        cls._known = WeakKeyDictionary()

    @abstractmethod
    def __init__(self, followed: Any, /) -> None:
        """Listen to its events."""

    @classmethod
    def of(cls, followed: Any) -> Self:
        found: Self | None = cls._known.get(followed)
        if found is None:
            found = cls._known[followed] = cls(followed)
        return found


class _Savepoints(_Follower):
    """The savepoints that are open on a connection, since something was first published there.

    By the statements that went through it: SQLAlchemy's events of them do not tell their names.
    """

    def __init__(self, connection: Any) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - installed, since the connection is of it

        self._open: Path = ()
        self._count = 0
        self._all: WeakKeyDictionary[_Functions, None] = WeakKeyDictionary()
        event.listen(connection, "after_cursor_execute", self._executed)
        event.listen(connection, "begin", self._begins)

    def add(self, functions: _Functions, key: Hashable, function: Callable[[], None]) -> None:
        """Keep a function under what is open now."""
        self._all[functions] = None
        functions.add(key, function, self._open)

    def _executed(self, _connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        found = _OF_SAVEPOINTS.match(statement)
        if found is None:
            return
        verb, name = found[1][:2].upper(), found[2].strip('"`[]').lower()
        if verb == "SA":
            self._count += 1
            self._open = (*self._open, (name, self._count))
            return
        places = [at for at, (known, _) in enumerate(self._open) if known == name]
        if verb == "RE":
            # What was given under it names it still, and goes with those around it.
            self._open = self._open[: places[-1]] if places else ()
            return
        # It stays open itself. One without a place here was set before anything was given: all is
        # under it.
        self._open = self._open[: places[-1] + 1] if places else ()
        for functions in self._all:
            functions.undo(self._open)

    def _begins(self, _connection: Any) -> None:
        self._open = ()


class _Session(_Follower):
    """What follows a session's commits."""

    def __init__(self, session: Any) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - installed, since the session is of it

        self.functions = _Functions()
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_rollback", self._rolled_back)

    def _committed(self, session: Any) -> None:
        if not session.in_nested_transaction():
            _call(self.functions.take())

    def _rolled_back(self, session: Any) -> None:
        if not session.in_nested_transaction():
            self.functions.clear()


class _Connection(_Follower):
    """What follows a connection's commits."""

    _committed: ClassVar[WeakKeyDictionary[Any, _Connection]] = WeakKeyDictionary()
    """By the pool's record: whose commit was told, and is done when the record comes back."""
    _pools: ClassVar[WeakSet[Any]] = WeakSet()

    def __init__(self, connection: Any) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - installed, since the connection is of it

        self.functions = _Functions()
        self._due: dict[Hashable, Callable[[], None]] = {}
        event.listen(connection, "commit", self._commits)
        event.listen(connection, "rollback", self._rolls_back)
        event.listen(connection, "begin", self._begins)
        pool = connection.engine.pool
        if pool not in self._pools:
            self._pools.add(pool)
            event.listen(pool, "checkin", _checked_in)

    def _commits(self, connection: Any) -> None:
        self._due |= self.functions.take()
        record = connection.connection._connection_record
        if record is not None:
            self._committed[record] = self

    def _rolls_back(self, _connection: Any) -> None:
        self.functions.clear()

    def _begins(self, _connection: Any) -> None:
        self.finish()

    def finish(self) -> None:
        """The commit is done."""
        due, self._due = self._due, {}
        _call(due)


def _checked_in(_driver_connection: Any, record: Any) -> None:
    committed = _Connection._committed.pop(record, None)
    if committed is not None:
        committed.finish()


def _call(functions: dict[Hashable, Callable[[], None]]) -> None:
    for function in functions.values():
        function()
