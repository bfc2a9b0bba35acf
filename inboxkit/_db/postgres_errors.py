"""What PostgreSQL's error codes mean for the caller; both drivers map by it."""

from __future__ import annotations

from typing import Final

from inboxkit.errors import (
    ConstraintError,
    DatabaseBusyError,
    DatabaseError,
    OutcomeUnknownError,
)

__all__ = ["READ_ONLY", "NoAnswerError", "is_lost", "judged", "lost"]

READ_ONLY: Final = "25006"
"""A standby, or a former primary."""

_BUSY: Final = frozenset(
    {
        READ_ONLY,
        "40001",  # serialization failure
        "40P01",  # deadlock
        "53300",  # too many connections
        "55P03",  # lock timeout, or NOWAIT
        "57P03",  # cannot connect now
    }
)
_LOST: Final = frozenset(
    {
        "25P03",  # idle in transaction for too long
        "57P01",  # terminated by an administrator
        "57P02",  # the server crashed
        "57P05",  # idle for too long
    }
)


class NoAnswerError(Exception):
    """The server did not answer within the client's bound; the connection was dropped."""


def is_lost(sqlstate: str | None) -> bool:
    """Whether the session ends with this error."""
    return sqlstate is not None and (sqlstate in _LOST or sqlstate.startswith("08"))


def lost(name: str, text: str, *, may_have_happened: bool) -> DatabaseError:
    """The error for a connection that broke under a statement.

    Args:
        name: The statement's name.
        text: What the driver said.
        may_have_happened: It was sent, and could have been committed by itself. Inside a
            transaction before its COMMIT nothing can: the server rolls it back.
    """
    if may_have_happened:
        return OutcomeUnknownError(
            f"{name}: the connection broke before the answer came, so it may have happened: {text}",
            statement=name,
        )
    return DatabaseBusyError(
        f"{name}: the connection broke; nothing happened: {text}", statement=name
    )


def judged(name: str, sqlstate: str | None, text: str, constraint: str | None) -> DatabaseError:
    """The error for a statement that the server, or the driver before sending, refused.

    Args:
        name: The statement's name.
        sqlstate: The server's code; None: the driver refused it.
        text: The primary message alone: the detail would show values.
        constraint: The constraint that refused it, if one did.
    """
    code = sqlstate or ""
    if code.startswith("22"):
        text, _, _ = text.partition(': "')  # what follows is the value
    message = f"{name}: {text}"
    if code == "40003":
        return OutcomeUnknownError(message, statement=name)
    if code in _BUSY:
        return DatabaseBusyError(f"{message}; nothing happened", statement=name)
    if code.startswith("23"):
        return ConstraintError(message, statement=name, constraint=constraint)
    return DatabaseError(message, statement=name)
