"""PostgreSQL's values: checked here, since the two drivers refuse different ones."""

from __future__ import annotations

import datetime as dt
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from inboxkit._core.spec import Column, Role
from inboxkit._sql import convert
from inboxkit._sql.column_types import python_type
from inboxkit._sql.convert import Convert, Converter, MisfitError
from inboxkit._sql.info import ColumnInfo

__all__ = ["LARGEST", "converter", "instant"]

LARGEST: Final = {"smallint": 2**15 - 1, "integer": 2**31 - 1, "bigint": 2**63 - 1}

_TEXT: Final = convert.text(nul=False)
_JSONB: Final = convert.json_document(_TEXT, nul=False)
_INSTANT: Final = convert.instant(6)
_TEXTS: Final = frozenset({"text", "character varying", "bpchar", "name"})
_JSON: Final = frozenset({"json", "jsonb"})
_FAMILY: Final[dict[Any, str]] = {
    int: "bigint",
    str: "text",
    bytes: "bytea",
    UUID: "uuid",
    datetime: "timestamp with time zone",
    bool: "boolean",
    float: "double precision",
    Decimal: "numeric",
    dict: "jsonb",
}
"""What a column is taken for where nobody asked the database."""


def instant(value: Any) -> datetime:
    """Encode an instant."""
    encoded: datetime = _INSTANT(value)
    return encoded


def _read_instant(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise MisfitError(f"expected a time with its zone, not {type(value).__name__}")
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def _read_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes(value)


def _read_uuid(value: Any) -> UUID:
    """asyncpg has a UUID class of its own."""
    return value if type(value) is UUID else UUID(int=convert.expect(value, UUID).int)


def _read_whole(value: Any) -> int:
    if value != value.to_integral_value():
        raise MisfitError("expected int, not a number with a fraction")
    return int(value)


def _naive(value: Any) -> datetime:
    if convert.expect(value, datetime).utcoffset() is not None:
        raise MisfitError("expected a naive datetime for a timestamp without time zone")
    found: datetime = value
    return found


def _integer(family: str) -> Convert:
    largest = LARGEST[family]
    return convert.integer(-largest - 1, largest)


_BY_FAMILY: Final[dict[str, Converter]] = {
    **{family: Converter(_integer(family)) for family in LARGEST},
    **{family: Converter(_TEXT) for family in _TEXTS},
    "uuid": Converter(convert.uuid, _read_uuid),
    "bytea": Converter(convert.binary, _read_bytes),
    "boolean": Converter(convert.boolean),
    "real": Converter(convert.floating),
    "double precision": Converter(convert.floating),
    "numeric": Converter(convert.decimal),
    "timestamp without time zone": Converter(_naive),
    "date": Converter(lambda value: convert.expect(value, dt.date)),
    "json": Converter(convert.json_text(_TEXT), convert.json_value),
    "jsonb": Converter(convert.json_text(_JSONB), convert.json_value),
}


_BY_DRIVER: Final = Converter(convert.builtin)
"""Arrays, enums, ranges, extensions' types: whatever the driver makes of them."""


def converter(role: Role, column: Column, info: ColumnInfo | None) -> Converter:
    """How a column's values travel."""
    python = python_type(role, column)
    family = info.family if info is not None else _guess(python)
    text = _text(family, info)
    if role is Role.HEADERS:
        return Converter(convert.headers_text(text), convert.headers_value)
    if role is Role.PAYLOAD:
        return _payload(python, family, text)
    if family == "timestamp with time zone":
        precision = info.precision if info is not None else 6
        return Converter(convert.instant(precision), _read_instant)
    return _value(python, family, text)


def _text(family: str, info: ColumnInfo | None) -> Convert:
    if family in _JSON:
        return convert.json_document(_TEXT, nul=family == "json")
    return _TEXT if info is None or info.longest is None else _cut(info.type, info.longest)


def _cut(shown: str, longest: int) -> Convert:
    """Encode text that the column takes whole: it refuses more, but cuts blanks off in silence."""

    def encode(value: Any) -> Any:
        found = _TEXT(value)
        if len(found) > longest:
            raise MisfitError(f"{shown} takes {longest} characters, and this has {len(found)}")
        return found

    return encode


def _guess(python: Any) -> str:
    return _FAMILY.get(getattr(python, "__origin__", python), "")


def _payload(python: Any, family: str, text: Convert) -> Converter:
    if family in _TEXTS or family in _JSON:
        # A JSON payload is its text: jsonb gives it back in an order and spacing of its own.
        return Converter(convert.payload_text(text), None if python is str else _text_as_bytes)
    if family == "bytea":
        return Converter(convert.payload_binary, _read_bytes)
    return Converter(_payload_as_given)


def _text_as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else _read_bytes(value)


def _payload_as_given(value: Any) -> Any:
    """Nobody told bytes from text: the server will."""
    return _TEXT(value) if isinstance(value, str) else convert.binary(value)


def _value(python: Any, family: str, text: Convert) -> Converter:
    if python is str and family in _JSON:
        return Converter(text)
    if python is int and family == "numeric":
        return Converter(convert.decimal, _read_whole)
    found = _BY_FAMILY.get(family, _BY_DRIVER)
    if getattr(python, "__origin__", python) in {dict, list} and family in _TEXTS:
        found = Converter(convert.json_text(text), convert.json_value)
    elif text is not _TEXT and family in _TEXTS:
        found = Converter(text)
    if python is None or python is _PLAIN.get(family):
        return found
    return Converter(_encode_as(python, found.encode), convert.as_type(python, found.decode))


_PLAIN: Final[dict[str, Any]] = {
    family: python for python, family in _FAMILY.items() if family not in _JSON
} | {"smallint": int, "integer": int, "character varying": str, "real": float}
"""The Python type that a family's values have of themselves."""


def _encode_as(python: Any, encode: Convert) -> Convert:
    """Encode a declared type that is not the column's own: an int or a float for numeric."""

    def encode_declared(value: Any) -> Any:
        if python is float and isinstance(value, float) and encode is convert.decimal:
            return Decimal(repr(value))
        return encode(value)

    return encode_declared
