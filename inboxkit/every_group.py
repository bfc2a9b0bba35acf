"""`EveryGroup`: all groups of a table as one queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from typing_extensions import TypeVar

from inboxkit.errors import DeclarationError
from inboxkit.queue import InboxQueue, table_of

__all__ = ["EveryGroup"]

RowT = TypeVar("RowT", default=Any)
MessageT = TypeVar("MessageT", default=Any)


class EveryGroup(InboxQueue[RowT, MessageT]):
    """All groups of a table through one subscription; `InboxQueue.every_group` makes it."""

    def __init__(
        self,
        row: Any,
        message: Any = None,
        *,
        name: str | None = None,
        lease: timedelta | None = None,
        poll_interval: timedelta | None = None,
    ) -> None:
        _row, spec = table_of(row)
        if spec.group is None:
            raise DeclarationError(
                f"every_group needs a table with groups, and {spec.name!r} has none; give one of its "
                f"columns role.group(), or write InboxQueue(row, {spec.table!r}) for the whole table"
            )
        made: Any = super()
        made.__init__(
            row,
            f"{spec.name}.*" if name is None else name,
            message,
            lease=lease,
            poll_interval=poll_interval,
        )

    @property
    def only_group(self) -> None:
        """None: it has them all."""
        return None

    def group(self, name: str) -> InboxQueue[RowT, MessageT]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        """One of the groups, to publish to.

        A subscriber of it, included beside this one, has that group to itself.

        Args:
            name: The group; it need not have rows yet.
        """
        make: Any = InboxQueue
        queue: InboxQueue[RowT, MessageT] = make(
            self.spec if self.row is None else self.row,
            name,
            self.message,
            lease=self.lease,
            poll_interval=self.poll_interval,
        )
        return queue

    def __repr__(self) -> str:
        message = "" if self.message is None else f", {self.shown_message}"
        return f"InboxQueue.every_group({self.spec.name!r}{message})"
