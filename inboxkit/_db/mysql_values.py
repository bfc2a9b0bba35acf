"""Values in the text that MariaDB and MySQL are sent, and values out of their answers.

Both drivers send what is written here, so both refuse and read the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit._db.instants import PAST
from inboxkit._db.placeholders import Parsed

__all__ = ["DECODERS", "ValueRefusedError", "compose"]


class ValueRefusedError(ValueError):
    """A value that the database has no text for; nothing was sent."""


def compose(parsed: Parsed, parameters: Sequence[Any], *, backslashes: bool) -> bytes:
    """The statement's bytes, with its values written into the places of their placeholders.

    Args:
        parsed: The statement's text, read.
        parameters: One for each placeholder's number.
        backslashes: Whether a backslash escapes in the session's SQL mode, as it does by default.

    Raises:
        ValueRefusedError: A value cannot be written; the message does not show it.
    """
    try:
        first, *others = [piece.encode() for piece in parsed.pieces]
    except UnicodeEncodeError as error:
        raise ValueRefusedError("the statement's text is not Unicode") from error
    written = [
        _literal(value, number, backslashes=backslashes)
        for number, value in enumerate(parameters, 1)
    ]
    parts = [first]
    for number, piece in zip(parsed.numbers, others, strict=True):
        parts += written[number - 1], piece
    return b"".join(parts)


def _literal(value: Any, number: int, *, backslashes: bool) -> bytes:
    match value:
        case str():
            try:
                return _quoted(value.encode(), backslashes=backslashes)
            except UnicodeEncodeError as error:
                raise ValueRefusedError(f"the argument ${number} is not Unicode") from error
        case bytes() | bytearray() | memoryview():
            return b"_binary" + _quoted(bytes(value), backslashes=backslashes)
    return _plain(value, number).encode()


def _plain(value: Any, number: int) -> str:
    match value:
        case None:
            text = "NULL"
        case int():
            text = f"{value:d}"  # a bool too
        case float() | Decimal() if not math.isfinite(value):
            raise ValueRefusedError(f"the argument ${number} is no finite number")
        case float():
            text = repr(value)  # an exponent makes it a double, not a decimal
            text = text if "e" in text else f"{text}e0"
        case Decimal():
            text = f"{value:f}"
        case datetime():
            text = f"TIMESTAMP'{_instant(value, number)}'"
        case date():
            text = f"DATE'{value.isoformat()}'"
        case UUID():
            text = f"'{value}'"
        case _:
            raise ValueRefusedError(f"the argument ${number} is a {type(value).__name__}")
    return text


def _instant(value: datetime, number: int) -> str:
    if value.utcoffset() is None:
        raise ValueRefusedError(f"the argument ${number} is a naive datetime")
    try:
        utc = value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise ValueRefusedError(f"the argument ${number} is outside the years 1 to 9999") from error
    return utc.isoformat(sep=" ", timespec="microseconds")


def _quoted(data: bytes, *, backslashes: bool) -> bytes:
    # In UTF-8 no byte of a longer character is a quote or a backslash, and the server reads the
    # statement as UTF-8, bytes of a _binary literal too.
    if backslashes:
        data = data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0")
    return b"'%s'" % data.replace(b"'", b"''")


def _datetime(text: str) -> datetime:
    """Aware, in UTC, which is the session's time zone. Never raises: the statement has been executed."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # 0000-00-00, or a day of month 0
        return PAST


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min


def _time(text: str) -> timedelta:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    return sign * timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(whole),
        microseconds=int(fraction.ljust(6, "0") or 0),
    )


_DECIMAL, _TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _TIMESTAMP, _LONGLONG = 0, 1, 2, 3, 4, 5, 7, 8
_INT24, _DATE, _TIME, _DATETIME, _YEAR, _NEWDATE, _NEWDECIMAL = 9, 10, 11, 12, 13, 14, 246

DECODERS: Final[dict[Any, Callable[[str], Any]]] = {
    **dict.fromkeys((_TINY, _SHORT, _LONG, _LONGLONG, _INT24, _YEAR), int),
    **dict.fromkeys((_FLOAT, _DOUBLE), float),
    **dict.fromkeys((_DECIMAL, _NEWDECIMAL), Decimal),
    **dict.fromkeys((_TIMESTAMP, _DATETIME), _datetime),
    **dict.fromkeys((_DATE, _NEWDATE), _date),
    _TIME: _time,
}
"""By the protocol's number of a column's type; others are text, or bytes where they are binary."""
