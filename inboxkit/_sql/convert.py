"""Python values to driver values and back, as far as both databases do it alike.

A converter refuses with `MisfitError` what its column cannot hold, before anything is sent: the drivers
answer differently to wrong values (one stores an int in a text column as its digits, another
refuses), so the check cannot be theirs.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from inboxkit._core.lease import fit

__all__ = ["Convert", "Converter", "MisfitError"]

Convert: TypeAlias = Callable[[Any], Any]


class MisfitError(ValueError):
    """A value that its column, or its reader, cannot take; the message never shows the value."""


@dataclass(frozen=True, slots=True)
class Converter:
    """How one column's values travel. NULL and None never reach it."""

    encode: Convert
    """Raises MisfitError."""
    decode: Convert | None = None
    """Raises MisfitError; None: what the driver gives is the value."""


def kind_of(value: Any) -> str:
    """A value's type, for messages."""
    return type(value).__name__


def expect(value: Any, *kinds: type) -> Any:
    """Return `value` where it is of one of the kinds."""
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise MisfitError(f"expected {names}, not {kind_of(value)}")
    return value


def integer(lowest: int, highest: int) -> Convert:
    """Encode an int of a range."""

    def encode(value: Any) -> int:
        if isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise MisfitError(f"expected int, not {kind_of(value)}")
        if not lowest <= value <= highest:
            raise MisfitError(f"expected an int from {lowest} to {highest}")
        return int(value)

    return encode


def text(*, nul: bool) -> Convert:
    """Encode a str that is valid Unicode; with NUL characters only where `nul`."""

    def encode(value: Any) -> str:
        if type(value) is str and value.isascii() and (nul or "\0" not in value):
            return value
        if isinstance(value, enum.Enum):
            value = value.value
        expect(value, str)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise MisfitError(
                f"a lone surrogate at character {error.start} is no Unicode"
            ) from None
        if not nul and "\0" in value:
            raise MisfitError(
                f"a NUL at character {value.index(chr(0))}, which no text column takes"
            )
        return str(value)

    return encode


def binary(value: Any) -> bytes:
    """Encode bytes."""
    if type(value) is bytes:
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return bytes(expect(value, bytes))


def boolean(value: Any) -> bool:
    """Encode a bool."""
    return bool(expect(value, bool))


def floating(value: Any) -> float:
    """Encode a float; an int is one."""
    if isinstance(value, bool):
        raise MisfitError("expected float, not bool")
    return float(expect(value, float, int))


def uuid(value: Any) -> UUID:
    """Encode a UUID."""
    return UUID(int=expect(value, UUID).int)


def decimal(value: Any) -> Decimal:
    """Encode a Decimal; an int is one."""
    if isinstance(value, bool):
        raise MisfitError("expected Decimal, not bool")
    return Decimal(expect(value, Decimal, int))


def instant(precision: int) -> Convert:
    """Encode an aware datetime, in UTC, rounded to what the column keeps."""

    def encode(value: Any) -> Any:
        expect(value, datetime)
        if value.tzinfo is UTC and precision == 6:
            return value  # as clocks give it, and as nearly all are
        if value.utcoffset() is None:
            raise MisfitError("expected an aware datetime: give it a time zone, such as UTC")
        try:
            return fit(value.astimezone(UTC), precision)
        except OverflowError:
            raise MisfitError("the instant has no date in UTC") from None

    return encode


def json_text(inner: Convert) -> Convert:
    """Encode a value as JSON text."""

    def encode(value: Any) -> Any:
        try:
            return inner(msgspec.json.encode(value).decode())
        except (TypeError, ValueError) as error:
            if isinstance(error, MisfitError):
                raise
            raise MisfitError(f"no JSON: {kind_of(error)}") from None

    return encode


def json_document(inner: Convert, *, nul: bool = True, doubles: bool = False) -> Convert:
    """Encode text for a column of JSON, which takes nothing else.

    Args:
        inner: Encodes the text.
        nul: Whether it takes U+0000 in a text.
        doubles: Whether it makes numbers beyond 64 bits floats of double precision.
    """

    def encode(value: Any) -> Any:
        text = inner(value)
        try:
            _ANY_JSON.decode(text)
            if doubles:
                json.loads(text, parse_int=_check_int, parse_float=_check_float)
        except msgspec.DecodeError:
            raise MisfitError("no JSON, and the column takes nothing else") from None
        except RecursionError:
            raise MisfitError("JSON that is nested too deeply") from None
        if not nul and _NUL in text and _ESCAPED_NUL.search(text):
            raise MisfitError("a NUL in a text, which no column of type jsonb takes")
        return text

    return encode


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_NUL = "\\u0000"
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _check_int(digits: str) -> None:
    if len(digits) > _SAFE_DIGITS and not -(2**63) <= Decimal(digits) < 2**64:
        raise MisfitError("an integer beyond 64 bits, which the column would round")


def _check_float(digits: str) -> None:
    if len(digits) > _SAFE_DIGITS and Decimal(repr(float(digits))) != Decimal(digits):
        raise MisfitError("a number of more digits than a double has, which the column would round")


_SAFE_DIGITS = 15


def json_value(value: Any) -> Any:
    """Decode JSON text."""
    try:
        return msgspec.json.decode(expect(value, str, bytes))
    except msgspec.DecodeError:
        raise MisfitError("no JSON") from None


def headers_text(inner: Convert) -> Convert:
    """Encode headers: a mapping of str to str."""
    encode = json_text(inner)

    def encode_headers(value: Any) -> Any:
        try:
            pairs = dict(value)
        except (TypeError, ValueError):
            raise MisfitError(f"expected dict[str, str], not {kind_of(value)}") from None
        for name, item in pairs.items():
            if not isinstance(name, str) or not isinstance(item, str):
                raise MisfitError("expected dict[str, str]: every name and every value a str")
        return encode(pairs)

    return encode_headers


_HEADERS = msgspec.json.Decoder(dict[str, str])


def headers_value(value: Any) -> dict[str, str]:
    """Decode headers."""
    try:
        return _HEADERS.decode(expect(value, str, bytes))
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise MisfitError("expected a JSON object of texts") from None


def payload_text(inner: Convert) -> Convert:
    """Encode a payload for a text column: a codec's bytes are UTF-8 there."""

    def encode(value: Any) -> Any:
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                raise MisfitError("these bytes are no UTF-8 text; use a column for bytes") from None
        return inner(value)

    return encode


def payload_binary(value: Any) -> bytes:
    """Encode a payload for a column of bytes."""
    return value.encode() if isinstance(value, str) else binary(value)


def as_type(python: Any, first: Convert | None = None) -> Convert:
    """Decode into a declared Python type, by way of what msgspec makes of it."""

    def decode(value: Any) -> Any:
        if first is not None:
            value = first(value)
        if isinstance(python, type) and isinstance(value, python):
            return value
        try:
            return msgspec.convert(value, python, strict=False)
        except (msgspec.ValidationError, TypeError):
            name = getattr(python, "__name__", python)
            raise MisfitError(f"expected {name}, not {kind_of(value)}") from None

    return decode


def builtin(value: Any) -> Any:
    """Encode a value of a type that is the service's own: what a driver knows stays as it is."""
    if isinstance(value, enum.Enum):
        return value.value
    return value
