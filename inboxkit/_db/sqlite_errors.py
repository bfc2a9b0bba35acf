"""What SQLite's errors mean for the caller."""

from __future__ import annotations

import os
import sqlite3
from typing import Final, NoReturn

from inboxkit.errors import ConnectError, ConstraintError, DatabaseBusyError, DatabaseError

__all__ = [
    "SQLITE_ERRORS",
    "check_exists",
    "check_writable",
    "cure_of",
    "is_locked",
    "translate",
]

_BY_EFFECTIVE_IDS = os.access in os.supports_effective_ids


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection's lock is the reason, so that a later try may succeed."""
    return _primary(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


SQLITE_ERRORS: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError)
"""What the module `sqlite3` raises for a statement; for `translate`."""


def translate(error: Exception, name: str, limit: str, path: str) -> NoReturn:
    """Raise what SQLite has raised as inboxkit's error; none of them changed anything.

    Args:
        error: One of `SQLITE_ERRORS`.
        name: The statement's name.
        limit: How long a statement may take, for the message of one that was stopped.
        path: The file, for the message of one that cannot be written.
    """
    if isinstance(error, sqlite3.IntegrityError):
        raise ConstraintError(
            f"{name}: {error}", statement=name, constraint=_constraint(error)
        ) from error
    if isinstance(error, sqlite3.Error | sqlite3.Warning):
        if isinstance(error, sqlite3.Error) and is_locked(error):
            raise DatabaseBusyError(f"{name}: {error}; nothing happened", statement=name) from error
        if _primary(error) == sqlite3.SQLITE_INTERRUPT:
            raise DatabaseError(
                f"{name}: stopped after {limit} or by a cancellation; nothing was changed",
                statement=name,
            ) from error
        raise DatabaseError(f"{name}: {error}{cure_of(error, path)}", statement=name) from error
    # An integer of more than 64 bits, or a lone surrogate in a text: refused by the module
    # sqlite3 itself. The error's own text would show the value.
    kind = "an integer of more than 64 bits" if isinstance(error, OverflowError) else "a text"
    raise DatabaseError(
        f"{name}: SQLite cannot hold {kind} that was given as an argument; nothing was executed",
        statement=name,
    ) from None


def cure_of(error: BaseException, path: str) -> str:
    """What is asked of a file that cannot be written, or not even read for that; else empty."""
    if _primary(error) not in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
        return ""
    return f"; {_cure(path)}"


def check_exists(path: str) -> None:
    """Look whether a database's file is there, without opening it.

    Raises:
        ConnectError: It is not.
    """
    if path != ":memory:" and not os.path.exists(path):
        raise ConnectError(f"there is no SQLite file {path!r}; a service makes it when it starts")


def check_writable(path: str) -> None:
    """Look whether this process may write a database's file and folder, without opening either.

    Raises:
        ConnectError: It may not.
    """
    if path == ":memory:":
        return
    for place in (path, os.path.dirname(path)):
        if os.path.exists(place) and not os.access(place, os.W_OK, effective_ids=_BY_EFFECTIVE_IDS):
            raise ConnectError(f"{place!r} cannot be written; {_cure(path)}")


def _cure(path: str) -> str:
    folder = os.path.dirname(path)
    if folder and not os.path.exists(folder):
        return f"there is no folder {folder!r}"
    return (
        f"let this process write the file {path!r}, and its folder, where SQLite keeps a journal "
        "(-wal, -shm or -journal) beside it"
    )


def _primary(error: BaseException) -> int | None:
    """The result code without its extension; None for errors of the module `sqlite3` itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _constraint(error: sqlite3.IntegrityError) -> str | None:
    """The name of a CHECK constraint; else the columns, as SQLite names them in its place."""
    _, _, what = str(error).partition("constraint failed: ")
    return what or None
