"""What the error numbers of MariaDB and MySQL mean for the caller; both drivers map by it."""

from __future__ import annotations

import re
from typing import Final

from inboxkit._db.mysql_url import MysqlTarget
from inboxkit.errors import (
    ConnectError,
    ConstraintError,
    DatabaseBusyError,
    DatabaseError,
    OutcomeUnknownError,
)

__all__ = [
    "READ_ONLY",
    "TOO_LONG",
    "NoAnswerError",
    "TooLongError",
    "is_lost",
    "judged",
    "lost",
    "number_of",
    "unreachable",
]

TOO_LONG: Final = 1153
"""The statement is longer than max_allowed_packet."""
READ_ONLY: Final = frozenset({1290, 1836})
"""The server is, as a former primary; MySQL has two numbers for it."""
_BUSY: Final = READ_ONLY | frozenset(
    {
        1020,  # MariaDB: the row has changed since the transaction's snapshot
        1040,  # too many connections
        1047,  # Galera: the node is not ready
        1180,  # an error during COMMIT, such as Galera's certification
        1203,  # too many connections of this user
        1205,  # lock wait timeout; MariaDB: NOWAIT too
        1206,  # the lock table is full
        1213,  # deadlock
        1226,  # a limit of this user is used up
        1637,  # too many transactions
        3058,  # deadlock of user-level locks
        3101,  # group replication rolled it back
        3572,  # NOWAIT
    }
)
_GONE: Final = frozenset(
    {
        1053,  # the server shuts down
        1927,  # MariaDB: killed
        3169,  # MySQL: killed
    }
)
_UNHEARD: Final = frozenset(
    {
        TOO_LONG,
        4031,  # MySQL: idle for too long
    }
)
"""The session has ended, and the statement was not executed."""
_CONSTRAINT: Final = frozenset(
    {1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025}
)
_CONSTRAINT_NAMES: Final = (
    re.compile(r"for key '(?:[^']*\.)?([^']+)'"),  # MySQL puts the table before it
    re.compile(r"(?i)(?<!foreign key )constraint [`']([^`']+)[`']"),
    re.compile(r"(?:Column|Field) '([^']+)'"),
)
_VALUES: Final = (
    re.compile(r"(?<=entry )'.*'(?= for key )", re.DOTALL),
    re.compile(r"(?<=: )'.*'(?= for | at row|\Z)", re.DOTALL),
    re.compile(r"(?<= out of range in )'.*'", re.DOTALL),
)
_STATEMENT: Final = re.compile(r"(?<= near )'.*\Z", re.DOTALL)
_CURES: Final = {
    1044: "grant it the database, or name another",
    1045: "check the user and the password in the URL",
    1049: "create the database, or name another in the URL",
    1130: "let this host in, or connect from another",
    1698: "check the user in the URL: the server identifies it by other means than a password",
    3159: "the server wants TLS: add ?ssl_mode=REQUIRED to the URL",
}


class TooLongError(Exception):
    """A statement is not sent, since it is too long; its arguments are those of the server's error."""


class NoAnswerError(Exception):
    """The server did not answer within the client's bound; the connection was dropped."""


def number_of(error: BaseException) -> int | None:
    """The server's number for an error; None: the client made it, so the session cannot be trusted."""
    number = error.args[0] if error.args else None
    if isinstance(number, int) and (1000 <= number < 2000 or number >= 3000):
        return number
    return None


def is_lost(number: int | None) -> bool:
    """Whether the session ends with this error."""
    return number is None or number in _GONE or number in _UNHEARD


def lost(name: str, error: BaseException | str, *, may_have_happened: bool) -> DatabaseError:
    """The error for a connection that broke under a statement.

    Args:
        name: The statement's name.
        error: What the driver said.
        may_have_happened: It was sent, and could have been committed by itself. Inside a
            transaction before its COMMIT nothing can: the server rolls it back.
    """
    text = error if isinstance(error, str) else _text_of(error)
    number = None if isinstance(error, str) else number_of(error)
    if number == TOO_LONG:
        return DatabaseError(f"{name}: {text}; nothing happened", statement=name)
    if may_have_happened and number not in _UNHEARD:
        return OutcomeUnknownError(
            f"{name}: the connection broke before the answer came, so it may have happened: {text}",
            statement=name,
        )
    return DatabaseBusyError(
        f"{name}: the connection broke; nothing happened: {text}", statement=name
    )


def judged(name: str, error: BaseException, *, has_arguments: bool) -> DatabaseError:
    """The error for a statement that the server refused.

    Args:
        name: The statement's name.
        error: The driver's error.
        has_arguments: Whether a piece of the statement would show its arguments; it is cut out then.
    """
    number = number_of(error)
    text = _text_of(error)
    constraint = _constraint_of(text) if number in _CONSTRAINT else None
    for pattern in _VALUES:
        text = pattern.sub("…", text)
    if has_arguments:
        text = _STATEMENT.sub("…", text)
    message = f"{name}: {text}"
    if number in _BUSY:
        return DatabaseBusyError(f"{message}; nothing happened", statement=name)
    if number in _CONSTRAINT:
        return ConstraintError(message, statement=name, constraint=constraint)
    return DatabaseError(message, statement=name)


def unreachable(target: MysqlTarget, error: BaseException) -> ConnectError:
    """The error for a server that refuses a session, or is not there."""
    cure = _CURES.get(number_of(error) or 0, "check that the server runs and is reached at the URL")
    if isinstance(error, RuntimeError):  # of the drivers, where they lack what a password needs
        cure = "pip install cryptography, or connect by TLS (?ssl_mode=REQUIRED) or a Unix socket"
    return ConnectError(f"cannot connect to {target.shown}: {_text_of(error)}; {cure}")


def _text_of(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error.args[-1] if error.args else error) or type(error).__name__


def _constraint_of(text: str) -> str | None:
    for pattern in _CONSTRAINT_NAMES:
        if (found := pattern.search(text)) is not None:
            return found[1]
    return None
