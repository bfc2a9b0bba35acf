"""Messages as JSON: what the codec of a table is unless it names another."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from inboxkit.errors import DeclarationError, DecodeError, EncodeError

from .annotations import members, show, strip
from .json_places import Found, find_unencodable

__all__ = ["JSON", "JsonCodec"]


class JsonCodec:
    """JSON by msgspec, except that `bytes` and `str` messages are stored as they are.

    Encoded: dataclasses, msgspec Structs, TypedDicts, attrs classes, pydantic models, built-in
    containers, numbers of any size, times, UUIDs, Decimals, enums. Refused: NaN and infinity (JSON
    has neither), lone surrogates (no database takes them), and whatever msgspec does not know.
    Decoding is strict (a number in quotes is no number) and ignores fields that the type has not.

    `None` is ``null``, four bytes; ``b""`` and ``""`` are an empty payload.
    """

    def encode(self, message: Any, /) -> bytes:
        """Return the payload of a message.

        Raises:
            EncodeError: `where` is the place of what JSON cannot hold; its value is not shown.
        """
        if isinstance(message, bytes | bytearray | memoryview):
            return bytes(message)
        try:
            payload = message.encode() if type(message) is str else _encode(message)
        except Exception as error:
            raise _encode_error(message, error) from error
        # msgspec writes NaN and infinity as null, and as a bare word where they are a mapping's key.
        if (b"null" in payload or b"nan" in payload or b"inf" in payload) and (
            found := find_unencodable(message)
        ):
            raise _found_error(found)
        return payload

    def decode(self, payload: bytes, type: Any, /) -> Any:
        """Return the message in a payload.

        Args:
            payload: As the table holds it.
            type: What to make of it; `bytes` and `str` give it as it is.

        Raises:
            DecodeError: `where` is the place that does not fit; nothing of the payload is shown.
        """
        plain = strip(type)
        if plain is bytes:
            return payload
        if plain is str:
            return _text(payload, type)
        if not payload:
            raise DecodeError(f"the payload is empty, not {show(type)}", where="$")
        try:
            return _decoder(type).decode(payload)
        except Exception as error:  # noqa: BLE001 - the message's own class may raise anything
            reason, where = _read(error)
        raise DecodeError(f"the payload is no {show(type)}: {reason} at {where}", where=where)

    def check(self, type: Any, /) -> None:
        """Refuse a message type that could not be read back as it was written.

        Raises:
            DeclarationError: A union with `bytes` or `str` in it, or a type that msgspec does not know.
        """
        kinds = list(members(type))
        if len(kinds) > 1 and (raw := [kind for kind in kinds if kind in (bytes, str)]):
            raise DeclarationError(
                f"message type {show(type)}: a {show(raw[0])} message is stored as it is, so it could "
                f"not be told from the JSON of the others; put the union into a dataclass's field"
            )
        if kinds[0] in (bytes, str):
            return
        try:
            _decoder(type)
            known = not isinstance(msgspec.inspect.type_info(kinds[0]), msgspec.inspect.CustomType)
        except Exception as error:
            raise DeclarationError(
                f"message type {show(type)} cannot be read from JSON: {error}"
            ) from error
        if not (known or _is_pydantic(kinds[0])):
            raise DeclarationError(
                f"message type {show(type)} cannot be read from JSON; make it a dataclass, or give "
                f"its table a codec"
            )

    def __repr__(self) -> str:
        return "JSON"


JSON: Final = JsonCodec()
"""The default codec."""


def _is_pydantic(kind: Any) -> bool:
    # Looked up, not imported: a program that has pydantic models has imported pydantic itself.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _to_known(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return msgspec.Raw(value.model_dump_json().encode())
    raise NotImplementedError


def _from_known(kind: Any, value: Any) -> Any:
    if _is_pydantic(kind):
        return kind.model_validate_json(msgspec.json.encode(value))
    raise NotImplementedError


_encode = msgspec.json.Encoder(enc_hook=_to_known).encode


class _PydanticDecoder:
    """Looks like a msgspec decoder; pydantic reads the JSON itself, by its own rules."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def decode(self, payload: bytes) -> Any:
        return self._model.model_validate_json(payload)


_decoders: dict[Any, Any] = {}
_MOST_DECODERS: Final = 500


def _decoder(kind: Any) -> Any:
    try:
        known = _decoders.get(kind)
    except TypeError:  # an unhashable Annotated
        return _make_decoder(kind)
    if known is None:
        known = _make_decoder(kind)
        if len(_decoders) < _MOST_DECODERS:
            _decoders[kind] = known
    return known


def _make_decoder(kind: Any) -> Any:
    plain = strip(kind)
    if _is_pydantic(plain):
        return _PydanticDecoder(plain)
    return msgspec.json.Decoder(kind, dec_hook=_from_known)


def _encode_error(message: Any, error: Exception) -> EncodeError:
    found = find_unencodable(message)
    if found is None:
        # An error of the message's own code: its text may hold anything, so only its kind is told.
        return EncodeError(
            f"a message of type {show(type(message))} cannot be written as JSON: "
            f"{type(error).__name__} at $",
            where="$",
        )
    return _found_error(found)


def _found_error(found: Found) -> EncodeError:
    return EncodeError(f"the message has {found.reason} at {found.where}", where=found.where)


def _text(payload: bytes, kind: Any) -> Any:
    try:
        text = payload.decode()
        return text if kind is str else msgspec.convert(text, kind)
    except UnicodeDecodeError as error:
        reason = f"invalid UTF-8 at byte {error.start}"
    except msgspec.ValidationError as error:
        reason = _read(error)[0]
    raise DecodeError(f"the payload is no {show(kind)}: {reason} at $", where="$")


_SAFE: Final = (
    "Expected ",
    "Object missing ",
    "Input data was truncated",
    "Invalid UTF-8",
    "JSON is malformed",
    "Number out of range",
    "Invalid base64",
    "Invalid RFC3339",
    "Invalid UUID",
    "Invalid decimal",
    "Invalid ISO8601",
    "Timezone offset out of range",
)
"""Starts of msgspec's messages that show nothing of the payload."""


def _read(error: Exception) -> tuple[str, str]:
    """Return what was wrong, without values, and where."""
    if isinstance(error, msgspec.MsgspecError):
        reason, _, place = str(error).partition(" - at `")
        where = place.rstrip("`") or "$"
        if error.__cause__ is None and reason.startswith(_SAFE):
            return reason, where
        return "a value that it does not take", where
    if isinstance(error, RecursionError):
        return "nested too deeply", "$"
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        refused: Any = error
        first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{first['type']} ({refused.error_count()} in all)", _path(first["loc"])
    return f"its class raised {type(error).__name__}", "$"


def _path(parts: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
