"""The lease form's claim: rows as the database gave them, made into what the runtime hands out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from inboxkit._core.spec import Role
from inboxkit._sql.lease import claim_threshold
from inboxkit._sql.statement import Reading
from inboxkit._sql.table import Table
from inboxkit.abc import Claim, Claimed, Fence
from inboxkit.errors import DecodeError

__all__ = ["Claiming"]

_log: Final = logging.getLogger("inboxkit")
_NO_HEADERS: Final = MappingProxyType[str, str]({})
_LARGEST: Final = {"smallint": 2**15 - 1, "integer": 2**31 - 1}


def largest_attempt(table: Table) -> int:
    """What the table's attempt column can hold."""
    column = table.find(Role.ATTEMPT)
    return 0 if column is None else _LARGEST.get(column.info.family, 2**63 - 1)


class Claiming:
    """Reads claimed rows of one table."""

    def __init__(self, table: Table, *, cap: int | None) -> None:
        self._table = table
        self._cap = cap
        self._threshold = claim_threshold(cap, largest_attempt(table))
        self._at = {column.role: n for n, column in enumerate(table.columns)}
        # A due time in another layout sorts wrong, so the row came early or late: never served.
        self._vital = {Role.ID, Role.RETRY_AFTER}

    def read(self, rows: Sequence[tuple[Any, ...]], reading: Reading, expiry: datetime) -> Claim:
        """Make a claim of rows as they stood before it.

        Args:
            rows: One driver value for each described column, in claim order.
            reading: The clock's, that `expiry` was made from.
            expiry: As the column keeps it.
        """
        claimed = [self._row(row, reading, expiry) for row in rows]
        kept = tuple(row for row in claimed if row is not None)
        return Claim(kept, reading, undecodable=len(claimed) - len(kept))

    def _row(self, row: tuple[Any, ...], reading: Reading, expiry: datetime) -> Claimed | None:
        columns = self._table.columns
        id = columns[0].decode(row[0])
        values: dict[str, Any] = {}
        for column, raw in zip(columns, row, strict=True):
            value = values[column.name] = column.decode(raw, id=id)
            if isinstance(value, DecodeError) and column.role in self._vital:
                _set_aside(value, expiry)
                return None
        attempt, counted, stored = self._count(values)
        payload = self._value(values, Role.PAYLOAD)
        headers = self._value(values, Role.HEADERS)
        return Claimed(
            Fence(id, (expiry,), stored),
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
        at = self._at.get(role)
        if at is None:
            return None
        value = values[self._table.columns[at].name]
        return None if isinstance(value, DecodeError) else value

    def _count(self, values: dict[str, Any]) -> tuple[int | None, bool, int | None]:
        """The delivery's number, whether the claim counted it, and what it stored for the fence."""
        if Role.ATTEMPT not in self._at:
            return None, False, None
        attempt = self._value(values, Role.ATTEMPT)
        if attempt is None:
            return 1, True, None
        if attempt > self._threshold:
            return attempt, False, attempt
        return attempt, True, attempt + 1


def _set_aside(error: DecodeError, expiry: datetime) -> None:
    _log.error("%s; the row is set aside until %s", error, expiry.isoformat())
