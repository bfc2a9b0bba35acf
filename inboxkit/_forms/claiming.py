"""Claimed rows as the database gave them, made into what the runtime hands out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from inboxkit._core.spec import Role
from inboxkit._sql.lease import claim_threshold, largest_attempt
from inboxkit._sql.statement import Reading
from inboxkit._sql.table import VITAL, Table
from inboxkit.abc import Claim, Claimed, Fence
from inboxkit.errors import DecodeError

__all__ = ["Claiming"]

_log: Final = logging.getLogger("inboxkit")
_NO_HEADERS: Final = MappingProxyType[str, str]({})


class Claiming:
    """Reads claimed rows of one table.

    Args:
        table: The queue's.
        cap: Past it a row is spent; None: none is.
        counts: Whether the claim's own statement counts; else what ends the delivery does.
        queue: The queue's name, for the log.
    """

    def __init__(
        self, table: Table, *, cap: int | None, counts: bool = True, queue: str = ""
    ) -> None:
        self._table = table
        self._queue = queue
        self._cap = cap
        self._counts = counts
        self._threshold = claim_threshold(cap, largest_attempt(table))
        self._names = {column.role: column.name for column in table.by_role.values()}
        self._decoded = [column for column in table.columns if column.converter.decode is not None]
        self._columns = [column.name for column in table.columns]
        self._was_told = False

    def read(
        self,
        rows: Sequence[tuple[Any, ...]],
        reading: Reading,
        expiry: datetime,
        *,
        hold: int | None = None,
    ) -> Claim:
        """Make a claim of rows as they stood before it.

        Args:
            rows: One driver value for each described column, in claim order.
            reading: The clock's, that `expiry` was made from.
            expiry: As the column keeps it; until then an undecodable row is set aside.
            hold: The number of the session that holds the rows; None: the expiry does.
        """
        if not rows:
            return Claim((), reading)
        tokens = (expiry,) if hold is None else ()
        claimed = [self._row(row, reading, expiry, tokens, hold) for row in rows]
        kept = tuple(row for row in claimed if row is not None)
        return Claim(kept, reading, undecodable=len(claimed) - len(kept))

    def _row(
        self,
        row: tuple[Any, ...],
        reading: Reading,
        expiry: datetime,
        tokens: tuple[datetime, ...],
        hold: int | None,
    ) -> Claimed | None:
        values: dict[str, Any] = dict(zip(self._columns, row, strict=True))
        id = self._table.id.decode(row[0])
        for column in self._decoded:
            value = values[column.name] = column.decode(values[column.name], id=id)
            if isinstance(value, DecodeError) and column.role in VITAL:
                self._set_aside(value, row, expiry)
                return None
        attempt, counted, stored = self._count(values)
        payload = self._value(values, Role.PAYLOAD)
        headers = self._value(values, Role.HEADERS)
        return Claimed(
            Fence(id, tokens, stored, hold),
            reading,
            attempt,
            counted,
            self._cap is not None and attempt is not None and attempt > self._cap,
            self._value(values, Role.GROUP),
            self._value(values, Role.PARTITION_KEY),
            headers if headers is not None else _NO_HEADERS,
            payload.encode() if isinstance(payload, str) else payload,
            values,
        )

    def _value(self, values: dict[str, Any], role: Role) -> Any:
        """A role's value; None where there is none or it cannot be read."""
        name = self._names.get(role)
        value = None if name is None else values[name]
        return None if isinstance(value, DecodeError) else value

    def _count(self, values: dict[str, Any]) -> tuple[int | None, bool, int | None]:
        """The delivery's number, whether it counts, and what is stored while it lasts."""
        if Role.ATTEMPT not in self._names:
            return None, False, None
        attempt = self._value(values, Role.ATTEMPT)
        if attempt is None:
            self._tell_of_unread_attempt()
            return 1, True, None
        if not self._counts:
            return attempt, self._cap is None or attempt <= self._cap, attempt
        if attempt > self._threshold:
            return attempt, False, attempt
        return attempt, True, attempt + 1

    def _set_aside(self, error: DecodeError, row: tuple[Any, ...], expiry: datetime) -> None:
        group = self._table.find(Role.GROUP)
        name = None if group is None else group.decode(row[self._columns.index(group.name)])
        place = "" if group is None else f" of group {name!r}"
        # The id as it stands in the table, to find the row by.
        _log.error(
            "%s; the row %r%s is set aside until %s",
            error,
            row[0],
            place,
            expiry.isoformat(),
            extra={
                "queue": self._queue,
                "row_id": row[0],
                "attempt": None,
                "group": name if isinstance(name, str) else None,
            },
        )

    def _tell_of_unread_attempt(self) -> None:
        if not self._was_told:
            self._was_told = True
            _log.warning(
                "table %r has rows whose attempt is NULL or cannot be read: it reads 1, for these and "
                "others",
                self._table.spec.name,
            )
