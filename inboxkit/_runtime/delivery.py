"""One hand-out of a row to a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, overload

import anyio
from typing_extensions import TypeVar

from inboxkit._core.printing import shorten
from inboxkit.abc import Clock
from inboxkit.errors import DeclarationError

if TYPE_CHECKING:
    from inboxkit.database import Database, Transaction
    from inboxkit.queue import InboxQueue

__all__ = ["Delivery", "TransactionalDelivery"]

RowT_co = TypeVar("RowT_co", covariant=True, default=Any)
MessageT_co = TypeVar("MessageT_co", covariant=True, default=Any)
OtherT = TypeVar("OtherT")


class Delivery(Generic[RowT_co, MessageT_co]):
    """What a handler may know of its message, beside the message.

    Made by the runtime; `inboxkit_testing.delivery` makes one for a handler's unit test.
    """

    __slots__ = (
        "_attempt",
        "_deadline",
        "_lost",
        "_message",
        "_publish",
        "_row",
        "clock",
        "database",
        "group",
        "headers",
        "id",
        "key",
        "queue",
        "state",
    )

    id: Any
    """The row's id."""
    group: str | None
    """The row's group; None on a table without groups."""
    key: Any
    """The partition key's value; None on a table without one."""
    headers: Mapping[str, str]
    """What travels beside the message; empty on a table without headers."""
    queue: InboxQueue[Any, Any]
    """The queue that handed it out."""
    database: Database
    """The service's `Database`, for the handler's own statements."""
    state: Any
    """What the service's lifespan yielded; None without one."""
    clock: Clock
    """The database's clock."""

    def __init__(
        self,
        *,
        id: Any,
        message: MessageT_co,
        attempt: int | None,
        group: str | None,
        key: Any,
        headers: Mapping[str, str],
        row: RowT_co,
        queue: InboxQueue[Any, Any],
        database: Database,
        state: Any,
        clock: Clock,
        lost: Callable[[], anyio.Event],
        deadline: Callable[[], datetime | None],
        publish: Callable[..., Awaitable[Any]],
    ) -> None:
        self.id = id
        self.group = group
        self.key = key
        self.headers = headers
        self.queue = queue
        self.database = database
        self.state = state
        self.clock = clock
        self._lost = lost
        self._message = message
        self._row = row
        self._attempt = attempt
        self._deadline = deadline
        self._publish = publish

    @property
    def message(self) -> MessageT_co:
        """The decoded message; the row itself on a table without payload."""
        return self._message

    @property
    def row(self) -> RowT_co:
        """The row as it stood before the claim; reading a column that cannot be decoded raises DecodeError."""
        return self._row

    @property
    def attempt(self) -> int:
        """The delivery's number, from 1.

        Raises:
            DeclarationError: The table has no attempt column.
        """
        if self._attempt is None:
            raise DeclarationError(
                f"table {self.queue.spec.name!r} has no attempt column, so deliveries are not counted; add "
                f"attempt: int = role.attempt(generated=True) and the column (integer NOT NULL DEFAULT 1)"
            )
        return self._attempt

    @property
    def lost(self) -> anyio.Event:
        """Set when the row is no longer this delivery's; nothing that the handler answers is written."""
        return self._lost()

    @property
    def deadline(self) -> datetime | None:
        """The instant at which the hold ends unless it is renewed, as now known; None: it has no end."""
        return self._deadline()

    @overload
    async def publish(
        self,
        queue: InboxQueue[Any, OtherT],
        message: OtherT,
        /,
        within: Any = None,
        **columns: Any,
    ) -> Any: ...
    @overload
    async def publish(
        self, queue: str, message: Any, /, within: Any = None, **columns: Any
    ) -> Any: ...
    async def publish(self, queue: Any, message: Any, /, within: Any = None, **columns: Any) -> Any:
        """Publish another message through the service's broker.

        Args:
            queue: Where to, or a name that the broker routes.
            message: What its handler gets; the row on a table without payload.
            within: A transaction to write in; None: the broker's own connection, so that the message
                is there whatever becomes of this delivery.
            columns: Values of the row's other columns.

        Returns:
            The new row's id.

        Raises:
            NoRouteError: Nothing is known of the name.
            EncodeError: The message cannot be encoded; nothing was sent.
            DatabaseError: The insert failed.
        """
        return await self._publish(queue, message, within=within, **columns)

    if not TYPE_CHECKING:  # checkers say it themselves, and of every name that is none

        def __getattr__(self, name: str) -> Any:
            if name != "tx":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                "this delivery has no transaction: write @subscriber(queue, transactional=True) and "
                "annotate the parameter as TransactionalDelivery; in a handler's unit test, "
                "delivery(tx=…)"
            )

    def __repr__(self) -> str:
        attempt = "" if self._attempt is None else f", attempt={self._attempt}"
        return f"<{type(self).__name__} {shorten(self.id)} of {self.queue.name!r}{attempt}>"


class TransactionalDelivery(Delivery[RowT_co, MessageT_co]):
    """What a handler of ``@subscriber(queue, transactional=True)`` gets: a delivery with a transaction."""

    __slots__ = ("_tx",)

    def __init__(self, *, tx: Transaction, **known: Any) -> None:
        super().__init__(**known)
        self._tx = tx

    @property
    def tx(self) -> Transaction:
        """The handler's transaction: committed together with the ack, or rolled back.

        It begins at its first statement, READ COMMITTED on the servers whatever their default is. An
        ack (`ack()`, or None) commits it and the settlement as one; every other end (a retry, a drop,
        an exception, a timeout) rolls it back and then settles as without it. What `insert_rows` and
        `publish(within=delivery.tx)` write is there with the ack, and wakes its queues after it, when
        `after_commit` functions are called too. Other connections commit by themselves.

        A statement that failed keeps it from being committed although the handler goes on: what may
        fail belongs in ``async with delivery.tx.transaction()``, which is undone alone. It is the
        handler's (and its middleware's) alone: a task that keeps it beyond the handler's return makes
        the delivery fail with TransactionHeldError.

        It keeps a connection of the pool, so each delivery in work counts in the pool's room. On SQLite it
        also keeps the only write lock from its first statement to its end, and all claims and renewals
        of this process wait for that; so it must end a while before the first of their holds
        does (with leases of 30 seconds, it has 9 seconds at least). Else it is rolled back and the delivery
        fails with TransactionTooLongError: do the slow work first, and write at the end.
        """
        return self._tx
