"""`InboxQueue`: which rows of a table are one queue, and what their messages are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from inboxkit._core.annotations import members, show, strip
from inboxkit._core.json_codec import JSON, JsonCodec
from inboxkit._core.lease import whole_seconds
from inboxkit._core.spec import InboxSpec
from inboxkit.errors import DeclarationError
from inboxkit.table import Inbox

if TYPE_CHECKING:
    from inboxkit.every_group import EveryGroup

__all__ = ["InboxQueue", "table_of"]

RowT = TypeVar("RowT", default=Any)
MessageT = TypeVar("MessageT", default=Any)
InboxT = TypeVar("InboxT", bound=Inbox)
TypeT = TypeVar("TypeT")


class InboxQueue(Generic[RowT, MessageT]):
    """The rows whose group is `name`; all rows of a table that has no groups.

    Args:
        row: The table's `Inbox` class, or an `InboxSpec` that was built by hand.
        name: The group, or how a table without groups is called in logs and by `publish`.
        message: What payloads decode to; None: the first annotation of the handler. A union is not
            given here but annotated.
        lease: How long a claim holds unrenewed, rounded up to whole seconds; None: the broker's.
        poll_interval: Longest sleep between two looks at the table; None: the broker's.

    Raises:
        DeclarationError: An argument cannot be right; names it.
    """

    spec: InboxSpec
    """The table."""
    row: type[RowT] | None
    """The class of its rows; None where the table was described by hand."""
    name: str
    message: Any
    """What payloads decode to; None: the handler says."""
    lease: timedelta | None
    """In whole seconds; None: the broker's."""
    poll_interval: timedelta | None
    """None: the broker's."""

    @overload
    def __init__(
        self: InboxQueue[InboxT, TypeT],
        row: type[InboxT],
        name: str,
        message: type[TypeT],
        *,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: InboxQueue[InboxT, Any],
        row: type[InboxT],
        name: str,
        message: None = None,
        *,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: InboxQueue[Mapping[str, Any], TypeT],
        row: InboxSpec,
        name: str,
        message: type[TypeT],
        *,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: InboxQueue[Mapping[str, Any], Any],
        row: InboxSpec,
        name: str,
        message: None = None,
        *,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None: ...
    def __init__(
        self,
        row: Any,
        name: str,
        message: Any = None,
        *,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None:
        self.row, self.spec = table_of(row)
        if not isinstance(name, str) or not name:
            raise DeclarationError(
                f"a queue of table {self.spec.name!r} needs a non-empty name, not {name!r}"
            )
        self.name = name
        if message is not None:
            check_message(self, message)
        self.message = message
        self.lease = _lease(self, lease)
        self.poll_interval = _poll_interval(self, poll_interval)

    @overload
    @staticmethod
    def every_group(
        row: type[InboxT],
        message: type[TypeT],
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> EveryGroup[InboxT, TypeT]: ...
    @overload
    @staticmethod
    def every_group(
        row: type[InboxT],
        message: None = None,
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> EveryGroup[InboxT, Any]: ...
    @overload
    @staticmethod
    def every_group(
        row: InboxSpec,
        message: type[TypeT],
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> EveryGroup[Mapping[str, Any], TypeT]: ...
    @overload
    @staticmethod
    def every_group(
        row: InboxSpec,
        message: None = None,
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> EveryGroup[Mapping[str, Any], Any]: ...
    @staticmethod
    def every_group(
        row: Any,
        message: Any = None,
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> Any:
        """All groups of a table through one subscription, for groups that are many or come and go.

        `delivery.group` tells a row's group, and ``queue.group("acme")`` names one to publish to. While
        another group has a due row, none is served twice; each process goes its own rounds. On a FIFO
        table each group has one row in work, in order, and `workers` says how many groups go side by
        side. Left out are groups with a subscription of their own and the dead letters of any
        subscription in the service, the groups of its own dead letters (``"{group}.dead"``), and NULL.

        The table is in the lease form or the row lock form. In the latter each claim takes rows of one
        group on a connection of its own, and a group whose row failed rests by itself where no column
        keeps its back-off.

        Args:
            row: The table's class or description; it has groups.
            message: As for a queue.
            name: How it is called in logs; None: the table's name and ``.*``.
            lease: As for a queue.
            poll_interval: As for a queue.

        Raises:
            DeclarationError: The table has no groups, or an argument cannot be right.
        """
        # Imported here: it is made of this class.
        from inboxkit.every_group import EveryGroup  # noqa: PLC0415

        return EveryGroup(row, message, name=name, lease=lease, poll_interval=poll_interval)

    @property
    def group(self) -> str | None:
        """The group whose rows these are; None on a table without groups."""
        return self.only_group

    @property
    def only_group(self) -> str | None:
        """The one group whose rows these are; None on a table without groups, or where it is all."""
        return None if self.spec.group is None else self.name

    @property
    def shown_message(self) -> str:
        """The message's type, for messages."""
        return show(self.message)

    @property
    def row_mode(self) -> bool:
        """Whether handlers take the row itself: its table has no payload."""
        return self.spec.payload is None

    def __repr__(self) -> str:
        message = "" if self.message is None else f", {self.shown_message}"
        return f"InboxQueue({self.spec.name!r}, {self.name!r}{message})"


def table_of(row: Any) -> tuple[Any, InboxSpec]:
    """The class of a table's rows, where it has one, and its description."""
    if isinstance(row, InboxSpec):
        return None, row
    if isinstance(row, type) and issubclass(row, Inbox):
        return row, row.spec
    raise DeclarationError(
        f'a queue needs the class of its table (class X(Inbox, table="…")) or an InboxSpec, not {row!r}'
    )


def check_message(queue: InboxQueue[Any, Any], message: Any) -> None:
    """Refuse a message type that this queue cannot hand out.

    Raises:
        DeclarationError: Another type than the row on a table without payload; the row on a table with
            one; a type that the JSON codec cannot read back.
    """
    label = f"queue {queue.name!r} of table {queue.spec.name!r}"
    kinds = members(message)
    if queue.row_mode:
        if not takes_row(queue, message):
            row = "Mapping[str, Any]" if queue.row is None else queue.row.__name__
            raise DeclarationError(
                f"{label} has no payload, so its message is the row, {row}, not {show(message)}; add "
                f"payload: bytes = role.payload() for messages"
            )
        return
    if any(
        isinstance(kind, type) and issubclass(kind, Inbox) for kind in kinds if strip(kind) is kind
    ):
        raise DeclarationError(
            f"{label} has a payload, so its message is what that decodes to, not the row "
            f"{show(message)}; the row is delivery.row"
        )
    codec = JSON if queue.spec.codec is None else queue.spec.codec
    if isinstance(codec, JsonCodec):
        try:
            codec.check(message)
        except DeclarationError as error:
            raise DeclarationError(f"{label}: {error}") from error.__cause__


def takes_row(queue: InboxQueue[Any, Any], annotation: Any) -> bool:
    """Whether a parameter of this type takes the rows of a queue without payload."""
    row: Any = Mapping if queue.row is None else queue.row
    for kind in members(annotation):
        if kind is Any or getattr(kind, "__origin__", None) is Mapping:
            return True
        if isinstance(kind, type) and not hasattr(kind, "__origin__") and issubclass(row, kind):
            return True
    return False


def _lease(queue: InboxQueue[Any, Any], lease: timedelta | None) -> timedelta | None:
    if lease is None:
        return None
    if queue.spec.locked_until is None:
        raise DeclarationError(
            f"queue {queue.name!r} has a lease, but table {queue.spec.name!r} has no locked_until column; "
            f"add locked_until: datetime | None = role.locked_until(), or drop the lease"
        )
    try:
        return whole_seconds(lease)
    except DeclarationError as error:
        raise DeclarationError(f"queue {queue.name!r}: {error}") from None


def _poll_interval(queue: InboxQueue[Any, Any], interval: timedelta | None) -> timedelta | None:
    if interval is None or (isinstance(interval, timedelta) and interval > timedelta(0)):
        return interval
    raise DeclarationError(
        f"queue {queue.name!r}: poll_interval must be a timedelta longer than zero, not {interval!r}"
    )
