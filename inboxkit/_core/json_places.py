"""Finds the place in a message that JSON cannot hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from .annotations import show

__all__ = ["Found", "find_unencodable"]


@dataclass(frozen=True, slots=True)
class Found:
    """One place that cannot be encoded."""

    where: str
    """Such as ``$.lines[3].price``."""
    reason: str
    """What stands there, without its value."""


_DEEPEST = 200
"""Levels that are looked into; deeper ones are most likely a cycle."""


def find_unencodable(message: Any) -> Found | None:
    """Return the first place that JSON cannot hold; None where there seems to be none."""
    return _find(message, "$", 0)


def _find(value: Any, where: str, depth: int) -> Found | None:
    if depth > _DEEPEST:
        return Found(where[:100], f"a cycle, or more than {_DEEPEST} levels,")
    if reason := _reason(value):
        return Found(where, reason)
    for suffix, child in _children(value):
        if found := _find(child, where + suffix, depth + 1):
            return found
    return None


def _reason(value: Any) -> str | None:
    if isinstance(value, float):
        return (
            None if math.isfinite(value) else "a float that is NaN or infinite, which JSON has not,"
        )
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return (
                f"a str with a lone surrogate (character {error.start}), which no database takes,"
            )
        return None
    if value is None or isinstance(value, int | bytes) or _is_container(value):
        return None
    try:
        msgspec.json.encode(value)
    except Exception:  # noqa: BLE001 - any failure means that it cannot be encoded
        return f"a value of type {show(type(value))}, which JSON has not,"
    return None


def _is_container(value: Any) -> bool:
    return not isinstance(value, type) and (
        isinstance(value, Mapping | list | tuple | Set)
        or dataclasses.is_dataclass(value)
        or isinstance(value, msgspec.Struct)
        or hasattr(value, "__attrs_attrs__")
        or hasattr(value, "model_fields_set")
    )


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            if _reason(key):
                yield ".(key)", key
            yield _member(key), child
    elif isinstance(value, list | tuple | Set):
        for number, child in enumerate(value):
            yield f"[{number}]", child
    else:
        for name in _field_names(value):
            yield f".{name}", getattr(value, name, None)


def _field_names(value: Any) -> Iterable[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if hasattr(value, "__attrs_attrs__"):
        return [attribute.name for attribute in value.__attrs_attrs__]
    return list(vars(value)) if hasattr(value, "model_fields_set") else ()


def _member(key: Any) -> str:
    # A key may be data: one that does not look like a field's name is not shown.
    if isinstance(key, str) and key.isidentifier() and len(key) <= 50:
        return f".{key}"
    return "[…]"
