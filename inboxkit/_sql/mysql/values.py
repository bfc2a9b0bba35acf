"""MariaDB's and MySQL's values: checked here, since a session out of strict mode would cut and wrap
what does not fit."""

from __future__ import annotations

import datetime as dt
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit._core.lease import fit
from inboxkit._core.spec import Column, Role
from inboxkit._sql import convert
from inboxkit._sql.column_types import python_type
from inboxkit._sql.convert import Convert, Converter, MisfitError
from inboxkit._sql.info import ColumnInfo
from inboxkit._sql.lease import largest_number

__all__ = ["LATEST_TIMESTAMP", "converter", "instant"]

LATEST_TIMESTAMP: Final = datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)
"""What a TIMESTAMP holds at most, on every version; later instants become this one."""
_EARLIEST_TIMESTAMP: Final = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)

_TEXT: Final = convert.text(nul=True)
_INSTANT: Final = convert.instant(6)
_INTS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_LONG_TEXTS: Final = frozenset({"tinytext", "text", "mediumtext", "longtext"})
_TEXTS: Final = _LONG_TEXTS | {"char", "varchar", "enum", "set", "json"}
_BLOBS: Final = frozenset({"tinyblob", "blob", "mediumblob", "longblob", "varbinary"})
_BYTES: Final = _BLOBS | {"binary", "binary(16)"}
_UNICODE: Final = frozenset({"", "utf8mb4", "utf8mb3", "utf8"})
_FLOATS: Final = frozenset({"float", "double"})
_UUID_BYTES: Final = 16
_GUESSES: Final[dict[Any, ColumnInfo]] = {
    python: ColumnInfo("", family, family)
    for python, family in (
        (int, "bigint"),
        (str, "longtext"),
        (bytes, "longblob"),
        (UUID, "char"),
        (datetime, "datetime"),
        (bool, "tinyint"),
        (float, "double"),
        (Decimal, "decimal"),
        (dict, "json"),
        (list, "json"),
        (dt.date, "date"),
        (dt.time, "time"),
        (dt.timedelta, "time"),
    )
}
"""What a column is taken for where nobody asked the database."""
_UNKNOWN: Final = ColumnInfo("", "", "")


def instant(value: Any) -> datetime:
    """Encode an instant; drivers send it in UTC, and the session's time zone is UTC."""
    encoded: datetime = _INSTANT(value)
    return encoded


def converter(role: Role, column: Column, info: ColumnInfo | None) -> Converter:
    """How a column's values travel."""
    python = python_type(role, column)
    if info is None:
        info = _GUESSES.get(getattr(python, "__origin__", python), _UNKNOWN)
    if role is Role.HEADERS:
        return Converter(convert.headers_text(_text(info)), convert.headers_value)
    if role is Role.PAYLOAD:
        return _payload(python, info)
    return _value(python, info)


def _text(info: ColumnInfo) -> Convert:
    """Encode text that the column takes whole."""
    longest = info.longest
    in_bytes = info.family in _LONG_TEXTS
    is_narrow = info.charset in ("utf8mb3", "utf8")

    def encode(value: Any) -> str:
        text: str = _TEXT(value)
        if longest is not None and info.charset in _UNICODE:
            length = len(text.encode()) if in_bytes else len(text)
            if length > longest:
                unit = "bytes" if in_bytes else "characters"
                raise MisfitError(f"{info.type} takes {longest} {unit}, and this has {length}")
        if is_narrow and text and max(text) > "\uffff":
            raise MisfitError(
                f"the column's character set {info.charset} has no character beyond U+FFFF; convert it "
                "to utf8mb4"
            )
        if info.family == "char" and text.endswith(" "):
            raise MisfitError(f"{info.type} drops the spaces at the end of a text; use varchar")
        return text

    return convert.json_document(encode, doubles=True) if info.family == "json" else encode


def _binary(info: ColumnInfo, encode: Convert) -> Convert:
    """Encode bytes that the column takes whole."""
    longest = info.longest

    def encode_whole(value: Any) -> bytes:
        found: bytes = encode(value)
        if longest is not None and len(found) > longest:
            cure = "" if info.family == "longblob" else "; use longblob"
            raise MisfitError(f"{info.type} takes {longest} bytes, and this has {len(found)}{cure}")
        if info.family.startswith("binary") and len(found) != longest:
            raise MisfitError(f"{info.type} pads with zeros, and this has {len(found)} bytes")
        return found

    return encode_whole


def _payload(python: Any, info: ColumnInfo) -> Converter:
    text = _text(info)
    if info.family in _TEXTS:
        # A JSON payload is its text: MySQL gives it back in an order and spacing of its own.
        return Converter(convert.payload_text(text), None if python is str else _text_as_bytes)
    if info.family in _BYTES:
        return Converter(_binary(info, convert.payload_binary), _read_bytes)
    return Converter(_payload_as_given)


def _payload_as_given(value: Any) -> Any:
    """Nobody told bytes from text: the server will."""
    return _TEXT(value) if isinstance(value, str) else convert.binary(value)


def _text_as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else _read_bytes(value)


def _read_bytes(value: Any) -> bytes:
    return bytes(convert.expect(value, bytes))


def _value(python: Any, info: ColumnInfo) -> Converter:
    family = info.family
    if python is UUID or (python is None and family == "uuid"):
        return _uuid(info)
    if family in ("datetime", "timestamp"):
        return Converter(_instant(info), _read_instant)
    if getattr(python, "__origin__", python) in {dict, list} or (
        family == "json" and python is None
    ):
        read = convert.json_value if python is None else convert.as_type(python, convert.json_value)
        return Converter(convert.json_text(_text(info)), read)
    found = _plain(python, info)
    if found is None:
        return Converter(
            _as_given if python is not UUID else convert.uuid,
            None if python is None else convert.as_type(python),
        )
    if python in (None, _PLAIN.get(family)):
        return found
    return Converter(found.encode, convert.as_type(python, found.decode))


_PLAIN: Final[dict[str, Any]] = {
    **dict.fromkeys(_INTS, int),
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_BYTES, bytes),
    **dict.fromkeys(_FLOATS, float),
    "decimal": Decimal,
    "date": dt.date,
    "time": dt.timedelta,
}
"""The Python type that a family's values have of themselves."""


def _plain(python: Any, info: ColumnInfo) -> Converter | None:
    """How a column's values travel, by its own type and the declared one."""
    family = info.family
    found: Converter | None = None
    if family in _INTS:
        found = _integer(python, info)
    elif family in _TEXTS:
        found = Converter(_text(info))
    elif family in _BYTES:
        found = Converter(_binary(info, convert.binary))
    elif family in _FLOATS:
        found = Converter(convert.floating)
    elif family == "decimal":
        found = Converter(_decimal(python), _read_whole if python is int else None)
    elif family == "date":
        found = Converter(lambda value: convert.expect(value, dt.date))
    elif family == "time":
        found = Converter(_write_time, _read_time if python is dt.time else None)
    return found


def _integer(python: Any, info: ColumnInfo) -> Converter:
    if python is bool:
        return Converter(lambda value: int(convert.boolean(value)), _read_bool)
    largest = largest_number(info)
    return Converter(convert.integer(0 if info.unsigned else -largest - 1, largest))


def _uuid(info: ColumnInfo) -> Converter:
    if info.family in _BYTES:
        return Converter(lambda value: convert.uuid(value).bytes, _read_uuid_bytes)
    return Converter(lambda value: str(convert.uuid(value)), _read_uuid_text)


def _read_uuid_text(value: Any) -> UUID:
    """Decode a UUID; one spelling only, as a row is found again by the text that it was read as."""
    try:
        found = UUID(convert.expect(value, str))
    except ValueError:
        found = None
    if found is None or str(found) != value:
        raise MisfitError("expected the text of a UUID, in lower case and with its hyphens")
    return found


def _read_uuid_bytes(value: Any) -> UUID:
    if not isinstance(value, bytes) or len(value) != _UUID_BYTES:
        raise MisfitError("expected the 16 bytes of a UUID")
    return UUID(bytes=value)


def _instant(info: ColumnInfo) -> Convert:
    """Encode an instant as the column keeps it: MySQL would round what it does not, MariaDB cut."""
    exact = convert.instant(info.precision)

    def encode(value: Any) -> Any:
        found = exact(value)
        if info.family != "timestamp":
            return found
        return min(max(found, _EARLIEST_TIMESTAMP), fit(LATEST_TIMESTAMP, info.precision))

    return encode


def _read_instant(value: Any) -> datetime:
    found: datetime = convert.expect(value, datetime)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _read_bool(value: Any) -> bool:
    if value not in (0, 1):
        raise MisfitError("expected 0 or 1")
    return bool(value)


def _decimal(python: Any) -> Convert:
    def encode(value: Any) -> Any:
        if python is float and isinstance(value, float):
            return Decimal(repr(value))
        return convert.decimal(value)

    return encode


def _read_whole(value: Any) -> int:
    if value != int(value):
        raise MisfitError("expected int, not a number with a fraction")
    return int(value)


def _write_time(value: Any) -> str:
    if isinstance(value, dt.time):
        return value.isoformat(timespec="microseconds")
    whole = convert.expect(value, dt.timedelta) // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(whole), 1_000_000)
    sign = "-" if whole < 0 else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _read_time(value: Any) -> dt.time:
    found: datetime = datetime.min.replace(tzinfo=UTC) + convert.expect(value, dt.timedelta)
    return found.time()


def _as_given(value: Any) -> Any:
    """Encode a value of a column whose type nothing says, by its own type."""
    value = convert.builtin(value)
    if isinstance(value, datetime):
        return instant(value)
    return str(value) if isinstance(value, UUID) else value
