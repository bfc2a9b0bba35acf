"""Task inboxes in the service's own SQL tables, under trio and asyncio alike."""

from . import role
from ._core.backoff import Backoff
from ._core.outcomes import Ack, Drop, Outcome, Retry, ack, drop, retry, retry_after
from ._core.rows import NewRow
from ._core.spec import Column, InboxSpec
from ._runtime.delivery import Delivery, TransactionalDelivery
from .broker import Broker
from .clock import Clock, DatabaseClock, SystemClock
from .codec import Codec
from .database import Connection, Database, Record, Transaction
from .errors import (
    ClosedError,
    ConnectError,
    ConstraintError,
    DatabaseBusyError,
    DatabaseError,
    DeclarationError,
    DecodeError,
    DialectError,
    EncodeError,
    InboxkitError,
    LeaseLostError,
    MissingExtraError,
    NoRouteError,
    OutcomeUnknownError,
    PoolTimeoutError,
    SchemaError,
    ServerTooOldError,
    Settle,
    StartupError,
    TransactionHeldError,
    TransactionTooLongError,
)
from .insert import insert_rows, insert_statements
from .queue import InboxQueue
from .service import Handle, Service
from .subscriber import Subscriber, subscriber
from .table import Inbox

__all__ = [
    "Ack",
    "Backoff",
    "Broker",
    "Clock",
    "ClosedError",
    "Codec",
    "Column",
    "ConnectError",
    "Connection",
    "ConstraintError",
    "Database",
    "DatabaseBusyError",
    "DatabaseClock",
    "DatabaseError",
    "DeclarationError",
    "DecodeError",
    "Delivery",
    "DialectError",
    "Drop",
    "EncodeError",
    "Handle",
    "Inbox",
    "InboxQueue",
    "InboxSpec",
    "InboxkitError",
    "LeaseLostError",
    "MissingExtraError",
    "NewRow",
    "NoRouteError",
    "Outcome",
    "OutcomeUnknownError",
    "PoolTimeoutError",
    "Record",
    "Retry",
    "SchemaError",
    "ServerTooOldError",
    "Service",
    "Settle",
    "StartupError",
    "Subscriber",
    "SystemClock",
    "Transaction",
    "TransactionHeldError",
    "TransactionTooLongError",
    "TransactionalDelivery",
    "ack",
    "drop",
    "insert_rows",
    "insert_statements",
    "retry",
    "retry_after",
    "role",
    "subscriber",
]
