"""SQLite's values: four storage classes, and what each declared type keeps in them."""

from __future__ import annotations

import datetime as dt
import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from inboxkit._core.spec import Column, Role
from inboxkit._sql import convert
from inboxkit._sql.column_types import python_type
from inboxkit._sql.convert import Converter, MisfitError
from inboxkit._sql.info import ColumnInfo

__all__ = ["LARGEST", "converter", "family", "instant"]

LARGEST: Final = 2**63 - 1

_TEXT: Final = convert.text(nul=True)
_INTEGER: Final = convert.integer(-LARGEST - 1, LARGEST)
_INSTANT: Final = convert.instant(6)
_CANONICAL: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}\+00:00")
_UUID_BYTES: Final = 16


def family(declared: str, *, strict: bool = False) -> str:
    """The family of a declared type, which `column_types` goes by.

    SQLite takes any name for a type and looks for pieces of it, INT first. The named families are
    those that people write for what has no class of its own; their affinity is NUMERIC, which leaves
    times, UUIDs and JSON objects as the text that they are.

    Args:
        declared: The type's name in CREATE TABLE.
        strict: Whether the table is STRICT: only there ANY is no type at all.
    """
    name = declared.upper().split("(")[0].strip()
    if not name or (strict and name == "ANY"):
        return "NONE"
    if name in {"UUID", "JSON", "JSONB"}:
        return name.removesuffix("B")
    if name.startswith(("DATETIME", "TIMESTAMP")) and "INT" not in name:
        return "TIME"
    if name in {"BOOL", "BOOLEAN"}:
        return "BOOLEAN"
    return _affinity(name)


def _affinity(name: str) -> str:
    for pieces, affinity in (
        (("INT",), "INT"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(piece in name for piece in pieces):
            return affinity
    return "NUMERIC"


def instant(value: Any) -> str:
    """Encode an instant as text that sorts as time: one width, one zone."""
    if not (
        type(value) is datetime and value.tzinfo is UTC
    ):  # as clocks give it, and nearly all are
        value = _INSTANT(value)
    return str(value.isoformat(timespec="microseconds"))


def _read_instant(value: Any) -> datetime:
    """Decode an instant. Other layouts than the canonical one sort wrong within a second or a day,
    so a row that has one is set aside rather than served early or late."""
    if not isinstance(value, str) or _CANONICAL.fullmatch(value) is None:
        raise MisfitError("expected time text such as '2026-01-02T03:04:05.678901+00:00'")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except ValueError:
        raise MisfitError("expected time text, met a date that does not exist") from None


def _read_any_instant(value: Any) -> datetime:
    """Decode an instant of the service's own column: any ISO layout, UTC where no zone is given
    (CURRENT_TIMESTAMP writes so)."""
    try:
        found = datetime.fromisoformat(convert.expect(value, str))
    except ValueError as error:
        raise (
            error if isinstance(error, MisfitError) else MisfitError("expected ISO time text")
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _read_int(value: Any) -> int:
    return int(convert.expect(value, int))


def _read_bool(value: Any) -> bool:
    if value not in (0, 1):
        raise MisfitError("expected 0 or 1")
    return bool(value)


def _read_float(value: Any) -> float:
    return float(convert.expect(value, float, int))


def _read_decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except ArithmeticError:
        raise MisfitError("expected a number") from None


def _uuid_text(value: Any) -> str:
    return str(convert.uuid(value))


def _uuid_blob(value: Any) -> bytes:
    return convert.uuid(value).bytes


def _read_uuid_text(value: Any) -> UUID:
    """Decode a UUID; one spelling only, as a row is found again by the text that it was read as."""
    try:
        found = UUID(convert.expect(value, str))
    except ValueError:
        found = None
    if found is None or str(found) != value:
        raise MisfitError("expected the text of a UUID, in lower case and with its hyphens")
    return found


def _read_uuid_blob(value: Any) -> UUID:
    if not isinstance(value, bytes) or len(value) != _UUID_BYTES:
        raise MisfitError("expected the 16 bytes of a UUID")
    return UUID(bytes=value)


def _read_text(value: Any) -> str:
    return str(convert.expect(value, str))


def _read_bytes(value: Any) -> bytes:
    return bytes(convert.expect(value, bytes))


def _read_payload(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else _read_bytes(value)


def _read_payload_text(value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else _read_text(value)
    except UnicodeDecodeError:
        raise MisfitError("expected UTF-8 text") from None


_BY_PYTHON: Final[dict[Any, Converter]] = {
    int: Converter(_INTEGER, _read_int),
    str: Converter(_TEXT, _read_text),
    bytes: Converter(convert.binary, _read_bytes),
    bool: Converter(lambda value: int(convert.boolean(value)), _read_bool),
    float: Converter(convert.floating, _read_float),
    # As text: a REAL would keep seven of 0.1000000's digits and fifteen of a price's.
    Decimal: Converter(lambda value: str(convert.decimal(value)), _read_decimal),
    UUID: Converter(_uuid_text, _read_uuid_text),
}


def converter(role: Role, column: Column, info: ColumnInfo | None) -> Converter:
    """How a column's values travel."""
    python = python_type(role, column)
    kind = info.family if info is not None else ""
    match role:
        case Role.HEADERS:
            return Converter(convert.headers_text(_TEXT), convert.headers_value)
        case Role.PAYLOAD:
            return _payload(python, kind)
        case Role.RETRY_AFTER | Role.PROCESSED_AT | Role.LOCKED_UNTIL:
            return Converter(instant, _read_instant)
        case _:
            return _value(python, kind)


def _payload(python: Any, kind: str) -> Converter:
    if python is str or (python is None and kind in {"TEXT", "JSON"}):
        read = _read_payload if python is None else _read_payload_text
        return Converter(convert.payload_text(_TEXT), read)
    if python is None and kind == "":
        return Converter(_payload_as_given, _read_payload)
    return Converter(convert.payload_binary, _read_payload)


def _payload_as_given(value: Any) -> Any:
    """Nobody told bytes from text: each is stored as it comes."""
    return _TEXT(value) if isinstance(value, str) else convert.binary(value)


def _value(python: Any, kind: str) -> Converter:
    if python is UUID or (python is None and kind == "UUID"):
        return Converter(_uuid_blob, _read_uuid_blob) if kind == "BLOB" else _BY_PYTHON[UUID]
    if python is datetime or (python is None and kind == "TIME"):
        return Converter(instant, _read_any_instant)
    if python in _BY_PYTHON:
        return _BY_PYTHON[python]
    if kind == "JSON" or getattr(python, "__origin__", python) in {dict, list}:
        read = convert.json_value if python is None else convert.as_type(python, convert.json_value)
        return Converter(convert.json_text(_TEXT), read)
    return Converter(partial(_as_given, kind), None if python is None else convert.as_type(python))


def _as_given(kind: str, value: Any) -> Any:
    """Encode a value of a column whose type nothing says, by its own type."""
    value = convert.builtin(value)
    if value is None or isinstance(value, float):
        return value
    found = _BY_PYTHON.get(type(value))
    if isinstance(value, UUID):
        return _uuid_blob(value) if kind == "BLOB" else _uuid_text(value)
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, dt.date | dt.time | dt.timedelta):
        return msgspec.to_builtins(value)
    if found is None:
        raise MisfitError(f"no value for SQLite: {type(value).__name__}")
    return found.encode(value)
