"""The errors, by whose fault it is.

An error's facts are attributes; its message says what was expected, what was met and how to mend
it. No message ever holds a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inboxkit._core.outcomes import Outcome

__all__ = [
    "ClosedError",
    "ConnectError",
    "ConstraintError",
    "DatabaseBusyError",
    "DatabaseError",
    "DeclarationError",
    "DecodeError",
    "DialectError",
    "EncodeError",
    "InboxkitError",
    "LeaseLostError",
    "MissingExtraError",
    "NoRouteError",
    "OutcomeUnknownError",
    "PoolTimeoutError",
    "SchemaError",
    "ServerTooOldError",
    "Settle",
    "StartupError",
    "TransactionHeldError",
    "TransactionTooLongError",
]


class InboxkitError(Exception):
    """Base of all errors that inboxkit raises on purpose."""


class DeclarationError(InboxkitError, ValueError):
    """The program is wrong: a table's class, a queue or an `include` that cannot work."""


class StartupError(InboxkitError):
    """The service cannot start with what it met; nothing was claimed."""


class DialectError(StartupError):
    """This database cannot do what the table's description asks for."""


class SchemaError(StartupError):
    """A table or column is missing, or its type cannot hold its role.

    Attributes:
        table: The table's name as the description has it.
        column: The column's name, or None where the whole table is meant.
    """

    def __init__(self, message: str, *, table: str, column: str | None = None) -> None:
        super().__init__(message)
        self.table = table
        self.column = column


class ServerTooOldError(StartupError):
    """The server's version lacks a statement that the claim form needs."""


class ConnectError(StartupError):
    """No connection could be opened; the driver's error is the cause."""


class MissingExtraError(StartupError, ImportError):
    """A driver is not installed; the message names the pip command."""


class NoRouteError(InboxkitError, LookupError):
    """`publish` got a name that no queue and no route of this broker serves."""


class ClosedError(InboxkitError, RuntimeError):
    """A database, connection, transaction or broker was used before it was open or after it was closed."""


class DatabaseError(InboxkitError):
    """A statement failed and changed nothing; the driver's error is the cause.

    Attributes:
        statement: The statement's short name, such as ``"claim"`` or ``"execute"``.
    """

    def __init__(self, message: str, *, statement: str = "") -> None:
        super().__init__(message)
        self.statement = statement


class DatabaseBusyError(DatabaseError):
    """Nothing happened (a lock, a deadlock, a serialization failure, no server): try again."""


class OutcomeUnknownError(DatabaseError):
    """The connection broke after the statement was sent: it may have happened."""


class ConstraintError(DatabaseError):
    """A constraint refused the statement; nothing was written.

    Attributes:
        constraint: The constraint's name, or what the database said in its place.
    """

    def __init__(self, message: str, *, statement: str = "", constraint: str | None = None) -> None:
        super().__init__(message, statement=statement)
        self.constraint = constraint


class PoolTimeoutError(DatabaseError):
    """No connection of the pool became free in time; nothing was sent."""


class LeaseLostError(InboxkitError):
    """The row no longer holds this delivery's lease; nothing was written.

    Attributes:
        queue: The queue's name.
        id: The row's id.
    """

    def __init__(self, message: str, *, queue: str, id: Any) -> None:
        super().__init__(message)
        self.queue = queue
        self.id = id


class TransactionTooLongError(InboxkitError):
    """A handler's transaction outlasted its hold and was rolled back."""


class TransactionHeldError(InboxkitError):
    """A handler kept its transaction past its return."""


class EncodeError(InboxkitError):
    """A message or a column's value cannot be written; nothing was sent.

    Attributes:
        table: The table's name.
        queue: The queue's name, or empty where the row is of no queue yet.
        id: The row's id, or None where it is not known, as of a row that the database numbers.
        where: The place in the message, such as ``$.lines[3].price``, or the column's name.
    """

    def __init__(
        self, message: str, *, table: str = "", queue: str = "", id: Any = None, where: str = ""
    ) -> None:
        super().__init__(message)
        self.table = table
        self.queue = queue
        self.id = id
        self.where = where


class DecodeError(InboxkitError):
    """A stored value cannot be read as what it should be; the row stays in its table.

    Attributes:
        queue: The queue's name, or the table's where no queue is concerned.
        id: The row's id, or None where it is not known.
        where: The place in the payload, such as ``$.pages``, or the column's name.
    """

    def __init__(self, message: str, *, queue: str = "", id: Any = None, where: str = "") -> None:
        super().__init__(message)
        self.queue = queue
        self.id = id
        self.where = where


class Settle(Exception):  # noqa: N818 - a signal, not an error
    """Raised in a handler to end the delivery with an outcome from deep inside.

    Args:
        outcome: What `ack()`, `retry()`, `retry_after()` or `drop()` returned.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome
