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
    from inboxkit.database import Database
    from inboxkit.queue import InboxQueue

__all__ = ["Delivery"]

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
        "_message",
        "_publish",
        "_row",
        "clock",
        "database",
        "group",
        "headers",
        "id",
        "key",
        "lost",
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
    lost: anyio.Event
    """Set when the row is no longer this delivery's; nothing that the handler answers is written."""

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
        lost: anyio.Event,
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
        self.lost = lost
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

    def __repr__(self) -> str:
        attempt = "" if self._attempt is None else f", attempt={self._attempt}"
        return f"<Delivery {shorten(self.id)} of {self.queue.name!r}{attempt}>"
